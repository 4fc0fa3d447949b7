"""The file of a machine's UEFI variables, read and written while the machine is off (`flash`).

libvirt makes it from the firmware's template at the first start; where it is not there yet, a start
that is paused and ended at once makes it. Those of machines that an earlier version made lie in the
directory of the pool itself, until the machine is off and is started, or made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import libvirt
import structlog

from nospoon.errors import Gone, HostUnreachable, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.resources.machines import Machine
from nospoon.model.secure_boot import KeyDatabase
from nospoon.providers.libvirt.adopted_variables import AdoptedVariables, start_and_end
from nospoon.providers.libvirt.bindings import Connect, VirPool
from nospoon.providers.libvirt.elements import parsed, text_of, written
from nospoon.providers.libvirt.faults import NO_DOMAIN, NO_STORAGE_POOL, STORAGE_VOL_EXIST
from nospoon.providers.libvirt.flash import Edit, Flash, edited
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.key_databases import key_databases, with_keys_of
from nospoon.providers.libvirt.owner import Owner
from nospoon.providers.libvirt.pools import our_pool
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.storage_xml import (
    NVRAM,
    earlier_nvram_path,
    nvram_file,
    nvram_path,
    parse_pool,
    render_directory,
)
from nospoon.providers.libvirt.varstore import (
    BadVariables,
    NotBegun,
    entering_setup,
    with_secure_boot,
)
from nospoon.runtime.turns import Turns

log = structlog.get_logger()

AGAIN = (0.1, 0.4, 1.0)
"""Seconds until what could not be read is read again."""
READERS = 4
"""Machines of a host whose keys are read at a time."""


def edits_for(known: Known, boot: BootPlan) -> list[Edit]:
    """What a start by this plan changes of the machine's variables; BIOS machines have none."""
    edits: list[Edit] = []
    if known.firmware is Firmware.UEFI_SECURE and boot.secure_boot is not None:
        edits.append(partial(with_secure_boot, enabled=boot.secure_boot))
    if known.firmware is not Firmware.BIOS and enters_setup(boot):
        edits.append(entering_setup)
    return edits


def enters_setup(boot: BootPlan) -> bool:
    return boot.now[:1] == (BootDevice.SETUP,)


@dataclass(frozen=True, slots=True)
class Place:
    """Of a machine's variables. `pool`: directory of its pool; `file`: their path, which may be
    where an earlier version had them, and `right` where they belong.
    """

    known: Known
    pool: str
    file: str
    right: str


