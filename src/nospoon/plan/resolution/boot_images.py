"""Boot images: what machines boot that ask the daemon what comes next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nospoon.model.cluster import Host, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.relays import relay_of
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import BootImage, boot_image


def has_image(node: Node, host: Host) -> bool:
    """Whether it boots a boot image of its host; a machine of others, where it can ask for it."""
    if not host.declares.has_boot_image or node.kind is not NodeKind.BAREMETAL:
        return False
    return node.adopted is None or host.connection.is_asked


def boot_images(host: Host, asking: Iterable[Node], url: str) -> Iterator[Resource]:
    """For each firmware of nodes of a host that ask; `url`: where they ask."""
    needs = (relay_of(host.name),) if host.connection.relay is not None else ()
    for firmware in sorted({node.firmware for node in asking}):
        yield Resource(boot_image(host.name, firmware, url), BootImage(firmware, url), needs)
