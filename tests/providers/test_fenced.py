"""A daemon that lost leadership looks at what there is, and changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.daemon.fenced import fenced
from nospoon.errors import Superseded
from nospoon.model.boot import BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.base import Connection, Medium
from nospoon.providers.simulated import SimulatedConnection
from nospoon.testing.racks import PLAN, Bench, Rack, make, rack_for


class Leadership:
    """Whether it is held."""

    def __init__(self) -> None:
        self.held = True

    async def require(self) -> None:
        if not self.held:
            raise Superseded("another daemon leads")


async def nothing(resource: Resource) -> None:
    del resource


@pytest.fixture
def leadership() -> Leadership:
    return Leadership()


@pytest.fixture
async def connection(leadership: Leadership) -> AsyncIterator[Connection]:
    inner = SimulatedConnection(
        "sim", "kit", lambda: 1000.0, simulation=Simulation(machines=("theirs",))
    )
    yield fenced(inner, leadership.require)
    await inner.close()


@pytest.fixture
async def rack(connection: Connection, leadership: Leadership) -> Rack:
    """What was made while we led."""
    image = Image("", "ab" * 32, "raw", 1 << 20)
    bench = Bench(connection, Host("sim", Simulated()), "kit", "/pools", image, nothing, nothing)
    made = rack_for(bench)
    await make(bench, *made.all)
    leadership.held = False
    return made


async def test_looking_is_free(connection: Connection, rack: Rack) -> None:
    machines = connection.machine_driver
    assert connection.drivers[Kind.MACHINE] is machines
    (seen,) = await machines.observe(None)
    assert seen.key == rack.machine.key
    assert [event.uuid for event in await machines.machines()] == [rack.uuid]
    assert (await anext(machines.watch())).uuid == rack.uuid
    assert machines.snapshots is not None
    assert machines.firmware_keys is not None
    assert await machines.snapshots.list(rack.uuid)
    assert await machines.snapshots.blocker(rack.uuid, "x") == ""
    assert await machines.firmware_keys.key_databases(rack.uuid) == ()
    assert (await connection.capabilities()).kinds
    assert await connection.adoptable()
    await connection.check()


async def test_every_change_is_refused(connection: Connection, rack: Rack, tmp_path: Path) -> None:
    machines = connection.machine_driver
    (seen,) = await machines.observe(None)
    tag, boot = seen.tag, BootPlan(now=(), after=())
    snapshots, drives = machines.snapshots, machines.drives
    order, adoption = machines.boot_order, machines.adoption
    assert snapshots is not None
    assert drives is not None
    assert order is not None
    assert adoption is not None
    changes = (
        lambda: machines.create(rack.machine, tag),
        lambda: machines.change(seen, rack.machine, tag),
        lambda: machines.delete(seen),
        lambda: connection.drivers[Kind.VOLUME].create(rack.blank, tag),
        lambda: machines.power(rack.uuid, PowerCommand.ON, PLAN),
        lambda: order.set_boot(rack.uuid, boot),
        lambda: drives.insert(rack.uuid, Medium(str(tmp_path / "disc"), "ab" * 32)),
        lambda: drives.eject(rack.uuid),
        lambda: snapshots.pause(rack.uuid),
        lambda: snapshots.resume(rack.uuid),
        lambda: snapshots.create(rack.uuid, "x"),
        lambda: snapshots.restore(rack.uuid, "x"),
        lambda: snapshots.delete(rack.uuid, "x"),
        lambda: adoption.claim(rack.machine, tag),
        lambda: adoption.release(seen),
    )
    for change in changes:
        with pytest.raises(Superseded):
            await change()
    (after,) = await machines.observe(None)
    assert after == seen
    assert isinstance(after.shape, Machine)


async def test_a_call_that_the_contract_gets_later_counts_as_a_change(
    leadership: Leadership,
) -> None:
    class Later:
        async def format_disk(self) -> str:
            return str(uuid4())

    leadership.held = False
    with pytest.raises(Superseded):
        await fenced(Later(), leadership.require).format_disk()
