"""What disks are made of: images of the file, as hosts keep them and as clouds boot them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nospoon.model.cloud_images import IN_CLOUD, cloud_name
from nospoon.model.cluster import Host, Node
from nospoon.model.images import HypervisorType, kept_in
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.plan.resolution.context import Context


def image_key(context: Context, host: str, image: str) -> Key:
    return Key(Kind.IMAGE, host, f"image-{context.around.images[image].sha256[:16]}")


def images(context: Context, host: str) -> Iterator[Resource]:
    """Those of which volumes in a host's pool are made."""
    facts = context.around.images
    named = {
        disk.source
        for node in context.nodes_on(host)
        for disk in node.disks
        if disk.image and kept_in(disk.image) is None and not cloud_name(disk.image)
    }
    for image in sorted({facts[name].sha256: name for name in named}.values()):
        known = facts[image]
        shape = Image(context.pool, known.sha256, known.format, known.virtual_size)
        yield Resource(image_key(context, host, image), shape, (context.pool_key(host),))


def roots(context: Context, host: Host) -> Iterator[Resource]:
    """Images of which a cloud makes roots: for each firmware and machine type another one."""
    made: dict[Key, Resource] = {}
    for node in filter(has_root_image, context.nodes_on(host.name)):
        key = root_key(context, node, host.name)
        facts = context.around.images[node.disks[0].source]
        shape = Image(
            "", facts.sha256, facts.format, facts.virtual_size, node.firmware, _scheduled(node)
        )
        made[key] = Resource(key, shape)
    yield from (made[key] for key in sorted(made, key=lambda key: key.name))


def has_root_image(node: Node) -> bool:
    """Whether a server of a cloud is made of an image that nospoon sends there."""
    if node.adopted is not None or node.kind is NodeKind.BAREMETAL:
        return False
    image = node.disks[0].image
    return kept_in(image) is None and not cloud_name(image)


def root_in_cloud(context: Context, node: Node, host: Host) -> str:
    """What the root of a server is made of that the cloud has already, by its id: a name may be
    another image's by now, of which the server is made again. "" for an image of the file.
    """
    name, facts = cloud_name(node.disks[0].image), context.facts(host)
    found = facts.cloud_images.get(name, ()) if facts is not None else ()
    return f"{IN_CLOUD}{found[0].id if found else name}" if name else ""


def root_key(context: Context, node: Node, host: str) -> Key:
    image = image_key(context, host, node.disks[0].source)
    parts = (image.name, str(node.firmware), _scheduled(node))
    return replace(image, name="-".join(filter(None, parts)))


def _scheduled(node: Node) -> str:
    """By which hypervisor of a cloud an image may be run: those with KVM say that they run QEMU's,
    too (`img_hv_type`, nova.conf's ImagePropertiesFilter); "" for any.
    """
    if node.kind is NodeKind.CONTAINER:
        return str(HypervisorType.LXC)
    return str(HypervisorType.QEMU) if node.image_types else ""
