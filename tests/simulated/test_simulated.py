"""What the simulated connection can do beyond the common promises."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import structlog

from nospoon.clusterfile.load import load
from nospoon.errors import HostUnreachable, OutOfSpace, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image, Volume
from nospoon.providers.recorder import Recorder
from nospoon.providers.simulated import SimulatedConnection, World
from nospoon.providers.simulated.world import Running, Snapshot
from nospoon.runtime.tasks import Tasks
from nospoon.testing.due import forward
from nospoon.testing.racks import Bench, Rack, events_of, make, observe_all, rack_for, until

ONCE = BootPlan(
    now=(BootDevice.NETWORK, BootDevice.DISK), after=(BootDevice.DISK, BootDevice.NETWORK)
)


async def nothing(resource: Resource) -> None:
    del resource


def bench_for(connection: SimulatedConnection) -> Bench:
    return Bench(
        connection=connection,
        place=Host("sim", Simulated()),
        deployment="kit",
        pool_root="/pools",
        image=Image("", "ab" * 32, "raw", 1 << 20),
        make_stranger=nothing,
        remove_machine=nothing,
        patience=20.0,
    )


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[SimulatedConnection]:
    connection = SimulatedConnection("sim", "kit", lambda: 1000.0, records=tmp_path)
    yield connection
    await connection.close()


@pytest.fixture
async def bench(connection: SimulatedConnection) -> Bench:
    return bench_for(connection)


@pytest.fixture
async def rack(bench: Bench) -> Rack:
    rack = rack_for(bench)
    await make(bench, *rack.all)
    return rack


async def test_once_is_followed_once_and_then_the_order(
    connection: SimulatedConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, ONCE)
    assert machines.booted(rack.uuid) is BootDevice.NETWORK
    machines.reset_by_guest(rack.uuid)
    assert machines.booted(rack.uuid) is BootDevice.DISK


async def test_a_running_machine_can_be_told_its_next_boot(
    connection: SimulatedConnection, rack: Rack
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, BootPlan(ONCE.after, ONCE.after))
    await machines.set_boot(rack.uuid, ONCE)
    machines.reset_by_guest(rack.uuid)
    assert machines.booted(rack.uuid) is BootDevice.NETWORK
    machines.reset_by_guest(rack.uuid)
    assert machines.booted(rack.uuid) is BootDevice.DISK


async def test_the_console_is_recorded(connection: SimulatedConnection, rack: Rack) -> None:
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, ONCE)
    record = Path(connection.machine_driver.console_record(rack.uuid))
    assert b"boots network" in record.read_bytes()


async def test_a_soft_power_off_returns_before_the_guest_is_down(rack_for_slow: Bench) -> None:
    bench = rack_for_slow
    rack = rack_for(bench)
    await make(bench, *rack.all)
    driver = bench.connection.machine_driver
    async with events_of(bench, rack.uuid) as queue:
        await driver.power(rack.uuid, PowerCommand.ON, ONCE)
        await driver.power(rack.uuid, PowerCommand.SOFT, ONCE)
        assert (await driver.machines())[0].power is PowerState.ON
        assert (await until(queue, MachineChange.SHUTDOWN, 20)).power is PowerState.OFF


@pytest.fixture
async def rack_for_slow() -> AsyncIterator[Bench]:
    connection = SimulatedConnection(
        "sim", "kit", lambda: 0.0, simulation=Simulation(shut_down=0.05)
    )
    yield bench_for(connection)
    await connection.close()


async def test_an_arranged_fault_is_raised_once(
    connection: SimulatedConnection, bench: Bench
) -> None:
    rack = rack_for(bench)
    connection.around.faults["create pool/"] = [ProviderError("the disk burns")]
    with pytest.raises(ProviderError, match="burns"):
        await make(bench, rack.pool)
    await make(bench, rack.pool)


async def test_a_full_host_says_what_is_left(connection: SimulatedConnection, bench: Bench) -> None:
    rack = rack_for(bench)
    connection.around.space = 10 << 20
    await make(bench, rack.pool, rack.image, rack.blank)
    with pytest.raises(OutOfSpace, match=f"has {2 << 20} left"):
        await make(bench, rack.cloned)


async def test_an_unreachable_host_is_told_to_watchers(
    connection: SimulatedConnection, bench: Bench, rack: Rack
) -> None:
    async with events_of(bench, rack.uuid) as queue:
        connection.machine_driver.set_reachable(reachable=False)
        event = await until(queue, MachineChange.UNREACHABLE, 20)
        assert event.power is PowerState.UNKNOWN
        with pytest.raises(HostUnreachable, match="sim"):
            await connection.check()
        connection.machine_driver.set_reachable(reachable=True)
        assert (await until(queue, MachineChange.OBSERVED, 20)).power is PowerState.OFF


async def test_a_failed_machine_shows_its_reason(
    connection: SimulatedConnection, bench: Bench, rack: Rack
) -> None:
    async with events_of(bench, rack.uuid) as queue:
        await until(queue, MachineChange.OBSERVED, 20)
        connection.machine_driver.fail(rack.uuid, "internal error")
        event = await until(queue, MachineChange.FAILED, 20)
    assert (event.power, event.reason) == (PowerState.FAILED, "internal error")


async def test_a_dumped_world_goes_on_where_it_was(
    connection: SimulatedConnection, bench: Bench, rack: Rack
) -> None:
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, ONCE)
    again = SimulatedConnection(
        "sim", "kit", lambda: 2000.0, world=World.load(connection.world.dump())
    )
    before = await observe_all(bench)
    after = await observe_all(replace(bench, connection=again))
    assert {key: (each.shape, each.tag, each.running) for key, each in after.items()} == {
        key: (each.shape, each.tag, each.running) for key, each in before.items()
    }
    again.machine_driver.reset_by_guest(rack.uuid)
    assert again.machine_driver.booted(rack.uuid) is BootDevice.DISK


async def test_ten_thousand_machines_are_made_and_started(
    connection: SimulatedConnection, bench: Bench
) -> None:
    rack = rack_for(bench)
    assert isinstance(rack.machine.shape, Machine)
    for number in range(10_000):
        uuid = type(rack.uuid)(int=number + 1)
        key = replace(rack.machine.key, name=f"m{number}")
        shape = replace(rack.machine.shape, uuid=uuid)
        await make(bench, Resource(key, shape))
        await connection.machine_driver.power(uuid, PowerCommand.ON, ONCE)
    observed = await connection.drivers[Kind.MACHINE].observe(bench.cluster)
    assert sum(each.running for each in observed) == 10_000


async def simulated(how: Simulation, records: Path) -> tuple[SimulatedConnection, Rack]:
    connection = SimulatedConnection("sim", "kit", lambda: 0.0, simulation=how, records=records)
    bench = bench_for(connection)
    rack = rack_for(bench)
    await make(bench, *rack.all)
    return connection, rack


async def test_a_guest_says_its_text_when_it_has_booted_and_not_when_it_was_switched_off(
    tmp_path: Path,
) -> None:
    connection, rack = await simulated(Simulation(boot=3600, console="login: "), tmp_path)
    machines = connection.machine_driver
    record = Path(machines.console_record(rack.uuid))
    await machines.power(rack.uuid, PowerCommand.ON, ONCE)
    await machines.power(rack.uuid, PowerCommand.OFF, ONCE)
    forward(1800)
    await machines.power(rack.uuid, PowerCommand.ON, ONCE)
    forward(1800)  # what was switched off would have booted by now
    await asyncio.sleep(0)
    forward(1800)
    async with asyncio.timeout(20):
        while not record.read_text().endswith("login: "):  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)
    assert record.read_text().count("login") == 1
    await connection.close()


async def test_as_many_power_commands_fail_as_was_asked(tmp_path: Path) -> None:
    connection, rack = await simulated(Simulation(power_failures=1.0), tmp_path)
    with pytest.raises(ProviderError, match="simulated failure"):
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, ONCE)
    (event,) = await connection.machine_driver.machines()
    assert event.power is PowerState.OFF
    await connection.close()


async def test_what_a_console_said_waits_for_room_in_its_record(tmp_path: Path) -> None:
    place = tmp_path / "full"
    async with Tasks("test") as tasks:
        recorder = Recorder(place, tasks)
        machine = UUID(int=1)
        recorder.take(machine, b"one ")
        recorder.take(machine, b"two")
        with structlog.testing.capture_logs() as logged:
            async with asyncio.timeout(20):
                while not logged:  # noqa: ASYNC110  (nobody tells)
                    await asyncio.sleep(0.01)
        assert logged[0]["event"] == "console logs wait for disk space"
        place.mkdir()
        await recorder.flush()
        path = recorder.path(machine)
        assert path is not None
        assert path.read_bytes() == b"one two"


async def test_a_host_that_is_described_differently_has_other_agents_from_then_on(
    connection: SimulatedConnection,
) -> None:
    def host(agents: str) -> Host:
        hosts = f"hosts: {{sim: {{simulated: {{agents: {agents}}}}}}}"
        return load(f"cluster: c\n{hosts}\nnodes: [{{}}]", file="x").hosts[0]

    connection.configure(host("true"))
    before = connection.around.simulation.agents
    for each in ("{api: 'http://192.0.2.1'}", "{port: 7}", "{failures: 1}", "{command: 1s}"):
        connection.configure(host(each))
        assert connection.around.simulation.agents not in (None, before)


def test_a_world_is_written_down_piece_by_piece_so_that_other_threads_have_their_turn() -> None:
    world = World()
    pieces = 100
    world.running.update({UUID(int=each): Running() for each in range(pieces)})
    calls: list[str] = []

    def called(_frame: object, event: str, what: object) -> None:
        if event == "c_call":
            calls.append(getattr(what, "__name__", ""))

    sys.setprofile(called)
    try:
        Snapshot.of(world).encoded()
    finally:
        sys.setprofile(None)
    assert calls.count("encode") == pieces + 1, "and the boot"


async def test_a_machine_has_the_volumes_of_its_own_cluster(
    connection: SimulatedConnection, bench: Bench
) -> None:
    """They have the same names as those of another one."""
    other = replace(bench, cluster=uuid4())
    mine, theirs = rack_for(bench), rack_for(other)
    assert isinstance(theirs.blank.shape, Volume)
    await make(bench, *mine.all)
    larger = replace(theirs.blank, shape=replace(theirs.blank.shape, size=99 << 20))
    await make(other, theirs.pool, theirs.image, larger, theirs.machine)
    world = connection.around.world
    assert world.volume_of(mine.uuid, "m0-0") == mine.blank.shape
    assert world.volume_of(theirs.uuid, "m0-0") == larger.shape
    assert world.volume_of(theirs.uuid, "m0-1") is None
    assert world.volume_of(uuid4(), "m0-0") is None


async def test_a_machine_that_another_removes_meanwhile_fails_no_look(bench: Bench) -> None:
    """All clusters of a host may be looked at together, in slices: a plan of one user failed where
    another took machines down at that moment.
    """
    racks = [rack_for(bench), rack_for(bench)]
    for each in racks:
        await make(bench, *each.all)
    connection = bench.connection
    assert isinstance(connection, SimulatedConnection)
    machines = connection.machine_driver
    del machines.around.world.running[racks[0].uuid]  # as its removal does, between two slices
    found = await machines.observe(None)
    shapes = [each.shape for each in found if isinstance(each.shape, Machine)]
    assert {each.uuid for each in shapes} == {each.uuid for each in racks}
    assert not any(each.running for each in found)
