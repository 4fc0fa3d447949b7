"""UEFI variables that a start changes: boot target `setup` and secure boot, on real firmware."""

from __future__ import annotations

from pathlib import Path

import libvirt
import pytest

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.key_databases import IMAGE_SECURITY
from nospoon.providers.libvirt.varstore import (
    GLOBAL,
    Variable,
    variables,
    with_variable,
    without_variable,
)
from nospoon.testing import guests
from nospoon.testing.racks import Bench, Rack, make

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

ORDER = (BootDevice.DISK, BootDevice.NETWORK)
SETUP_ONCE = BootPlan((BootDevice.SETUP, *ORDER), ORDER)
PLAIN = BootPlan(ORDER, ORDER)
SETUP_SCREEN, DISK, REFUSED = b"Device Manager", b"DISK-BOOTED", b"Access Denied"


async def test_setup_is_entered_once_and_then_the_disk_boots(
    bench: Bench, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> None:
    disk = await guests.speaking_uefi_disk(tmp_path)
    rack = guests.guest_rack(bench, disk, images, tmp_path, firmware=Firmware.UEFI)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    both = (SETUP_SCREEN, DISK)
    await machines.power(rack.uuid, PowerCommand.ON, SETUP_ONCE)
    assert await listener.hears(*both) == SETUP_SCREEN
    libvirt.open(connection.host.where).lookupByUUID(rack.uuid.bytes).reset(0)
    assert await listener.hears(*both) == DISK

    await machines.power(rack.uuid, PowerCommand.RESET, SETUP_ONCE)
    assert await listener.hears(*both) == SETUP_SCREEN
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAIN)
    assert await listener.hears(*both) == DISK


async def test_secure_boot_that_is_off_runs_an_unsigned_loader_until_it_is_on_again(
    bench: Bench, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> None:
    disk = await guests.speaking_uefi_disk(tmp_path)
    rack = guests.guest_rack(bench, disk, images, tmp_path, firmware=Firmware.UEFI_SECURE)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    both = (REFUSED, DISK)
    await machines.power(rack.uuid, PowerCommand.ON, BootPlan(ORDER, ORDER, secure_boot=False))
    assert await listener.hears(*both) == DISK
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAIN)
    assert await listener.hears(*both) == DISK
    await machines.power(rack.uuid, PowerCommand.CYCLE, BootPlan(ORDER, ORDER, secure_boot=True))
    assert await listener.hears(*both) == REFUSED


async def test_keys_are_those_of_the_firmware_and_reset_when_a_start_says_so(
    bench: Bench, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> None:
    disk = guests.speaking_disk()
    rack = guests.guest_rack(bench, disk, images, tmp_path, firmware=Firmware.UEFI_SECURE)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    assert list(await machines.firmware_keys.key_databases(rack.uuid)) == [], "it never started"
    await machines.power(rack.uuid, PowerCommand.ON, PLAIN)
    made = await machines.firmware_keys.key_databases(rack.uuid)
    assert [each.name for each in made if each.signatures] == ["PK", "KEK", "db", "dbx"]
    await machines.power(rack.uuid, PowerCommand.OFF, PLAIN)

    (file,) = tmp_path.rglob("*.nvram")
    flash = without_variable(file.read_bytes(), "dbx", IMAGE_SECURITY)
    file.write_bytes(with_variable(flash, Variable("Ours", GLOBAL, b"stays")))
    assert (await machines.firmware_keys.key_databases(rack.uuid))[3].signatures == ()
    await machines.power(rack.uuid, PowerCommand.ON, BootPlan(ORDER, ORDER, reset_keys=True))
    assert await machines.firmware_keys.key_databases(rack.uuid) == made
    assert b"stays" in [each.data for each in variables(file.read_bytes())]


async def test_a_bios_machine_has_no_setup_and_boots_what_comes_next(
    rack: Rack, connection: LibvirtConnection
) -> None:
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    await machines.power(rack.uuid, PowerCommand.ON, SETUP_ONCE)
    assert await listener.hears(DISK) == DISK
