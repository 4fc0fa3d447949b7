"""Volumes that BMC clients made: there after a start, gone after another, and no drift."""

from __future__ import annotations

from pathlib import Path

import libvirt
import pytest

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.volumes import AddedVolume
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.elements import attribute_of, parsed, text_of
from nospoon.testing.racks import Bench, Rack

pytestmark = [pytest.mark.libvirt]

ORDER = (BootDevice.DISK, BootDevice.NETWORK)
FIRST, SECOND = AddedVolume("0000000a", 64 << 20), AddedVolume("0000000b", 32 << 20)


def plan(*volumes: AddedVolume) -> BootPlan:
    return BootPlan(ORDER, ORDER, volumes=volumes)


def sizes(connection: LibvirtConnection, rack: Rack) -> dict[str, int]:
    """Serial -> bytes, of the disks that the running machine has."""
    domain = libvirt.open(connection.host.where).lookupByUUID(rack.uuid.bytes)
    disks = parsed(domain.XMLDesc(0)).iterfind("devices/disk[@device='disk']")
    return {
        text_of(disk, "serial"): domain.blockInfo(attribute_of(disk, "target", "dev"))[0]
        for disk in disks
    }


def files(tmp_path: Path) -> set[str]:
    """Ids of the added volumes of which there is a file."""
    return {each.name.split(".")[1] for each in tmp_path.rglob("*.volume")}


async def test_volumes_come_with_a_start_and_go_with_another(
    rack: Rack, bench: Bench, connection: LibvirtConnection, tmp_path: Path
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, plan(FIRST))
    assert sizes(connection, rack) == {"guest": 64 << 20, FIRST.id: FIRST.size}

    (seen,) = await connection.drivers[Kind.MACHINE].observe(bench.cluster)
    assert seen.shape == rack.machine.shape
    assert seen.live is None
    disks = await connection.drivers[Kind.VOLUME].observe(bench.cluster)
    assert {each.key for each in disks} == {rack.cloned.key, rack.blank.key}

    await connection.drivers[Kind.MACHINE].change(seen, rack.machine, bench.tag)
    await machines.power(rack.uuid, PowerCommand.RESET, plan(FIRST, SECOND))
    assert set(sizes(connection, rack)) == {"guest", FIRST.id, SECOND.id}

    await machines.power(rack.uuid, PowerCommand.CYCLE, plan(SECOND))
    assert set(sizes(connection, rack)) == {"guest", SECOND.id}
    assert files(tmp_path) == {SECOND.id}

    await connection.drivers[Kind.MACHINE].delete(seen)
    assert files(tmp_path) == set()


async def test_what_the_guest_wrote_stays_over_a_cycle(
    rack: Rack, connection: LibvirtConnection, tmp_path: Path
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, plan(FIRST))
    (file,) = tmp_path.rglob("*.volume")
    before = file.stat().st_ino
    await machines.power(rack.uuid, PowerCommand.CYCLE, plan(FIRST))
    assert file.stat().st_ino == before
