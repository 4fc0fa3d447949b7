"""UEFI variables of machines that an earlier version made: they lie in the pool, and move."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.errors import NotOurs
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import Pool
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.varstore import GLOBAL, Variable, variables, with_variable
from nospoon.testing.libvirtd import OwnLibvirt
from nospoon.testing.racks import PLAN, Bench, Rack, found, make, rack_for

pytestmark = pytest.mark.libvirt
KEPT = Variable("Kept", GLOBAL, b"by a guest")
SETUP = BootPlan((BootDevice.SETUP, BootDevice.DISK), (BootDevice.DISK,))


@pytest.fixture
async def rack(bench: Bench, own_libvirt: OwnLibvirt) -> Rack:
    """A machine that is off, with a snapshot, as an earlier version left it."""
    made = rack_for(bench)
    shape = made.machine.shape
    assert isinstance(shape, Machine)
    shape = replace(shape, firmware=Firmware.UEFI, disks=shape.disks[:1], nics=())
    made = replace(made, machine=replace(made.machine, shape=shape))
    await make(bench, made.pool, made.blank, made.machine)
    machines = bench.connection.machine_driver
    await machines.power(made.uuid, PowerCommand.ON, PLAN)
    await machines.power(made.uuid, PowerCommand.OFF, PLAN)
    assert machines.snapshots is not None
    await machines.snapshots.create(made.uuid, "one")
    for each in (pool_of(made) / "nvram").iterdir():
        each.rename(pool_of(made) / each.name)
    (pool_of(made) / "nvram").rmdir()
    file = pool_of(made) / "m0.uefi.nvram"
    file.write_bytes(with_variable(file.read_bytes(), KEPT))
    connect = libvirt.open(own_libvirt.uri)
    root = definition(connect, made)
    nvram = root.find("os/nvram")
    assert nvram is not None
    nvram.text = str(file)
    connect.defineXML(ET.tostring(root, encoding="unicode"))
    connect.close()
    return made


@pytest.fixture
def next_connection(connect: Any, rack: Rack) -> LibvirtConnection:
    """That of the daemon which comes after it."""
    del rack
    made: LibvirtConnection = connect("here")
    return made


def pool_of(rack: Rack) -> Path:
    assert isinstance(rack.pool.shape, Pool)
    return Path(rack.pool.shape.path)


def definition(connect: Any, rack: Rack) -> ET.Element:
    domain = connect.lookupByUUID(rack.uuid.bytes)
    return ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.glob("*nvram*") if each.is_file())


def assert_moved(own_libvirt: OwnLibvirt, rack: Rack) -> None:
    place = pool_of(rack) / "nvram"
    assert names(pool_of(rack)) == []
    assert names(place) == ["m0.uefi.nvram", "m0.uefi.nvram.one.snapshot"]
    assert KEPT in variables((place / "m0.uefi.nvram").read_bytes())
    connect = libvirt.open(own_libvirt.uri)
    assert definition(connect, rack).findtext("os/nvram") == str(place / "m0.uefi.nvram")
    connect.close()


@pytest.mark.parametrize("plan", [PLAN, SETUP])
async def test_they_move_when_the_machine_is_started(
    next_connection: LibvirtConnection, own_libvirt: OwnLibvirt, rack: Rack, plan: BootPlan
) -> None:
    machines = next_connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, plan)
    assert_moved(own_libvirt, rack)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    assert machines.snapshots is not None
    await machines.snapshots.restore(rack.uuid, "one")
    assert KEPT not in variables((pool_of(rack) / "nvram/m0.uefi.nvram").read_bytes())


async def test_they_move_when_the_machine_is_made_again(
    bench: Bench, next_connection: LibvirtConnection, own_libvirt: OwnLibvirt, rack: Rack
) -> None:
    machines = next_connection.machine_driver
    (seen,) = await machines.observe(bench.cluster)
    await machines.change(seen, rack.machine, bench.tag)
    assert_moved(own_libvirt, rack)


async def test_a_machine_that_runs_keeps_them_until_its_next_start(
    bench: Bench, next_connection: LibvirtConnection, own_libvirt: OwnLibvirt, rack: Rack
) -> None:
    connect = libvirt.open(own_libvirt.uri)
    connect.lookupByUUID(rack.uuid.bytes).create()
    machines = next_connection.machine_driver
    (seen,) = await machines.observe(bench.cluster)
    await machines.change(seen, rack.machine, bench.tag)
    assert definition(connect, rack).findtext("os/nvram") == str(pool_of(rack) / "m0.uefi.nvram")
    connect.close()
    assert await machines.firmware_keys.key_databases(rack.uuid)
    assert machines.snapshots is not None
    await machines.snapshots.pause(rack.uuid)
    await machines.snapshots.create(rack.uuid, "two")
    await machines.snapshots.delete(rack.uuid, "two")
    await machines.snapshots.resume(rack.uuid)
    await machines.power(rack.uuid, PowerCommand.CYCLE, PLAN)
    assert_moved(own_libvirt, rack)


async def test_those_of_a_machine_that_is_removed_go(
    bench: Bench, next_connection: LibvirtConnection, rack: Rack
) -> None:
    machines = next_connection.machine_driver
    (seen,) = await machines.observe(bench.cluster)
    await machines.delete(seen)
    assert names(pool_of(rack)) == []


async def test_those_of_machines_that_others_removed_go_with_the_pool_and_other_files_keep_it(
    bench: Bench, next_connection: LibvirtConnection, own_libvirt: OwnLibvirt, rack: Rack
) -> None:
    machines = next_connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    connect = libvirt.open(own_libvirt.uri)
    connect.lookupByUUID(rack.uuid.bytes).undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM)
    connect.close()
    mine = pool_of(rack) / "nvram/notes"
    mine.write_text("mine")
    pools = next_connection.drivers[Kind.POOL]
    with pytest.raises(NotOurs, match="files which nospoon did not make: nvram"):
        await pools.delete(await found(bench, rack.pool))
    assert [each.name for each in mine.parent.iterdir()] == ["notes"]
    mine.unlink()
    await pools.delete(await found(bench, rack.pool))
    assert not pool_of(rack).exists()
