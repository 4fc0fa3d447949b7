"""Once is once: real machines follow an order for one boot, and the persistent one ever after.

Each firmware says on the serial port what it tries first; nobody answers on the network.
"""

from __future__ import annotations

from pathlib import Path

import libvirt
import pytest

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, PowerCommand
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.boots import write_intent
from nospoon.testing import guests
from nospoon.testing.racks import Bench, Rack, events_of, make, until

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

DISK_FIRST = (BootDevice.DISK, BootDevice.NETWORK)
NETWORK_FIRST = (BootDevice.NETWORK, BootDevice.DISK)
ONCE = BootPlan(now=NETWORK_FIRST, after=DISK_FIRST)
ALWAYS = BootPlan(now=NETWORK_FIRST, after=NETWORK_FIRST)

BIOS_NETWORK, BIOS_DISK = b"Booting from ROM", b"DISK-BOOTED"
UEFI_NETWORK, UEFI_DISK = b"Configuring (net0", b"DISK-BOOTED"
SECURE_NETWORK, SECURE_DISK = b">>Start PXE over IPv4", b"Access Denied"


def reset_as_the_guest_would(connection: LibvirtConnection, rack: Rack) -> None:
    """A reset that the connection did not ask for and is not told of beforehand."""
    connect = libvirt.open(connection.host.where)
    connect.lookupByUUID(rack.uuid.bytes).reset(0)


async def test_a_stopped_machine_is_started_without_being_destroyed_first(
    rack: Rack, connection: LibvirtConnection
) -> None:
    """Somebody may have started it since it was looked at."""
    machines = connection.machine_driver
    power = machines.boot_order

    async def refuse(machine: object) -> None:
        raise AssertionError(f"{machine} is destroyed")

    destroy = power._stop
    power._stop = refuse  # type: ignore[method-assign]
    await machines.power(rack.uuid, PowerCommand.ON, ALWAYS)
    connect = libvirt.open(connection.host.where)
    assert connect.lookupByUUID(rack.uuid.bytes).isActive()
    power._stop = destroy  # type: ignore[method-assign]


async def test_bios_boots_once_from_the_network_and_then_from_disk(
    rack: Rack, bench: Bench, connection: LibvirtConnection
) -> None:
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    both = (BIOS_NETWORK, BIOS_DISK)
    async with events_of(bench, rack.uuid) as queue:
        await machines.power(rack.uuid, PowerCommand.ON, ONCE)
        assert await listener.hears(*both) == BIOS_NETWORK
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == BIOS_DISK
        await until(queue, MachineChange.RESET, 60)

        await machines.power(rack.uuid, PowerCommand.RESET, ONCE)
        assert await listener.hears(*both) == BIOS_NETWORK
        await until(queue, MachineChange.RESET, 60)
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == BIOS_DISK
        await until(queue, MachineChange.RESET, 60)

        await machines.boot_order.set_boot(rack.uuid, ONCE)
        console = await machines.console(rack.uuid)
        await console.write(b"r")
        assert await listener.hears(*both) == BIOS_NETWORK
        await until(queue, MachineChange.RESET, 60)
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == BIOS_DISK

        await machines.power(rack.uuid, PowerCommand.CYCLE, ALWAYS)
        assert await listener.hears(*both) == BIOS_NETWORK
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == BIOS_NETWORK


async def test_uefi_boots_once_from_the_network_and_then_from_disk(
    bench: Bench, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> None:
    disk = await guests.speaking_uefi_disk(tmp_path)
    rack = guests.guest_rack(bench, disk, images, tmp_path, firmware=Firmware.UEFI)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    both = (UEFI_NETWORK, UEFI_DISK)
    async with events_of(bench, rack.uuid) as queue:
        await machines.power(rack.uuid, PowerCommand.ON, ONCE)
        assert await listener.hears(*both) == UEFI_NETWORK
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == UEFI_DISK
        await until(queue, MachineChange.RESET, 60)
        await machines.power(rack.uuid, PowerCommand.RESET, ONCE)
        assert await listener.hears(*both) == UEFI_NETWORK
        reset_as_the_guest_would(connection, rack)
        assert await listener.hears(*both) == UEFI_DISK


async def test_secure_boot_refuses_an_unsigned_loader_and_boots_once_from_the_network(
    bench: Bench, connection: LibvirtConnection, images: dict[str, str], tmp_path: Path
) -> None:
    disk = await guests.speaking_uefi_disk(tmp_path)
    rack = guests.guest_rack(bench, disk, images, tmp_path, firmware=Firmware.UEFI_SECURE)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    listener = guests.Listener(machines.console_record(rack.uuid))
    every = (SECURE_NETWORK, SECURE_DISK, UEFI_NETWORK, UEFI_DISK)
    await machines.power(rack.uuid, PowerCommand.ON, ONCE)
    assert await listener.hears(*every) == SECURE_NETWORK
    reset_as_the_guest_would(connection, rack)
    assert await listener.hears(*every) == SECURE_DISK


async def test_a_start_that_a_dead_daemon_left_half_done_is_finished(
    rack: Rack, bench: Bench, connection: LibvirtConnection
) -> None:
    connect = libvirt.open(connection.host.where)
    domain = connect.lookupByUUID(rack.uuid.bytes)
    write_intent(domain, ONCE)
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    listener = guests.Listener(connection.machine_driver.console_record(rack.uuid))
    async with events_of(bench, rack.uuid) as queue:
        event = await until(queue, MachineChange.STARTED, 60)
        assert event.told == BootPlan(ONCE.now, ONCE.after)
        assert await listener.hears(BIOS_NETWORK, BIOS_DISK) == BIOS_NETWORK
    reset_as_the_guest_would(connection, rack)
    assert await listener.hears(BIOS_NETWORK, BIOS_DISK) == BIOS_DISK


async def test_a_machine_that_somebody_paused_is_left_paused(
    rack: Rack, bench: Bench, connection: LibvirtConnection
) -> None:
    connect = libvirt.open(connection.host.where)
    domain = connect.lookupByUUID(rack.uuid.bytes)
    domain.create()
    listener = guests.Listener(connection.machine_driver.console_record(rack.uuid))
    await listener.hears(BIOS_DISK)
    domain.suspend()
    async with events_of(bench, rack.uuid) as queue:
        await until(queue, MachineChange.OBSERVED, 60)
    async with events_of(bench, rack.uuid) as queue:  # by then, what the first look began is done
        await until(queue, MachineChange.OBSERVED, 60)
        assert domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, ONCE)
        assert domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
