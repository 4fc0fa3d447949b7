"""Volumes that BMC clients made: disks of a machine beside those of its shape (ADR 5).

The BMC's state says which there shall be; a start of the machine brings its definition and its pool
to it. They lie in the machine's pool as NODE.ID.volume, so that no plan takes them for disks of the
cluster file, and go with the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from string import ascii_lowercase
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.model.volumes import AddedVolume
from nospoon.providers.libvirt.adopted import of_its_owner
from nospoon.providers.libvirt.bindings import Connect, Domain, VirPool
from nospoon.providers.libvirt.domain_parse import is_added
from nospoon.providers.libvirt.domain_xml import DISK_PREFIX
from nospoon.providers.libvirt.elements import attribute_of, element, leaf, parsed, text_of, written
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.pools import our_pool, refreshed
from nospoon.providers.libvirt.roster import Roster
from nospoon.providers.libvirt.storage_xml import ADDED, added_file, parse_pool, render_volume
from nospoon.providers.libvirt.volumes import file_named

BUSES = ("virtio", "scsi", "sata")
"""Of a machine's disks, the one that an added volume takes: it has a controller with room."""


@dataclass(frozen=True, slots=True)
class Added:
    """The added volumes of the machines of one host."""

    hypervisor: Hypervisor
    roster: Roster

    async def differ(self, machine: UUID, wanted: Sequence[AddedVolume]) -> bool:
        """Whether a running machine has others than these."""

        def look(connect: Connect) -> set[str]:
            return set(_present(parsed(self.roster.find(connect, machine).XMLDesc(0))))

        found = await self.hypervisor.ask(look, f"look at the volumes of {machine}")
        return found != {each.id for each in wanted}

    async def bring(self, machine: UUID, wanted: Sequence[AddedVolume]) -> None:
        """Give a machine that is off these volumes, and no others. Raises `ProviderError`."""
        await self.hypervisor.work(
            lambda connect: self.apply(connect, machine, wanted), f"set the volumes of {machine}"
        )

    def apply(self, connect: Connect, machine: UUID, wanted: Sequence[AddedVolume]) -> None:
        """The same, in the caller's job."""
        domain = self.roster.find(connect, machine)
        root = parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        present = _present(root)
        if not wanted and not present:
            return
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        owner = known.owner
        if owner.adopted:
            raise of_its_owner(owner.name, "it is given no volumes")
        pool = refreshed(our_pool(connect, self.hypervisor.host, owner.tag, owner.pool))
        ids = {each.id for each in wanted}
        for id_ in present.keys() - ids:
            config = libvirt.VIR_DOMAIN_AFFECT_CONFIG
            domain.detachDeviceFlags(ET.tostring(present[id_], encoding="unicode"), config)
        remove_added(pool, owner.name, besides=ids)
        for volume in wanted:
            if volume.id not in present:
                _attach(domain, pool, owner.name, volume)


def remove_added(pool: VirPool, node: str, *, besides: Iterable[str] = ()) -> None:
    """Delete the files of this node's added volumes, but for these."""
    kept = {added_file(node, id_) for id_ in besides}
    for file in pool.listAllVolumes(0):
        match = ADDED.match(file.name())
        if match is not None and match["node"] == node and file.name() not in kept:
            file.delete(0)


def _present(root: ET.Element) -> dict[str, ET.Element]:
    """Id -> the disk of each added volume in a domain."""
    disks = [disk for disk in root.iterfind("devices/disk") if is_added(disk)]
    return {text_of(disk, "serial"): disk for disk in disks}


def _attach(domain: Domain, pool: VirPool, node: str, volume: AddedVolume) -> None:
    file = added_file(node, volume.id)
    if file_named(pool, file) is None:
        pool.createXML(render_volume(file, capacity=volume.size, file_format="qcow2"), 0)
    path = PurePosixPath(parse_pool(parsed(pool.XMLDesc(0))).path) / file
    root = parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    domain.attachDeviceFlags(_disk(root, str(path), volume.id), libvirt.VIR_DOMAIN_AFFECT_CONFIG)


def _disk(root: ET.Element, path: str, id_: str) -> str:
    used = {attribute_of(disk, "target", "bus") for disk in root.iterfind("devices/disk")}
    bus = next((each for each in BUSES if each in used), "sata")
    return written(
        element(
            "disk",
            element("driver", name="qemu", type="qcow2", cache="writeback", discard="unmap"),
            element("source", file=path),
            element("target", dev=_free_target(root, DISK_PREFIX[bus]), bus=bus),
            leaf("serial", id_),
            type="file",
            device="disk",
        )
    )


def _free_target(root: ET.Element, prefix: str) -> str:
    taken = {attribute_of(disk, "target", "dev") for disk in root.iterfind("devices/disk")}
    free = (name for letter in ascii_lowercase if (name := prefix + letter) not in taken)
    found = next(free, None)
    if found is None:
        raise ProviderError("the machine has 26 disks, and no slot for another")
    return found
