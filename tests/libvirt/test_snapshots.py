"""Snapshots of real disks and UEFI variables: what was in them then is in them again."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import Pool
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.machines import MachineDriver
from nospoon.providers.libvirt.snapshots import DomainSnapshots
from nospoon.providers.libvirt.storage_xml import disk_file
from nospoon.testing.racks import PLAN, Bench, Rack, make, rack_for

pytestmark = pytest.mark.libvirt
CLUSTER = 65536
"""Of qcow2: what is written at once."""


def write(disk: Path, pattern: int) -> None:
    command = f"write -P {pattern} 0 {CLUSTER}"
    subprocess.run(["qemu-io", "-c", command, str(disk)], check=True, capture_output=True)


def holds(disk: Path, pattern: int) -> bool:
    command = f"read -P {pattern} 0 {CLUSTER}"
    done = subprocess.run(["qemu-io", "-c", command, str(disk)], check=False, capture_output=True)
    return done.returncode == 0 and b"verification failed" not in done.stdout


def snapshots_in(disk: Path) -> str:
    run = ["qemu-img", "snapshot", "-l", str(disk)]
    return subprocess.run(run, text=True, capture_output=True, check=True).stdout


@pytest.fixture
async def rack(bench: Bench) -> Rack:
    """A machine with UEFI and two blank disks, which has started once."""
    made = rack_for(bench)
    shape = made.machine.shape
    assert isinstance(shape, Machine)
    shape = replace(shape, firmware=Firmware.UEFI, disks=shape.disks[:1], nics=())
    made = replace(made, machine=replace(made.machine, shape=shape))
    await make(bench, made.pool, made.blank, made.machine)
    machines = bench.connection.machine_driver
    await machines.power(made.uuid, PowerCommand.ON, PLAN)
    await machines.power(made.uuid, PowerCommand.OFF, PLAN)
    return made


def snapshots(machines: MachineDriver) -> DomainSnapshots:
    assert machines.snapshots is not None
    return machines.snapshots


def files(rack: Rack) -> tuple[Path, Path]:
    """Its disk and its variables."""
    assert isinstance(rack.pool.shape, Pool)
    place = Path(rack.pool.shape.path)
    return place / disk_file(rack.pool.key.name, "m0-0"), place / "nvram/m0.uefi.nvram"


async def test_a_disk_and_variables_are_what_they_were(
    connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, variables = files(rack)
    write(disk, 1)
    before = variables.read_bytes()
    await snapshots(machines).create(rack.uuid, "one")
    write(disk, 2)
    await snapshots(machines).create(rack.uuid, "two")
    variables.write_bytes(bytes(len(before)))
    write(disk, 3)
    for name, pattern in (("one", 1), ("two", 2), ("one", 1)):
        await snapshots(machines).restore(rack.uuid, name)
        assert holds(disk, pattern)
        assert variables.read_bytes() == before


async def test_a_paused_machine_is_kept_by_the_qemu_that_has_its_disks(
    connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, _ = files(rack)
    write(disk, 5)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await snapshots(machines).pause(rack.uuid)
    await snapshots(machines).create(rack.uuid, "live")
    await snapshots(machines).resume(rack.uuid)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    write(disk, 6)
    await snapshots(machines).restore(rack.uuid, "live")
    assert holds(disk, 5)


async def test_a_running_machine_keeps_the_variables_that_it_runs_with(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    _, variables = files(rack)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    (seen,) = await machines.observe(bench.cluster)
    shape = rack.machine.shape
    assert isinstance(shape, Machine)
    bios = replace(rack.machine, shape=replace(shape, firmware=Firmware.BIOS))
    await connection.drivers[rack.machine.key.kind].change(seen, bios, bench.tag)
    await snapshots(machines).pause(rack.uuid)
    await snapshots(machines).create(rack.uuid, "live")
    kept = variables.with_name(f"{variables.name}.live.snapshot")
    assert kept.read_bytes() == variables.read_bytes()


async def test_variables_of_another_firmware_hinder_and_are_dropped_all_the_same(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, _ = files(rack)
    await snapshots(machines).create(rack.uuid, "one")
    assert await snapshots(machines).blocker(rack.uuid, "one") == ""
    shape = rack.machine.shape
    assert isinstance(shape, Machine)
    bios = replace(rack.machine, shape=replace(shape, firmware=Firmware.BIOS))
    (seen,) = await machines.observe(bench.cluster)
    await connection.drivers[rack.machine.key.kind].change(seen, bios, bench.tag)
    assert (
        await snapshots(machines).blocker(rack.uuid, "one")
        == "its firmware was uefi then, and is bios"
    )
    assert await snapshots(machines).blocker(rack.uuid, "two") == ""
    await snapshots(machines).delete(rack.uuid, "one")
    assert not list(disk.parent.rglob("*.snapshot"))


async def test_no_snapshot_is_taken_of_a_running_machine_without_its_variables(
    connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, variables = files(rack)
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await snapshots(machines).pause(rack.uuid)
    variables.unlink()
    with pytest.raises(ProviderError, match=r"UEFI variables .*m0\.uefi\.nvram are gone"):
        await snapshots(machines).create(rack.uuid, "bad")
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert "nospoon-bad" not in snapshots_in(disk)


async def test_a_dropped_one_leaves_nothing_and_a_removed_machine_takes_its_own_along(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, _ = files(rack)
    for name in ("a", "b"):
        await snapshots(machines).create(rack.uuid, name)
    await snapshots(machines).delete(rack.uuid, "a")
    listed = snapshots_in(disk)
    assert "nospoon-b" in listed
    assert "nospoon-a" not in listed
    assert [path.name for path in disk.parent.rglob("*.snapshot")] == ["m0.uefi.nvram.b.snapshot"]
    (seen,) = await connection.machine_driver.observe(bench.cluster)
    await machines.delete(seen)
    assert not list(disk.parent.rglob("*.snapshot"))


async def test_a_disk_with_snapshots_grows(
    bench: Bench, connection: LibvirtConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    disk, _ = files(rack)
    write(disk, 7)
    await snapshots(machines).create(rack.uuid, "small")
    drivers = connection.drivers
    (seen,) = await drivers[rack.blank.key.kind].observe(bench.cluster)
    larger = replace(rack.blank, shape=replace(seen.shape, size=16 << 20))  # type: ignore[arg-type]
    await drivers[rack.blank.key.kind].change(seen, larger, bench.tag)
    write(disk, 8)
    await snapshots(machines).restore(rack.uuid, "small")
    assert holds(disk, 7)


async def test_what_cannot_be_copied_is_told(connection: LibvirtConnection, rack: Rack) -> None:
    disk, _ = files(rack)
    disk.write_bytes(b"no qcow2")
    with pytest.raises(ProviderError, match="cannot take a snapshot of"):
        await snapshots(connection.machine_driver).create(rack.uuid, "x")
