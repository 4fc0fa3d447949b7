"""Machines of every kind that a file may ask for start, as libvirt and their firmware see them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import libvirt
import libvirt_qemu
import pytest

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.testing import guests
from nospoon.testing.racks import Bench, Rack, found, make, remove_all

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]
ORDER = (BootDevice.NETWORK, BootDevice.DISK)
PLAN = BootPlan(ORDER, ORDER)


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
async def rack(
    connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> AsyncIterator[tuple[Bench, Rack]]:
    bench = Bench(
        connection, connection.host, "kit", str(tmp_path), Image("", "", "", 0), nothing, nothing
    )
    rack = guests.guest_rack(
        bench, guests.speaking_disk(), images, tmp_path, firmware=Firmware.BIOS
    )
    await make(bench, *rack.all[:-1])
    yield bench, rack
    await remove_all(bench)


async def started(bench: Bench, rack: Rack, shape: Machine) -> ET.Element:
    """Define and start it; the live XML."""
    machine = Resource(rack.machine.key, shape)
    await make(bench, machine)
    assert (await found(bench, machine)).shape == shape
    driver = bench.connection.machine_driver
    await driver.power(shape.uuid, PowerCommand.ON, PLAN)
    assert [event.power for event in await driver.machines()] == [PowerState.ON]
    assert isinstance(bench.connection, LibvirtConnection)
    domain = libvirt.open(bench.connection.host.where).lookupByUUID(shape.uuid.bytes)
    return ET.fromstring(domain.XMLDesc(0))


async def test_a_machine_has_every_bus_and_nic_model_and_its_serial_numbers(
    rack: tuple[Bench, Rack],
) -> None:
    bench, parts = rack
    assert isinstance(parts.machine.shape, Machine)
    bridge = parts.machine.shape.nics[0].network
    shape = replace(
        parts.machine.shape,
        disks=(
            MachineDisk("m0-1", "scsi", "SCSI-1", cache="unsafe", rotation_rate=1),
            MachineDisk("m0-0", "sata", "SATA-0", discard="ignore", rotation_rate=7200),
        ),
        nics=(
            MachineNic("02:00:00:00:88:01", bridge, "virtio"),
            MachineNic("02:00:00:00:88:02", bridge, "e1000"),
            MachineNic("02:00:00:00:88:03", bridge, "e1000e"),
        ),
        boot_order=ORDER,
    )
    live = await started(bench, parts, shape)
    system = {each.get("name"): each.text for each in live.iterfind("sysinfo/system/entry")}
    assert system["uuid"] == str(shape.uuid)
    assert system["serial"] == shape.serial_number
    serials = [each.text for each in live.iterfind("devices/disk/serial")]
    assert serials == ["SCSI-1", "SATA-0"]
    assert {("scsi-hd", 1), ("ide-hd", 7200)} <= rotation_rates(bench, shape)


def rotation_rates(bench: Bench, shape: Machine) -> set[tuple[str, int]]:
    """Device and rotation rate of each disk, as QEMU itself has them."""
    assert isinstance(bench.connection, LibvirtConnection)
    domain = libvirt.open(bench.connection.host.where).lookupByUUID(shape.uuid.bytes)
    human = libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
    parts = re.split(r"\bdev: ", libvirt_qemu.qemuMonitorCommand(domain, "info qtree", human))
    rates = ((part.split(",")[0], re.search(r"rotation_rate = (\d+)", part)) for part in parts)
    return {(device, int(rate[1])) for device, rate in rates if rate is not None}


async def test_an_arm_machine_starts_its_firmware(rack: tuple[Bench, Rack]) -> None:
    bench, parts = rack
    assert isinstance(parts.machine.shape, Machine)
    shape = replace(
        parts.machine.shape, arch=Arch.AARCH64, firmware=Firmware.UEFI, boot_order=ORDER
    )
    await started(bench, parts, shape)
    listener = guests.Listener(bench.connection.machine_driver.console_record(shape.uuid))
    assert await listener.hears(b"UEFI firmware", b"BdsDxe", b"PXE")
