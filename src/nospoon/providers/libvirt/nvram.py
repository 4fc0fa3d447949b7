"""The file of a machine's UEFI variables, read and written over libvirt while the machine is off.

libvirt makes it from the firmware's template at the first start; where it is not there yet, a start
that is paused and ended at once makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import libvirt

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.secure_boot import KeyDatabase
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor, ignoring
from nospoon.providers.libvirt.key_databases import key_databases, with_keys_of
from nospoon.providers.libvirt.monitor import Domain
from nospoon.providers.libvirt.pools import VirPool, VirVolume, our_pool, refreshed
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.storage_xml import nvram_file
from nospoon.providers.libvirt.varstore import (
    LARGEST,
    BadVariables,
    NotBegun,
    entering_setup,
    with_secure_boot,
)
from nospoon.providers.libvirt.volumes import file_named

Edit = Callable[[bytes], bytes]
CHUNK = 1 << 18


def edits_for(known: Known, boot: BootPlan) -> list[Edit]:
    """What a start by this plan changes of the machine's variables; BIOS machines have none, and
    those of a machine of somebody else's are its owner's.
    """
    edits: list[Edit] = []
    if known.owner.adopted:
        return edits
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

    async def edit(self, machine: UUID, edits: list[Edit]) -> None:
        """Change the variables of a machine that is off. Raises `ProviderError`."""
        await self.hypervisor.work(
            lambda connect: self._edit(connect, machine, edits),
            f"change the UEFI variables of {machine}",
        )

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        """Those of secure boot, running or not; none before the firmware's first start."""
        return await self.hypervisor.ask(
            lambda connect: self._databases(connect, machine), f"read the keys of {machine}"
        )

    def _databases(self, connect: Connect, machine: UUID) -> Sequence[KeyDatabase]:
        known = self.roster.look(self.roster.find(connect, machine))
        if known is not None and known.owner.adopted:
            return ()  # they lie where its owner has them
        _, pool, file = self._place(connect, machine)
        volume = file_named(pool, file)
        if volume is None:
            return ()
        try:
            return key_databases(_download(connect, volume))
        except NotBegun:
            return ()
        except BadVariables as error:
            raise ProviderError(f"host {self.hypervisor.host}: {volume.path()}: {error}") from error

    def _edit(self, connect: Connect, machine: UUID, edits: list[Edit]) -> None:
        domain, pool, file = self._place(connect, machine)
        volume = file_named(pool, file) or self._make(domain, pool, file)
        before = _download(connect, volume)
        after = self._edited(volume, before, edits)
        if after != before:
            _upload(connect, volume, after)

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
        domain, pool, file = self._place(connect, machine)
        volume = file_named(pool, file)
        if volume is None:
            return
        before = _download(connect, volume)
        volume.delete(0)
        made = self._make(domain, pool, file)
        template = _download(connect, made)
        _upload(
            connect, made, self._edited(made, before, [partial(with_keys_of, template=template)])
        )

    def _place(self, connect: Connect, machine: UUID) -> tuple[Domain, VirPool, str]:
        """The machine, and the pool and name of its file."""
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for other machines"
        owner = known.owner
        pool = our_pool(connect, self.hypervisor.host, owner.tag, owner.pool)
        return domain, refreshed(pool), nvram_file(owner.name, known.firmware)

    def _edited(self, volume: VirVolume, flash: bytes, edits: list[Edit]) -> bytes:
        try:
            for each in edits:
                flash = each(flash)
        except BadVariables as error:
            raise ProviderError(
                f"host {self.hypervisor.host}: {volume.path()}: {error}",
                hint="Start the machine once without setup: the firmware then makes what it lacks.",
            ) from error
        return flash

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


def _download(connect: Connect, volume: VirVolume) -> bytes:
    """As much of the file as may hold variables."""
    stream = connect.newStream(0)
    volume.download(stream, 0, min(volume.info()[1], LARGEST), 0)
    data = bytearray()
    try:
        while chunk := stream.recv(CHUNK):
            data += chunk
        stream.finish()
    except libvirt.libvirtError:
        stream.abort()
        raise
    return bytes(data)


def _upload(connect: Connect, volume: VirVolume, data: bytes) -> None:
    """Over the beginning of the file; the rest of it stays."""
    stream = connect.newStream(0)
    volume.upload(stream, 0, len(data), 0)
    view = memoryview(data)
    try:
        while view:
            view = view[stream.send(bytes(view[:CHUNK])) :]
        stream.finish()
    except libvirt.libvirtError:
        stream.abort()
        raise
