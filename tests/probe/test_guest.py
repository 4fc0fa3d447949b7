"""The probe on real (emulated) hardware: what it finds is what the machine has."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.probe.build import Probe, command_line
from nospoon.probe.compare import compare
from nospoon.testing.netboot import Guest, Hardware, running

pytestmark = [pytest.mark.boots, pytest.mark.timeout(120)]

MIB = 1 << 20
DISKS = (
    ("virtio", 64 * MIB, "VIRTIO-1"),
    ("sata", 32 * MIB, "SATA-1"),
    ("scsi", 48 * MIB, "SCSI-1"),
)
NICS = (
    ("virtio", "virtio-net-pci", "02:00:00:00:00:01"),
    ("e1000", "e1000", "02:00:00:00:00:02"),
    ("e1000e", "e1000e", "02:00:00:00:00:03"),
)
DEVICES = {
    "virtio": "virtio-blk-pci",
    "sata": "ide-hd,rotation_rate=7200",
    "scsi": "scsi-hd,rotation_rate=1",
}
RATES = {"virtio": 0, "sata": 7200, "scsi": 1}


def machine(memory: int) -> Machine:
    return Machine(
        uuid=uuid4(),
        cpus=2,
        memory=memory * MIB,
        arch=Arch.X86_64,
        firmware=Firmware.BIOS,
        tpm=False,
        disks=tuple(
            MachineDisk(serial, bus, serial, rotation_rate=RATES[bus]) for bus, _, serial in DISKS
        ),
        nics=tuple(MachineNic(mac, "", model) for model, _, mac in NICS),
        boot_order=(BootDevice.NETWORK,),
        boot=BootMethod.NATIVE,
    )


def kernel(probe: Probe, *, after: str) -> list[str]:
    line = command_line(Arch.X86_64, after=after)
    return ["-kernel", str(probe.kernel), "-initrd", str(probe.initrd), "-append", line]


def disks(directory: Path) -> list[str]:
    words = ["-device", "virtio-scsi-pci"]
    for bus, size, serial in DISKS:
        path = directory / serial
        path.touch()
        with path.open("r+b") as file:
            file.truncate(size)

        words += ["-drive", f"file={path},format=raw,if=none,id={serial}"]
        words += ["-device", f"{DEVICES[bus]},drive={serial},serial={serial}"]
    return words


def nics() -> list[str]:
    return [
        word
        for number, (_, device, mac) in enumerate(NICS)
        for word in (
            *("-netdev", f"user,id=n{number},restrict=on"),
            *("-device", f"{device},netdev=n{number},mac={mac},romfile="),
        )
    ]


async def test_a_machine_with_every_bus_and_nic_is_found_as_declared(
    probe: Probe, tmp_path: Path
) -> None:
    wanted = machine(256)
    serial = ["-smbios", f"type=1,serial={wanted.serial_number}"]
    more = [*kernel(probe, after="poweroff"), *serial, *disks(tmp_path), *nics()]
    hardware = Hardware(Firmware.BIOS, wanted.uuid, tmp_path, 256, more, cpus=wanted.cpus)
    async with running(hardware) as guest:
        record = await guest.record()
        await guest.until(b"Power down")
    sizes = {serial: size for _, size, serial in DISKS}
    assert [found for found in compare(wanted, sizes, record) if not found.ok] == []
    bigger = replace(wanted, memory=wanted.memory * 2, cpus=4)
    wrong = [found.field for found in compare(bigger, sizes, record) if not found.ok]
    assert wrong == ["cpus", "memory"]
    turned = replace(
        wanted, disks=tuple(replace(d, rotation_rate=7201 - d.rotation_rate) for d in wanted.disks)
    )
    wrong = [found.field for found in compare(turned, sizes, record) if not found.ok]
    assert wrong == ["disk 1", "disk 2"], "Linux takes virtio for rotational"


async def test_a_small_machine_is_enough_and_the_power_button_ends_it(
    probe: Probe, tmp_path: Path
) -> None:
    monitor = tmp_path / "monitor"
    more = [*kernel(probe, after="shell"), "-qmp", f"unix:{monitor},server=on,wait=off"]
    async with running(Hardware(Firmware.BIOS, uuid4(), tmp_path, 128, more)) as guest:
        await guest.until(b"nospoon-probe# ")
        await press_power(monitor)
        await guest.until(b"nospoon-probe: power button")
        assert await ended(guest) == 0


async def press_power(monitor: Path) -> None:
    """By QEMU's machine protocol: a greeting, then a reply to each command."""
    reader, writer = await asyncio.open_unix_connection(monitor)
    for command in ("qmp_capabilities", "system_powerdown"):
        await reader.readline()
        writer.write(json.dumps({"execute": command}).encode())
    while b"return" not in (await reader.readline()):
        continue  # events come in between
    writer.close()
    await writer.wait_closed()


async def ended(guest: Guest) -> int:
    async with asyncio.timeout(60):
        await guest.process.communicate()
    assert guest.process.returncode is not None
    return guest.process.returncode
