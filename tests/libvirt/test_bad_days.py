"""Bad days with a real libvirtd: away and back, full, corrupt, taken, and paused by QEMU."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nospoon.errors import HostUnreachable, NotOurs, OutOfSpace, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware, Host
from nospoon.model.connections import Libvirt
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.plan import identity
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.storage_xml import REFERENCE, disk_file, image_file
from nospoon.runtime.runner import LocalRunner, Runner
from nospoon.testing import guests
from nospoon.testing.racks import (
    MEBI,
    PLAN,
    Bench,
    Rack,
    events_of,
    found,
    make,
    observe_all,
    rack_for,
    remove_all,
    until,
)

pytestmark = pytest.mark.libvirt
DISK_ONLY = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))


@pytest.fixture
def bench(bench_with_image: Bench) -> Bench:
    return bench_with_image


@pytest.fixture
def rack(bench: Bench) -> Rack:
    return rack_for(bench)


async def test_a_libvirtd_that_stops_and_starts_is_told_and_its_guests_go_on(
    bench: Bench, connection: LibvirtConnection, rack: Rack, own_libvirt: Any
) -> None:
    await make(bench, *rack.all)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    async with events_of(bench, rack.uuid) as queue:
        await until(queue, MachineChange.OBSERVED, 60)
        await asyncio.to_thread(own_libvirt.stop)
        event = await until(queue, MachineChange.UNREACHABLE, 60)
        assert event.power is PowerState.UNKNOWN
        with pytest.raises(HostUnreachable, match=r"host here.*libvirtd"):
            await connection.check()
        with pytest.raises(HostUnreachable):
            await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
        await asyncio.to_thread(own_libvirt.start)
        assert (await until(queue, MachineChange.OBSERVED, 60)).power is PowerState.ON
        await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
        assert (await until(queue, MachineChange.STOPPED, 60)).power is PowerState.OFF


async def test_a_libvirtd_that_is_not_there_at_first_is_noticed_when_it_comes(
    bench: Bench, connection: LibvirtConnection, rack: Rack, own_libvirt: Any
) -> None:
    await make(bench, *rack.all)
    late = LibvirtConnection(
        connection.host, "kit", own_runner(connection), nowhere, records="/x",
        verdicts=Path("/x"), opened=connection.host.where,
    )  # fmt: skip
    await asyncio.to_thread(own_libvirt.stop)
    watched = late.machine_driver.watch()
    coming = asyncio.ensure_future(anext(watched))  # noqa: TID251  (it must wait beside us)
    await late.machine_driver._presence.ready()
    with pytest.raises(HostUnreachable):
        await late.check()
    assert not coming.done()
    await asyncio.to_thread(own_libvirt.start)
    async with asyncio.timeout(60):
        event = await coming
    assert (event.uuid, event.change) == (rack.uuid, MachineChange.OBSERVED)
    await late.close()


def own_runner(connection: LibvirtConnection) -> Runner:
    return connection.machine_driver._runner


async def nowhere(sha256: str) -> str:
    raise ProviderError(f"no image {sha256}")


async def test_qemu_killed_behind_our_back_is_a_crash(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner
) -> None:
    await make(bench, *rack.all)
    async with events_of(bench, rack.uuid) as queue:
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        name = f"{rack.pool.key.name.removeprefix('nospoon-')}-m0"
        pid = (await runner.run(["cat", f"/run/libvirt/qemu/{name}.pid"])).stdout.strip()
        await runner.run(["kill", "-9", pid])
        event = await until(queue, MachineChange.CRASHED, 60)
        assert (event.power, event.reason) == (PowerState.OFF, "QEMU ended unexpectedly")


@pytest.fixture
async def small_pool(bench: Bench, rack: Rack, runner: Runner) -> AsyncIterator[Resource]:
    """A pool on a file system of 8 MiB, as the images beside it."""
    path = f"{bench.pool_root}/small"
    await runner.run(["mkdir", path])
    await runner.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", path])
    yield replace(rack.pool, shape=Pool(f"{path}/pool"))
    for each in (await observe_all(bench)).values():
        if each.key.kind in {Kind.MACHINE, Kind.NETWORK}:
            await bench.connection.drivers[each.key.kind].delete(each)
    await runner.run(["sh", "-c", f"rm -rf {path}/*; umount -l {path}"])


@pytest.fixture
def large(bench: Bench, images: dict[str, str], tmp_path: Path) -> Resource:
    """An image of 9 MiB."""
    content = bytes(9 * MEBI)
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "large.raw").write_bytes(content)
    images[sha256] = str(tmp_path / "large.raw")
    return rack_for(replace(bench, image=Image("", sha256, "raw", 9 * MEBI))).image


TOO_LARGE = r"host here: pool nospoon-images-kit .* takes 9 MiB"


async def test_an_image_larger_than_the_pool_is_refused_before_it_is_sent(
    bench: Bench, small_pool: Resource, large: Resource
) -> None:
    await make(bench, small_pool)
    with pytest.raises(OutOfSpace, match=TOO_LARGE):
        await make(bench, large)
    assert large.key not in await observe_all(bench)


async def test_why_an_image_was_not_sent_is_told_when_it_cannot_be_tidied_away_either(
    bench: Bench, small_pool: Resource, large: Resource, runner: Runner
) -> None:
    await make(bench, small_pool)
    assert isinstance(small_pool.shape, Pool)
    assert isinstance(large.shape, Image)
    file = f"{small_pool.shape.path}/{image_file(large.key.name, large.shape)}{REFERENCE}"
    await runner.run(["touch", file])
    await runner.run(["mount", "--bind", file, file])  # so that it cannot be removed
    try:
        with pytest.raises(OutOfSpace, match=TOO_LARGE):
            await make(bench, large)
        assert (await runner.run(["test", "-e", file], check=False)).status == 0
    finally:
        await runner.run(["umount", file])


async def test_a_pool_of_images_in_a_file_system_of_its_own_goes_and_leaves_that(
    bench: Bench, rack: Rack, large: Resource, runner: Runner, own_libvirt: Any
) -> None:
    path = (
        f"{bench.pool_root}/nospoon-images-kit{identity.pool_end(Libvirt(own_libvirt.uri).socket)}"
    )
    await runner.run(["mkdir", path])
    await runner.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", path])
    try:
        await make(bench, rack.pool)
        with pytest.raises(OutOfSpace, match=TOO_LARGE):
            await make(bench, large)
        listed = await runner.run(["virsh", "-c", own_libvirt.uri, "pool-list", "--all", "--name"])
        assert "nospoon-images" not in listed.stdout
        await make(bench, rack.image)
        assert rack.image.key in await observe_all(bench)
        await bench.connection.drivers[Kind.IMAGE].delete(await found(bench, rack.image))
        assert (await runner.run(["ls", "-A", path])).stdout == ""
    finally:
        await runner.run(["umount", path])


@pytest.mark.boots
async def test_a_guest_that_fills_the_pool_has_failed_and_says_why(
    bench: Bench,
    connection: LibvirtConnection,
    images: dict[str, str],
    tmp_path: Path,
    small_pool: Resource,
) -> None:
    rack = guests.guest_rack(bench, guests.writing_disk(), images, tmp_path, firmware=Firmware.BIOS)
    await make(bench, small_pool, *rack.all[1:])
    async with events_of(bench, rack.uuid) as queue:
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
        event = await until(queue, MachineChange.FAILED, 60)
    assert event.power is PowerState.FAILED
    assert "is the pool full?" in event.reason
    assert "is the pool full?" in (await found(bench, rack.machine)).fault
    await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert (await connection.machine_driver.machines())[0].power is PowerState.OFF


async def test_an_image_whose_bytes_changed_is_corrupt_and_leaves_nothing(
    bench: Bench, rack: Rack, images: dict[str, str]
) -> None:
    await make(bench, rack.pool)
    path = Path(next(iter(images.values())))
    path.write_bytes(b"other".ljust(MEBI, b"\0"))
    with pytest.raises(ProviderError, match=r"corrupt: its sha256 is .*nospoon up"):
        await make(bench, rack.image)
    path.write_bytes(b"an image".ljust(MEBI, b"\0"))
    await make(bench, rack.image)


async def test_a_missing_image_says_how_to_load_it(
    bench: Bench, rack: Rack, images: dict[str, str]
) -> None:
    await make(bench, rack.pool)
    Path(next(iter(images.values()))).unlink()
    with pytest.raises(ProviderError, match=r"is missing.*nospoon up"):
        await make(bench, rack.image)


async def test_an_image_of_another_size_or_format_is_refused(bench: Bench, rack: Rack) -> None:
    await make(bench, rack.pool)
    assert isinstance(rack.image.shape, Image)
    other = replace(rack.image, shape=replace(rack.image.shape, virtual_size=2 * MEBI))
    with pytest.raises(ProviderError, match="is not what it was"):
        await make(bench, other)


async def test_an_image_that_refers_to_another_file_is_refused(
    bench: Bench, rack: Rack, images: dict[str, str], tmp_path: Path, runner: Runner
) -> None:
    await make(bench, rack.pool)
    (tmp_path / "secret").write_bytes(bytes(MEBI))
    path = tmp_path / "thin.qcow2"
    thin = ["qemu-img", "create", "-f", "qcow2", "-F", "raw", "-b", str(tmp_path / "secret")]
    await runner.run([*thin, str(path)])
    assert isinstance(rack.image.shape, Image)
    images[rack.image.shape.sha256] = str(path)
    with pytest.raises(ProviderError, match="is not what it was"):
        await make(bench, rack.image)  # a raw image is read as one, whatever it looks like
    thin_one = replace(rack.image, shape=replace(rack.image.shape, format="qcow2"))
    with pytest.raises(ProviderError, match="refers to another file"):
        await make(bench, thin_one)


@pytest.mark.parametrize("active", [True, False])
async def test_a_pool_whose_directory_is_gone_is_removed(
    bench: Bench,
    rack: Rack,
    own_libvirt: Any,
    active: bool,  # noqa: FBT001
) -> None:
    await make(bench, rack.pool)
    assert isinstance(rack.pool.shape, Pool)
    Path(rack.pool.shape.path).rmdir()
    if not active:
        connect = libvirt.open(own_libvirt.uri)
        connect.storagePoolLookupByName(rack.pool.key.name).destroy()
        connect.close()
    await remove_all(bench)
    assert await observe_all(bench) == {}


async def test_half_an_upload_is_not_an_image_and_is_made_again(bench: Bench, rack: Rack) -> None:
    await make(bench, rack.pool, rack.image)
    assert isinstance(rack.pool.shape, Pool)
    marker = next(Path(bench.pool_root).rglob("*.complete"))
    marker.unlink()
    image = marker.with_suffix("")
    image.write_bytes(image.read_bytes()[: MEBI // 2])
    assert rack.image.key not in await observe_all(bench)
    await make(bench, rack.image)
    assert (await found(bench, rack.image)).shape == rack.image.shape
    assert image.stat().st_size == MEBI


async def test_files_of_others_in_our_pool_keep_it_from_being_removed(
    bench: Bench, rack: Rack
) -> None:
    await make(bench, rack.pool, rack.blank)
    assert isinstance(rack.pool.shape, Pool)
    theirs = Path(rack.pool.shape.path) / "notes.txt"
    theirs.write_text("mine")
    with pytest.raises(NotOurs, match=r"notes.txt"):
        await bench.connection.drivers[Kind.POOL].delete(await found(bench, rack.pool))
    assert theirs.read_text() == "mine"
    theirs.unlink()


@pytest.mark.parametrize("name", ["backup.qcow2", "backup-1.qcow2", "m0-7.qcow2"])
async def test_disks_of_others_in_our_pool_are_no_volumes_of_ours(
    bench: Bench, rack: Rack, name: str
) -> None:
    """Whatever they are called: a plan would remove what the file does not name."""
    await make(bench, *rack.all)
    assert isinstance(rack.pool.shape, Pool)
    theirs = Path(rack.pool.shape.path) / name
    done = ["qemu-img", "create", "-q", "-f", "qcow2", str(theirs), "1M"]
    await LocalRunner().run(done)
    before = theirs.read_bytes()
    volumes = {each.key.name for each in (await observe_all(bench)).values()
               if each.key.kind is Kind.VOLUME}  # fmt: skip
    assert volumes == {"m0-0", "m0-1"}
    with pytest.raises(NotOurs, match=name):
        await remove_all(bench)
    assert theirs.read_bytes() == before
    theirs.unlink()


async def test_disks_named_as_earlier_versions_did_are_known_by_their_domain(
    bench: Bench, rack: Rack, own_libvirt: Any
) -> None:
    """They stay where they are, grow, are made anew there, and go."""
    await make(bench, *rack.all)
    assert isinstance(rack.pool.shape, Pool)
    place, connect = Path(rack.pool.shape.path), libvirt.open(own_libvirt.uri)
    new, old = disk_file(rack.pool.key.name, "m0-0"), "m0-0.qcow2"
    (place / new).rename(place / old)
    domain = connect.lookupByUUID(rack.uuid.bytes)
    connect.defineXML(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).replace(new, old))
    for resource in (rack.blank, rack.machine):
        assert (await found(bench, resource)).shape == resource.shape
    volumes, machines = (bench.connection.drivers[kind] for kind in (Kind.VOLUME, Kind.MACHINE))
    grown = replace(rack.blank, shape=Volume(rack.pool.key.name, 16 * MEBI))
    await volumes.change(await found(bench, rack.blank), grown, bench.tag)
    assert (await found(bench, rack.blank)).shape == grown.shape
    await machines.change(await found(bench, rack.machine), rack.machine, bench.tag)
    assert f"/{old}" in domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    await volumes.delete(await found(bench, rack.blank))
    assert not (place / old).exists()
    await make(bench, rack.blank)
    assert (place / old).exists(), "where its machine looks for it"
    await remove_all(bench)
    assert not place.exists()


async def test_a_disk_of_a_running_guest_grows_under_its_feet(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    await make(bench, *rack.all)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert isinstance(rack.blank.shape, Volume)
    larger = replace(rack.blank, shape=replace(rack.blank.shape, size=32 * MEBI))
    driver = connection.drivers[Kind.VOLUME]
    await driver.change(await found(bench, rack.blank), larger, bench.tag)
    assert (await found(bench, rack.blank)).shape == larger.shape


async def test_nothing_of_ours_is_left_behind(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    uefi = replace(rack.machine, shape=replace(rack.machine.shape, firmware=Firmware.UEFI))
    await make(bench, *rack.all[:-1], uefi)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert isinstance(rack.pool.shape, Pool)
    assert list(Path(rack.pool.shape.path).rglob("*.nvram"))
    await remove_all(bench)
    assert not Path(rack.pool.shape.path).exists()
    assert rack.link is not None
    assert isinstance(rack.link.shape, Link)
    shown = await runner.run(["ip", "link", "show", rack.link.shape.name], check=False)
    assert shown.status != 0


async def test_a_machine_with_a_tpm_starts_and_leaves_no_state(
    bench: Bench, connection: LibvirtConnection, rack: Rack, runner: Runner
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    tpm = replace(rack.machine, shape=replace(rack.machine.shape, tpm=True))
    await make(bench, *rack.all[:-1], tpm)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, DISK_ONLY)
    state = ["ls", "/var/lib/libvirt/swtpm"]
    assert str(rack.uuid) in (await runner.run(state)).stdout
    await remove_all(bench)
    assert str(rack.uuid) not in (await runner.run(state)).stdout


async def test_a_host_without_libvirtd_says_how_to_start_it(tmp_path: Path) -> None:
    connection = LibvirtConnection(
        Host("rack9"),
        "kit",
        LocalRunner(),
        nowhere,
        records="/x",
        verdicts=tmp_path,
        opened=f"qemu+unix:///system?socket={tmp_path}/none",
    )
    with pytest.raises(HostUnreachable, match=r"host rack9.*libvirtd -d"):
        await connection.check()
    await connection.close()


async def test_variables_of_an_earlier_firmware_are_removed_with_it(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    assert isinstance(rack.pool.shape, Pool)
    pool = Path(rack.pool.shape.path)
    uefi = replace(rack.machine, shape=replace(rack.machine.shape, firmware=Firmware.UEFI))
    await make(bench, *rack.all[:-1], uefi)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert [file.name for file in pool.rglob("*.nvram")] == ["m0.uefi.nvram"]
    driver = connection.drivers[Kind.MACHINE]
    await driver.change(await found(bench, uefi), rack.machine, bench.tag)
    assert not list(pool.rglob("*.nvram"))


async def test_a_running_machine_keeps_its_variables_until_a_start_with_another_firmware(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    assert isinstance(rack.pool.shape, Pool)
    pool = Path(rack.pool.shape.path)
    uefi = replace(rack.machine, shape=replace(rack.machine.shape, firmware=Firmware.UEFI))
    await make(bench, *rack.all[:-1], uefi)
    machines, driver = connection.machine_driver, connection.drivers[Kind.MACHINE]
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    for wanted in (rack.machine, uefi, rack.machine):
        await driver.change(await found(bench, uefi), wanted, bench.tag)
        assert [file.name for file in pool.rglob("*.nvram")] == ["m0.uefi.nvram"]
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    assert not list(pool.rglob("*.nvram"))


async def test_variables_of_an_earlier_firmware_go_with_a_machine_that_ran_with_them(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    assert isinstance(rack.machine.shape, Machine)
    assert isinstance(rack.pool.shape, Pool)
    uefi = replace(rack.machine, shape=replace(rack.machine.shape, firmware=Firmware.UEFI))
    await make(bench, *rack.all[:-1], uefi)
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    driver = connection.drivers[Kind.MACHINE]
    await driver.change(await found(bench, uefi), rack.machine, bench.tag)
    await driver.delete(await found(bench, rack.machine))
    assert not list(Path(rack.pool.shape.path).rglob("*.nvram"))


async def test_a_file_that_libvirt_does_not_know_of_is_no_hindrance(
    bench: Bench, rack: Rack
) -> None:
    await make(bench, rack.pool)
    assert isinstance(rack.pool.shape, Pool)
    file = disk_file(rack.pool.key.name, "m0-0")
    (Path(rack.pool.shape.path) / file).write_bytes(b"half a disk")
    await make(bench, rack.blank)
    assert (await found(bench, rack.blank)).shape == rack.blank.shape