@dataclass(frozen=True, slots=True)
class Nvram:
    """UEFI variables of the machines of one host. `settled`: those of which no file is left in
    another place, or of another firmware.
    """

    hypervisor: Hypervisor
    roster: Roster
    flash: Flash
    adopted: AdoptedVariables
    settled: set[UUID] = field(default_factory=set)
    _reading: Turns = field(default_factory=Turns)
    """BMC clients ask, as often as they like: of each machine its keys are read once at a time."""
    _readers: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, READERS))

    async def edit(self, machine: UUID, edits: list[Edit]) -> None:
        """Change the variables of a machine that is off. Raises `ProviderError`."""
        place = await self._place(machine, "change the UEFI variables")
        if place is None:
            await self.adopted.edit(machine, edits)
            return
        before = await self.flash.read(place.file)
        if before is None:
            before = await self._made(machine, place)
        await self._write(place, before, before, edits)

    async def _write(
        self, place: Place, source: bytes, before: bytes, edits: Sequence[Edit]
    ) -> None:
        where = f"host {self.hypervisor.host}: {place.file}"
        after = await asyncio.to_thread(edited, where, source, edits)
        await self.flash.write(place.file, before, after)

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        """Those of secure boot, running or not; none before the firmware's first start. What cannot
        be read is read again a little later: a firmware that runs may be writing it.
        """
        for pause in AGAIN:
            try:
                return await self._read(machine)
            except (HostUnreachable, Gone):
                raise
            except ProviderError as error:
                log.info("keys are read again", machine=str(machine), why=str(error))
                await asyncio.sleep(pause)
        return await self._read(machine)

    async def _read(self, machine: UUID) -> Sequence[KeyDatabase]:
        async with self._reading.of(str(machine)), self._readers:
            place = await self._place(machine, "read the keys")
            flash = (
                await self.flash.read(place.file)
                if place is not None
                else await self.adopted.read(machine)
            )
            return await asyncio.to_thread(self._databases, machine, flash)

    def _databases(self, machine: UUID, flash: bytes | None) -> Sequence[KeyDatabase]:
        if flash is None:
            return ()
        try:
            return key_databases(flash)
        except NotBegun:
            return ()
        except BadVariables as error:
            raise ProviderError(
                f"host {self.hypervisor.host}: UEFI variables of {machine}: {error}"
            ) from error

    def is_settled(self, machine: UUID) -> bool:
        """Whether a start need not `settle` it."""
        known = self.roster.known(machine)
        adopted = known is not None and known.owner.adopted
        return adopted or machine in self.settled or self.flash.runner is None

    async def settle(self, machine: UUID) -> None:
        """Of a machine that is off: move variables that an earlier version made, with those of
        snapshots, and remove those of firmware that it had before.
        """
        if self.is_settled(machine):
            return
        place = await self.hypervisor.work(
            lambda connect: self._place_if_off(connect, machine),
            f"look at the UEFI variables of {machine}",
        )
        if place is None:
            return
        name, firmware = place.known.owner.name, place.known.firmware
        former = (nvram_file(name, each) for each in Firmware if each is not firmware)
        await self.flash.settle(place.pool, name, former)
        if place.file != place.right:
            await self.hypervisor.work(
                lambda connect: self._redefine(connect, machine, place.right),
                f"move the UEFI variables of {machine}",
            )
        self.settled.add(machine)

    def _place_if_off(self, connect: Connect, machine: UUID) -> Place | None:
        active = self.roster.find(connect, machine).isActive()
        return None if active else self._find(connect, machine)

    def _redefine(self, connect: Connect, machine: UUID, path: str) -> None:
        domain = self.roster.find(connect, machine)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
        root = parsed(domain.XMLDesc(flags))
        nvram = root.find("os/nvram")
        assert nvram is not None, "it has a path"
        nvram.text = path
        connect.defineXMLFlags(written(root), 0)
        self.roster.forget(machine)

    async def remove(self, owner: Owner) -> None:
        """Those of a machine that is gone, with those of its snapshots. libvirt removed what its
        definition named.
        """
        if self.flash.runner is None:
            return

        def directory(connect: Connect) -> str:
            try:
                return directory_of(our_pool(connect, self.hypervisor.host, owner.tag, owner.pool))
            except libvirt.libvirtError as error:
                if error.get_error_code() != NO_STORAGE_POOL:
                    raise
                return ""

        pool = await self.hypervisor.work(directory, f"look at pool {owner.pool}")
        if pool:
            await self.flash.remove(pool, owner.name)

    async def give_back(self, machine: UUID) -> bool:
        """Of an adopted machine; see `AdoptedVariables`."""
        return await self.adopted.give_back(machine)

    async def reset_keys(self, machine: UUID) -> None:
        """Put the databases of the firmware's template back, of a machine that is off.

        All else that its firmware wrote stays. Raises `ProviderError`.
        """
        place = await self._place(machine, "reset the keys")
        if place is None:
            await self.adopted.edit(machine, (), resets=True)
            return
        before = await self.flash.read(place.file)
        if before is None:
            return
        await self.flash.remove_file(place.file)
        template = await self._made(machine, place)
        await self._write(place, before, template, [partial(with_keys_of, template=template)])

    async def _place(self, machine: UUID, doing: str) -> Place | None:
        """None of an adopted one."""
        return await self.hypervisor.ask(
            lambda connect: self._find(connect, machine), f"{doing} of {machine}"
        )

    def _find(self, connect: Connect, machine: UUID) -> Place | None:
        known = self.roster.look(self.roster.find(connect, machine))
        assert known is not None, "find raises Gone for other machines"
        owner = known.owner
        if owner.adopted:
            return None
        pool = directory_of(our_pool(connect, self.hypervisor.host, owner.tag, owner.pool))
        right = nvram_path(pool, owner.name, known.firmware)
        earlier = earlier_nvram_path(pool, owner.name, known.firmware)
        return Place(known, pool, earlier if known.variables == earlier else right, right)

    async def _made(self, machine: UUID, place: Place) -> bytes:
        """From the template, as libvirt does at a start."""
        await self.hypervisor.work(
            lambda connect: start_and_end(self.roster.find(connect, machine)),
            f"make the UEFI variables of {machine}",
        )
        flash = await self.flash.read(place.file)
        if flash is None:
            raise ProviderError(
                f"host {self.hypervisor.host}: libvirt made no {place.file}",
                hint="See `virsh dumpxml`: where does its <nvram> lie?",
            )
        return flash


def directory_of(pool: VirPool) -> str:
    return parse_pool(parsed(pool.XMLDesc(0))).path


def make_directory(pool: VirPool) -> None:
    """For the variables of a pool's machines."""
    try:
        pool.createXML(render_directory(NVRAM), 0)
    except libvirt.libvirtError as error:
        if error.get_error_code() != STORAGE_VOL_EXIST:
            raise


def kept_place(connect: Connect, machine: Machine, pool: str, node: str) -> str:
    """Where a machine that runs has its variables, if an earlier version made them; else ""."""
    earlier, now = earlier_nvram_path(pool, node, machine.firmware), ""
    with ignoring(NO_DOMAIN):
        domain = connect.lookupByUUID(machine.uuid.bytes)
        if domain.isActive():
            now = text_of(parsed(domain.XMLDesc(0)), "os/nvram")
    return earlier if now == earlier else ""
