"""The disks that tests boot say so, and leave the processor to others then."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.model.cluster import Firmware
from nospoon.testing import disks, guests
from nospoon.testing.netboot import Hardware, running

pytestmark = [pytest.mark.boots]

SECONDS = 2


def wanted(process: int) -> float:
    """Seconds for which its threads had a processor, or waited for one: on a busy machine, most of
    them (proc(5), schedstat: in nanoseconds).
    """
    rows = [each.read_text().split() for each in Path(f"/proc/{process}/task").glob("*/schedstat")]
    return sum(int(ran) + int(waited) for ran, waited, _ in rows) / 1e9


@pytest.mark.parametrize("firmware", [Firmware.BIOS, Firmware.UEFI])
@pytest.mark.parametrize("says", [guests.BOOTED, disks.GREETING], ids=bytes.decode)
async def test_a_guest_that_has_said_that_it_booted_takes_no_processor(
    firmware: Firmware, says: bytes, tmp_path: Path
) -> None:
    disk = tmp_path / "disk.raw"
    if says == disks.GREETING:
        (disks.bios_disk if firmware is Firmware.BIOS else disks.uefi_disk)(disk)
    elif firmware is Firmware.BIOS:
        disk.write_bytes(guests.speaking_disk())
    else:
        disk.write_bytes(await guests.speaking_uefi_disk(tmp_path))
    drive = ("-drive", f"file={disk},format=raw,if=virtio")
    async with running(Hardware(firmware, uuid4(), tmp_path, more=drive)) as guest:
        await guest.until(says)
        before = wanted(guest.process.pid)
        await asyncio.sleep(SECONDS)
        assert wanted(guest.process.pid) - before < SECONDS / 2
