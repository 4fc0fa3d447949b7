"""Virtual media in real CD drives: inserted, booted, kept, shared and ejected."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.providers.base import Medium
from nospoon.providers.libvirt import images as sending
from nospoon.providers.libvirt.connection import LibvirtConnection
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.media import _drop_unused
from nospoon.providers.libvirt.storage_xml import parse_pool
from nospoon.testing import guests
from nospoon.testing.racks import Bench, Rack, found, make

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

SILENT = guests.boot_sector(bytes.fromhex("FA F4 EBFD"))
DISK_ALWAYS = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))
CDROM_ONCE = BootPlan((BootDevice.CDROM, BootDevice.DISK), (BootDevice.DISK,))


def medium(iso: Path) -> Medium:
    return Medium(str(iso), hashlib.sha256(iso.read_bytes()).hexdigest())


def files_in_pool(connection: LibvirtConnection, rack: Rack) -> list[str]:
    connect = libvirt.open(connection.host.where)
    pool = connect.storagePoolLookupByName(rack.pool.key.name)
    pool.refresh(0)
    return sorted(v.name() for v in pool.listAllVolumes(0) if v.name().startswith("media-"))


def drive_of(connection: LibvirtConnection, rack: Rack, *, live: bool) -> str:
    domain = libvirt.open(connection.host.where).lookupByUUID(rack.uuid.bytes)
    text: str = domain.XMLDesc(0 if live else libvirt.VIR_DOMAIN_XML_INACTIVE)
    return text


@pytest.fixture
def silent_rack(bench: Bench, images: dict[str, str], tmp_path: Path) -> Callable[..., Rack]:
    """A machine whose disk says nothing: what is heard comes from elsewhere."""

    def made(firmware: Firmware = Firmware.BIOS) -> Rack:
        return guests.guest_rack(bench, SILENT, images, tmp_path, firmware=firmware)

    return made


@pytest.mark.parametrize("firmware", [Firmware.BIOS, Firmware.UEFI])
async def test_a_machine_boots_from_media_that_were_inserted_while_it_was_off(
    bench: Bench,
    connection: LibvirtConnection,
    silent_rack: Callable[..., Rack],
    tmp_path: Path,
    firmware: Firmware,
) -> None:
    rack = silent_rack(firmware)
    await make(bench, *rack.all)
    machines = connection.machine_driver
    await machines.drives.insert(
        rack.uuid, medium(await guests.speaking_cd(tmp_path, firmware=firmware))
    )
    listener = guests.Listener(machines.console_record(rack.uuid))
    await machines.power(rack.uuid, PowerCommand.ON, CDROM_ONCE)
    assert await listener.hears(guests.BOOTED) == guests.BOOTED


async def test_media_inserted_into_a_running_machine_boot_at_its_next_reset_and_stay_over_changes(
    bench: Bench,
    connection: LibvirtConnection,
    silent_rack: Callable[..., Rack],
    tmp_path: Path,
) -> None:
    rack = silent_rack()
    await make(bench, *rack.all)
    machines, disc = connection.machine_driver, medium(await guests.speaking_cd(tmp_path))
    listener = guests.Listener(machines.console_record(rack.uuid))
    await machines.power(rack.uuid, PowerCommand.ON, DISK_ALWAYS)
    await listener.hears(
        b"Booting from Hard Disk"
    )  # a reset at once may meet a BIOS that is half there
    await machines.drives.insert(rack.uuid, disc)
    await machines.power(rack.uuid, PowerCommand.RESET, CDROM_ONCE)
    assert await listener.hears(guests.BOOTED) == guests.BOOTED

    observed = await found(bench, rack.machine)
    assert (observed.shape, observed.live) == (rack.machine.shape, None)
    assert isinstance(rack.machine.shape, Machine)
    more = Resource(rack.machine.key, replace(rack.machine.shape, cpus=2))
    await connection.drivers[Kind.MACHINE].change(observed, more, bench.tag)
    assert disc.sha256 in drive_of(connection, rack, live=False)

    await machines.drives.eject(rack.uuid)
    assert disc.sha256 not in drive_of(connection, rack, live=False)
    assert disc.sha256 not in drive_of(connection, rack, live=True)
    assert files_in_pool(connection, rack) == []
    await machines.drives.eject(rack.uuid)


async def test_other_media_take_the_place_of_those_that_are_in(
    bench: Bench,
    connection: LibvirtConnection,
    silent_rack: Callable[..., Rack],
    tmp_path: Path,
) -> None:
    rack = silent_rack()
    await make(bench, *rack.all)
    (tmp_path / "one").write_bytes(b"1" * 4096)
    (tmp_path / "two").write_bytes(b"2" * 4096)
    one, two = medium(tmp_path / "one"), medium(tmp_path / "two")
    await connection.machine_driver.drives.insert(rack.uuid, one)
    await connection.machine_driver.drives.insert(rack.uuid, one)
    await connection.machine_driver.drives.insert(rack.uuid, two)
    assert files_in_pool(connection, rack) == [f"media-{two.sha256}.iso"]
    assert two.sha256 in drive_of(connection, rack, live=False)


async def test_half_a_medium_that_a_killed_daemon_left_is_sent_again(
    bench: Bench,
    connection: LibvirtConnection,
    silent_rack: Callable[..., Rack],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It had its whole size from the beginning, and was put in as it was."""
    rack = silent_rack()
    await make(bench, *rack.all)
    (tmp_path / "one").write_bytes(b"1" * (1 << 20))
    one, name = medium(tmp_path / "one"), f"media-{medium(tmp_path / 'one').sha256}.iso"
    connect = libvirt.open(connection.host.where)
    pool = connect.storagePoolLookupByName(rack.pool.key.name)

    class Killed(BaseException):
        """The daemon ends here."""

    def half(connect: libvirt.virConnect, volume: libvirt.virStorageVol, path: str) -> str:
        stream = connect.newStream(0)
        volume.upload(stream, 0, 1 << 20, 0)
        stream.send(Path(path).read_bytes()[: 1 << 18])
        stream.finish()
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(sending, "_upload", half)
        with pytest.raises(Killed):
            sending.send_file(connect, pool, one.path, name)
    await connection.machine_driver.drives.insert(rack.uuid, one)
    there = Path(path_of(pool)) / name
    assert there.read_bytes() == b"1" * (1 << 20)


def path_of(pool: libvirt.virStoragePool) -> str:
    return parse_pool(parsed(pool.XMLDesc(0))).path


async def test_a_medium_stays_that_has_the_name_of_one_elsewhere(
    bench: Bench,
    connection: LibvirtConnection,
    silent_rack: Callable[..., Rack],
    tmp_path: Path,
) -> None:
    """Who adopted a machine with such a file in its drive took it from machines of the pool."""
    rack = silent_rack()
    await make(bench, *rack.all)
    (tmp_path / "one").write_bytes(b"1" * 4096)
    one = medium(tmp_path / "one")
    await connection.machine_driver.drives.insert(rack.uuid, one)
    connect = libvirt.open(connection.host.where)
    pool = connect.storagePoolLookupByName(rack.pool.key.name)
    _drop_unused(connect, pool, f"/elsewhere/media-{one.sha256}.iso")
    assert files_in_pool(connection, rack) == [f"media-{one.sha256}.iso"]
