"""What a node asks of an image that is in a cloud already, which is not nospoon's to change."""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.model.cloud_images import CloudImage, cloud_name
from nospoon.model.cluster import Host, Node
from nospoon.model.host_facts import HostFacts
from nospoon.model.images import MOUNTED_ROOT, OF_KIND, HypervisorType
from nospoon.model.node_kind import NodeKind
from nospoon.model.sizes import size
from nospoon.plan.words import listed

READY = "active"


def against_cloud_image(node: Node, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why the root of a node is not made of an image that is there."""
    name = cloud_name(node.disks[0].image) if node.disks else ""
    if not name:
        return
    if host.declares.has_pools:
        yield (
            f"image glance:{name} is of a cloud, and {host.where} is none. Give the file a cloud, "
            "or name a path, a URL or store:NAME."
        )
        return
    found = facts.cloud_images.get(name, ())
    if not found:
        yield f"Glance has no image {name!r} that its project sees. See `openstack image list`."
    elif len(found) > 1:
        ids = listed(sorted(each.id for each in found))
        yield f"Glance has several images {name!r}. Name one by its id: glance:ID, of {ids}."
    else:
        yield from _against(node, name, found[0])


def _against(node: Node, name: str, image: CloudImage) -> Iterator[str]:
    what = f"image {name!r} of Glance"
    if image.status != READY:
        yield f"{what} is {image.status}, not {READY}."
    fit, of = OF_KIND[node.kind], image.hypervisor_type
    if of and of not in fit:
        yield (
            f"{what} is for {of} (img_hv_type), and a node of kind {node.kind} begins with one for "
            f"{' or '.join(sorted(fit))}."
        )
    elif node.kind is NodeKind.CONTAINER:
        yield from _against_root(what, image)
    elif image.firmware is not node.firmware:
        yield (
            f"{what} boots by {image.firmware} (hw_firmware_type). Write `firmware: "
            f"{image.firmware}`."
        )
    given = node.disks[0].size
    if image.least > given:
        yield f"{what} needs a root of {size(image.least)}, and its size is {size(given)}."


def _against_root(what: str, image: CloudImage) -> Iterator[str]:
    if image.hypervisor_type != HypervisorType.LXC:
        yield (
            f"{what} has no img_hv_type=lxc, without which Nova makes a VM of it. Its owner sets "
            "it: `openstack image set --property img_hv_type=lxc`."
        )
    if image.format != MOUNTED_ROOT:
        yield f"{what} is {image.format}, and Nova's LXC driver mounts a raw ext4 file system."
