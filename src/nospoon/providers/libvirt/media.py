"""Virtual media: ISO images put into a domain's CD drive and taken out, whether it runs or not.

A medium is a file in the machine's pool, named by its content, so that machines share it; what no
drive holds any more is removed. The drive itself is always there (`domain_xml`), but for machines
of someone else's (`adopted_drives`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from threading import Lock
from uuid import UUID
from xml.etree import ElementTree as ET

import libvirt

from nospoon.errors import ProviderError
from nospoon.providers.base import Medium
from nospoon.providers.libvirt.adopted_drives import borrow, give_back
from nospoon.providers.libvirt.bindings import Connect, Domain, VirPool
from nospoon.providers.libvirt.definitions import defined
from nospoon.providers.libvirt.domain_parse import is_seed, medium_of
from nospoon.providers.libvirt.elements import attribute_of, element, parsed, written
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.images import send_file
from nospoon.providers.libvirt.pools import our_pool
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.storage_xml import MEDIUM, medium_file, parse_pool
from nospoon.providers.libvirt.volumes import file_named


@dataclass(frozen=True, slots=True)
class DomainDrives:
    """The CD drives of one host's machines. `locks`: a machine's calls come one after the other;
    `turn`: one change of the pools' files at a time; `queue`: of those who wait for that, one
    takes a thread, for power commands need the others.
    """

    hypervisor: Hypervisor
    roster: Roster
    locks: Mapping[UUID, asyncio.Lock]
    turn: Lock = field(default_factory=Lock)
    queue: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def insert(self, machine: UUID, medium: Medium) -> None:
        """Put it in, instead of what is in there now."""
        async with self.locks[machine], self.queue:
            await self.hypervisor.work(
                lambda connect: self._insert(connect, machine, medium),
                f"insert media into {self.roster.named(machine)}",
            )

    async def eject(self, machine: UUID) -> None:
        """Take out what is in there; an empty drive is no error."""
        async with self.locks[machine], self.queue:
            await self.hypervisor.work(
                lambda connect: self._eject(connect, machine),
                f"eject the media of {self.roster.named(machine)}",
            )

    def _insert(self, connect: Connect, machine: UUID, medium: Medium) -> None:
        domain, known = self._domain(connect, machine)
        pool = our_pool(connect, self.hypervisor.host, known.owner.tag, known.owner.pool)
        file = medium_file(medium.sha256)
        with self.turn:
            send_file(connect, pool, medium.path, file, mode="0644")
            before = self._changed(domain, known, _path_in(pool, file))
            _drop_unused(connect, pool, before)

    def _eject(self, connect: Connect, machine: UUID) -> None:
        domain, known = self._domain(connect, machine)
        pool = our_pool(connect, self.hypervisor.host, known.owner.tag, known.owner.pool)
        with self.turn:
            _drop_unused(connect, pool, self._changed(domain, known, ""))

    def _changed(self, domain: Domain, known: Known, path: str) -> str:
        """Put it in, or nothing; the path of what was in there."""
        if known.owner.adopted:
            return borrow(domain, path)
        return _put(domain, path)

    def take_out(self, connect: Connect, machine: UUID) -> None:
        """Give a machine of someone else's its CD drive back as it was."""
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        with self.turn:
            medium = give_back(connect, domain)
            with ignoring(NO_STORAGE_POOL):
                pool = our_pool(connect, self.hypervisor.host, known.owner.tag, known.owner.pool)
                _drop_unused(connect, pool, medium)

    def _domain(self, connect: Connect, machine: UUID) -> tuple[Domain, Known]:
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        if known.script:
            raise ProviderError(
                f"host {self.hypervisor.host}: the CD drive of machine {machine} holds the ISO by "
                "which nospoon decides what it boots",
                hint="Virtual media need a host of qemu:///system.",
            )
        return domain, known


def _put(domain: Domain, path: str) -> str:
    """Change the medium, in the running machine too; returns the path of the one before."""
    root = parsed(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    before = medium_of(root)
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    if domain.isActive():
        # a guest that locked its tray is not asked: a BMC's eject is a person at the drive
        flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE
    domain.updateDeviceFlags(_drive(root, path), flags)
    return before


def _drive(root: ET.Element, path: str) -> str:
    for disk in root.iterfind("devices/disk[@device='cdrom']"):
        if is_seed(disk):
            continue
        target = disk.find("target")
        boot = disk.find("boot")
        return written(
            element(
                "disk",
                element("driver", name="qemu", type="raw"),
                element("source", file=path) if path else None,
                element(
                    "target",
                    dev=attribute_of(disk, "target", "dev"),
                    bus=target.get("bus", "") if target is not None else "",
                ),
                element("readonly"),
                element("boot", order=boot.get("order", "")) if boot is not None else None,
                type="file",
                device="cdrom",
            )
        )
    raise ProviderError("the machine has no CD drive any more", hint="`nospoon up` repairs it.")


def _path_in(pool: VirPool, file: str) -> str:
    return f"{parse_pool(parsed(pool.XMLDesc(0))).path}/{file}"


def _files_of(root: ET.Element) -> set[str]:
    """Of all drives: who adopted a machine with two may have ours in either."""
    return {attribute_of(disk, "source", "file") for disk in root.iterfind("devices/disk")}


def _drop_unused(connect: Connect, pool: VirPool, path: str) -> None:
    """Remove a medium that was just taken out, unless another machine has it too. A file of that
    name in another directory is its owner's.
    """
    file = PurePosixPath(path).name
    if not MEDIUM.match(file) or path != _path_in(pool, file):
        return
    if any(path in _files_of(root) for _, root in defined(connect)):
        return
    volume = file_named(pool, file)
    if volume is not None:
        volume.delete(0)
