"""The file of a machine's UEFI variables, read and written over libvirt while the machine is off.

libvirt makes it from the firmware's template at the first start; where it is not there yet, a start
that is paused and ended at once makes it.
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
from nospoon.model.secure_boot import KeyDatabase
from nospoon.providers.libvirt.adopted_variables import AdoptedVariables
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.flash import Edit, download, edited, upload
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor, ignoring
from nospoon.providers.libvirt.key_databases import key_databases, with_keys_of
from nospoon.providers.libvirt.monitor import Domain
from nospoon.providers.libvirt.pools import VirPool, VirVolume, our_pool, refreshed
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.storage_xml import nvram_file
from nospoon.providers.libvirt.varstore import (
    BadVariables,
    NotBegun,
    entering_setup,
    with_secure_boot,
)
from nospoon.providers.libvirt.volumes import file_named

log = structlog.get_logger()

AGAIN = (0.1, 0.4, 1.0)
"""Seconds until what could not be read is read again."""


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
class Nvram:
    """UEFI variables of the machines of one host."""

    hypervisor: Hypervisor
    roster: Roster
    adopted: AdoptedVariables
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """BMC clients ask, as often as they like: no more than one of the threads works for them."""

    async def edit(self, machine: UUID, edits: list[Edit]) -> None:
        """Change the variables of a machine that is off. Raises `ProviderError`."""
        await self.hypervisor.work(
            lambda connect: self._edit(connect, machine, edits),
            f"change the UEFI variables of {machine}",
        )

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
        async with self._reading:
            return await self.hypervisor.ask(
                lambda connect: self._databases(connect, machine), f"read the keys of {machine}"
            )

    def _databases(self, connect: Connect, machine: UUID) -> Sequence[KeyDatabase]:
        flash = self._flash(connect, machine)
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

    def _flash(self, connect: Connect, machine: UUID) -> bytes | None:
        domain = self.roster.find(connect, machine)
        if self._is_adopted(domain):
            return self.adopted.read(connect, domain)
        _, pool, file = self._place(connect, machine)
        volume = file_named(pool, file)
        return download(connect, volume) if volume is not None else None

    def _is_adopted(self, domain: Domain) -> bool:
        known = self.roster.look(domain)
        return known is not None and known.owner.adopted

    def _edit(self, connect: Connect, machine: UUID, edits: list[Edit]) -> None:
        found = self.roster.find(connect, machine)
        if self._is_adopted(found):
            self.adopted.edit(connect, found, edits)
            return
        domain, pool, file = self._place(connect, machine)
        volume = file_named(pool, file) or self._make(domain, pool, file)
        before = download(connect, volume)
        upload(connect, volume, before, edited(self._where(volume), before, edits))

    def give_back(self, connect: Connect, machine: UUID) -> bool:
        """Of an adopted machine; see `AdoptedVariables`."""
        return self.adopted.give_back(connect, self.roster.find(connect, machine))

    async def leave_former(self, machine: UUID) -> None:
        """Remove those of firmware that a machine had while it ran, now that it is off."""
        await self.hypervisor.work(
            lambda connect: self.drop_former(connect, machine),
            f"remove the former UEFI variables of {machine}",
        )

    def drop_former(self, connect: Connect, machine: UUID) -> None:
        """The same, in the caller's job."""
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        if known is None or domain.isActive():
            return
        owner = known.owner
        if owner.adopted:
            return
        with ignoring(NO_STORAGE_POOL):
            pool = our_pool(connect, self.hypervisor.host, owner.tag, owner.pool)
            remove_variables(pool, owner.name, besides=known.firmware)

    async def reset_keys(self, machine: UUID) -> None:
        """Put the databases of the firmware's template back, of a machine that is off.

        All else that its firmware wrote stays. Raises `ProviderError`.
        """
        await self.hypervisor.work(
            lambda connect: self._reset_keys(connect, machine), f"reset the keys of {machine}"
        )

    def _reset_keys(self, connect: Connect, machine: UUID) -> None:
        found = self.roster.find(connect, machine)
        if self._is_adopted(found):
            self.adopted.edit(connect, found, (), resets=True)
            return
        domain, pool, file = self._place(connect, machine)
        volume = file_named(pool, file)
        if volume is None:
            return
        before = download(connect, volume)
        volume.delete(0)
        made = self._make(domain, pool, file)
        template = download(connect, made)
        edits = [partial(with_keys_of, template=template)]
        after = edited(self._where(made), before, edits)
        upload(connect, made, template, after)

    def _place(self, connect: Connect, machine: UUID) -> tuple[Domain, VirPool, str]:
        """The machine, and the pool and name of its file."""
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        owner = known.owner
        pool = our_pool(connect, self.hypervisor.host, owner.tag, owner.pool)
        return domain, refreshed(pool), nvram_file(owner.name, known.firmware)

    def _where(self, volume: VirVolume) -> str:
        return f"host {self.hypervisor.host}: {volume.path()}"

    def _make(self, domain: Domain, pool: VirPool, file: str) -> VirVolume:
        """From the template, as libvirt does at a start."""
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        domain.destroy()
        return self._made(pool, file)

    def _made(self, pool: VirPool, file: str) -> VirVolume:
        volume = file_named(refreshed(pool), file)
        if volume is None:
            raise ProviderError(
                f"host {self.hypervisor.host}: libvirt made no {file} in pool {pool.name()}",
                hint="See `virsh dumpxml`: where does its <nvram> lie?",
            )
        return volume


def remove_variables(pool: VirPool, node: str, *, besides: Firmware | None = None) -> None:
    """Of a machine that is off, those of every firmware but this."""
    for firmware in set(Firmware) - {besides}:
        volume = file_named(pool, nvram_file(node, firmware))
        if volume is not None:
            volume.delete(0)
