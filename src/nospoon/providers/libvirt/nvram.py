"""The file of a machine's UEFI variables, read and written over libvirt while the machine is off.

libvirt makes it from the firmware's template at the first start; where it is not there yet, a start
that is paused and ended at once makes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import libvirt

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor
from nospoon.providers.libvirt.pools import VirPool, our_pool, refreshed
from nospoon.providers.libvirt.roster import Known, Roster
from nospoon.providers.libvirt.storage_xml import nvram_file
from nospoon.providers.libvirt.varstore import (
    LARGEST,
    BadVariables,
    entering_setup,
    with_secure_boot,
)
from nospoon.providers.libvirt.volumes import VirVolume, file_named

Edit = Callable[[bytes], bytes]
CHUNK = 1 << 18


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

    async def edit(self, machine: UUID, edits: list[Edit]) -> None:
        """Change the variables of a machine that is off. Raises `ProviderError`."""
        await self.hypervisor.work(
            lambda connect: self._edit(connect, machine, edits),
            f"change the UEFI variables of {machine}",
        )

    def _edit(self, connect: Connect, machine: UUID, edits: list[Edit]) -> None:
        domain = self.roster.find(connect, machine)
        known = self.roster.look(domain)
        assert known is not None, "find raises Gone for what is not ours"
        owner, host = known.owner, self.hypervisor.host
        pool = our_pool(connect, host, owner.tag, owner.pool)
        file = nvram_file(owner.name, known.firmware)
        volume = file_named(refreshed(pool), file)
        if volume is None:
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
            domain.destroy()
            volume = self._made(pool, file)
        before = after = _download(connect, volume)
        try:
            for each in edits:
                after = each(after)
        except BadVariables as error:
            raise ProviderError(
                f"host {host}: {volume.path()}: {error}",
                hint="Start the machine once without setup: the firmware then makes what it lacks.",
            ) from error
        if after != before:
            _upload(connect, volume, after)

    def _made(self, pool: VirPool, file: str) -> VirVolume:
        volume = file_named(refreshed(pool), file)
        if volume is None:
            raise ProviderError(
                f"host {self.hypervisor.host}: libvirt made no {file} in pool {pool.name()}",
                hint="See `virsh dumpxml`: where does its <nvram> lie?",
            )
        return volume


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
