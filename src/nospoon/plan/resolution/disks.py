"""Disks of nodes: the volumes that are made for them, and how their machines have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from nospoon.model.cluster import Disk, Firmware, Host, Node
from nospoon.model.images import KeptIn, kept_in
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import MachineDisk
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Volume
from nospoon.plan import identity
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.images import image_key, root_in_cloud, root_key

ROTATION_RATES = {None: 0, False: 1, True: 7200}
"""Of disks that tell nothing, that do not rotate, and that do."""


def volumes(context: Context, node: Node, host: Host) -> list[Resource]:
    """Those that are made for a node."""
    return [
        _volume(context, node, host, index)
        for index, disk in enumerate(node.disks)
        if not disk.volume and host.declares.has_pools
    ]


def _volume(context: Context, node: Node, host: Host, index: int) -> Resource:
    disk = node.disks[index]
    facts = context.around.images[disk.source] if disk.image else None
    image = image_key(context, host.name, disk.source) if disk.image else None
    shape = Volume(
        pool=context.pool,
        size=disk.size or (_whole_kibibytes(facts.virtual_size) if facts else 0),
        image=image.name if image else "",
    )
    needs = (context.pool_key(host.name), *((image,) if image else ()))
    return Resource(Key(Kind.VOLUME, host.name, f"{node.name}-{index}"), shape, needs, node.name)


def sizes(context: Context, node: Node, host: Host, made: Sequence[Resource]) -> Iterator[int]:
    """Of the node's disks, in their order, in bytes. `made`: the volumes that are made for it."""
    if node.adopted is not None:
        yield from context.around.adopted[node.adopted.uuid].sizes
        return
    new = {each.key.name: each.shape.size for each in made if isinstance(each.shape, Volume)}
    facts = context.facts(host)
    for index, disk in enumerate(node.disks):
        found = facts.volumes.get(disk.volume) if facts is not None else None
        yield found.size if found is not None else new.get(f"{node.name}-{index}", disk.size)


def machine_disks(context: Context, node: Node, host: Host, uuid: UUID) -> tuple[MachineDisk, ...]:
    return tuple(_machine_disk(context, node, host, uuid, i) for i in range(len(node.disks)))


def _machine_disk(context: Context, node: Node, host: Host, uuid: UUID, index: int) -> MachineDisk:
    disk, name = node.disks[index], f"{node.name}-{index}"
    if not host.declares.has_pools:
        if index == 0 and node.kind is not NodeKind.BAREMETAL:
            kept = kept_in(disk.image)
            root = str(KeptIn(*kept, node.name)) if kept else root_in_cloud(context, node, host)
            root = root or root_key(context, node, host.name).name
            return MachineDisk(root, disk.bus, serial="", size=disk.size)
        # SeaBIOS boots no virtio disk that is not in the boot order, and Nova puts none there
        bus = "sata" if node.firmware is Firmware.BIOS else disk.bus
        return MachineDisk(name, bus, serial="", size=disk.size)
    return _in_pool(disk, name, disk.serial or identity.disk_serial(uuid, index))


def _in_pool(disk: Disk, volume: str, serial: str) -> MachineDisk:
    rate = ROTATION_RATES[disk.rotational]
    name = disk.volume or volume
    return MachineDisk(
        name, disk.bus, serial, disk.cache, disk.discard, rate, disk.format, mount=disk.mount
    )


def _whole_kibibytes(size: int) -> int:
    """libvirt has qemu-img make disks of these, so that a disk may be larger than its image."""
    return -(-size // 1024) * 1024
