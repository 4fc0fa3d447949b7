"""Hosts in use: a connection is kept as long as a machine needs it, and for a while after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from nospoon.control.fleet.hosts import EVENTS_AT_ONCE, Hosts
from nospoon.errors import Gone
from nospoon.model.cluster import Host
from nospoon.model.connections import Libvirt, Simulated, Simulation
from nospoon.model.declared import Console, Declared, Uuids
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image
from nospoon.providers.base import Connection
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.runtime.tasks import Tasks
from nospoon.testing.cloud_connection import AT
from nospoon.testing.cloud_like import DECLARED, NETWORK, CloudLike, CloudLikeConnection, assigned
from nospoon.testing.racks import Bench, make, rack_for

RACK = Host("rack", Simulated())


class Opened:
    """Connects to simulated hosts, and counts."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []

    def __call__(self, host: Host) -> Connection:
        self.connections.append(SimulatedConnection(host.name, "deployment", lambda: 0.0))
        return self.connections[-1]


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks("test") as made:
        yield made


async def test_a_connection_that_no_machine_needs_is_closed(tasks: Tasks, tmp_path: Path) -> None:
    opened = Opened()
    hosts = Hosts(opened, tasks, lambda _: None, sockets=tmp_path)
    machine = uuid4()
    hosts.settle(machine, RACK)
    watch = hosts.host_of(machine).watch
    assert watch is not None
    await hosts.close_idle(0)
    assert hosts.use(RACK).watch is watch, "its machine needs it"
    hosts.forget(machine)
    await hosts.close_idle(60)
    assert hosts.use(RACK).watch is watch, "somebody asked for it of late"
    await hosts.close_idle(0)
    assert watch.cancelled()
    hosts.use(RACK)
    assert len(opened.connections) == 2


async def test_a_connection_by_which_an_operation_changes_something_stays_open(
    tasks: Tasks, tmp_path: Path
) -> None:
    """The first machines of a cluster are not known yet: a relay takes minutes before them."""
    opened = Opened()
    hosts = Hosts(opened, tasks, lambda _: None, sockets=tmp_path)
    other = replace(RACK, name="other")
    drivers = {("rack", kind): each for kind, each in hosts.use(RACK).connection.drivers.items()}
    hosts.use(other)
    with hosts.held(drivers), hosts.held(drivers):
        await hosts.close_idle(-1)
        hosts.use(RACK)
        assert len(opened.connections) == 2
        hosts.use(other)
        assert len(opened.connections) == 3, "nothing held the other one"
    await hosts.close_idle(60)
    hosts.use(RACK)
    assert len(opened.connections) == 3, "it was needed of late"
    await hosts.close_idle(-1)
    hosts.use(RACK)
    assert len(opened.connections) == 4


async def test_machines_of_one_cluster_are_looked_at_without_all_others(
    tasks: Tasks, tmp_path: Path
) -> None:
    connection = SimulatedConnection("rack", "deployment", lambda: 0.0)
    wanted, other = uuid4(), uuid4()

    async def machines() -> list[MachineEvent]:
        off = (MachineChange.OBSERVED, PowerState.OFF)
        return [MachineEvent(each, *off) for each in (wanted, other)]

    connection.machine_driver.machines = machines  # type: ignore[method-assign]
    seen: list[MachineEvent] = []
    hosts = Hosts(lambda _: connection, tasks, seen.append, sockets=tmp_path)
    hosts.use(RACK)
    await hosts.look(RACK, {wanted})
    assert [each.uuid for each in seen] == [wanted]
    await hosts.look(RACK)
    assert [each.uuid for each in seen] == [wanted, wanted, other]


async def test_many_events_at_once_leave_others_their_turn(tasks: Tasks, tmp_path: Path) -> None:
    connection = SimulatedConnection("rack", "deployment", lambda: 0.0)
    seen: list[MachineEvent] = []
    hosts = Hosts(lambda _: connection, tasks, seen.append, sockets=tmp_path)
    machine = uuid4()
    hosts.settle(machine, RACK)
    feed = connection.around.feed
    event = MachineEvent(machine, MachineChange.OBSERVED, PowerState.OFF)
    async with asyncio.timeout(20):
        while not seen:
            feed.publish(event)
            await asyncio.sleep(0)
    seen.clear()
    for _ in range(EVENTS_AT_ONCE * 10):
        feed.publish(event)
    steps = [0]
    while len(seen) < EVENTS_AT_ONCE * 10:
        await asyncio.sleep(0)
        steps.append(len(seen))
    assert max(later - sooner for sooner, later in pairwise(steps)) <= EVENTS_AT_ONCE


async def test_hosts_that_lead_to_one_machine_are_known_by_it(tasks: Tasks, tmp_path: Path) -> None:
    hosts = Hosts(Opened(), tasks, lambda _: None, sockets=tmp_path)
    again, unasked = replace(RACK, name="again"), replace(RACK, name="unasked")
    for host in (RACK, again):
        can = await hosts.capabilities(host)
        hosts.use(host).capabilities = replace(can, identity="m")
    hosts.use(unasked)
    assert hosts.names_of({"m"}) == {"m", "rack", "again"}
    assert hosts.names_of({"unasked"}) == {"unasked"}
    assert hosts.identity_at(("again", *again.place)) == "m"
    assert hosts.identity_at(("elsewhere",)) == "elsewhere"


async def events_at(place: Host, tasks: Tasks, sockets: Path) -> list[MachineEvent]:
    """What is heard of a machine whose host says by which UUID its guest knows it."""
    connection = CloudLikeConnection(Simulation())
    bench = Bench(
        connection, place, "kit", "/pools", Image("", "ab" * 32, "raw", 1), nothing, nothing,
        flavor="tiny", network=NETWORK,
    )  # fmt: skip
    await make(bench, *rack_for(bench).all)
    heard = list[MachineEvent]()
    await Hosts(lambda _: connection, tasks, heard.append, sockets=sockets).look(place)
    await connection.close()
    return heard


async def nothing(resource: Resource) -> None:
    del resource


async def test_a_host_names_machines_for_their_guests_where_it_assigns_uuids(
    tasks: Tasks, tmp_path: Path
) -> None:
    """Else it would have itself answered with another machine's boot script."""
    (event,) = await events_at(Host("cloudlike", CloudLike()), tasks, tmp_path)
    assert event.smbios == assigned(event.uuid)
    (event,) = await events_at(Host("cloudlike", Chosen()), tasks, tmp_path)
    assert event.smbios is None


@dataclass(frozen=True, slots=True)
class Chosen(CloudLike):
    """UUIDs alone are as nospoon chooses them."""

    @property
    def declares(self) -> Declared:
        return replace(DECLARED, uuids=Uuids.CHOSEN, console=Console.NONE)


async def test_where_machines_have_no_console_that_is_said(tasks: Tasks, tmp_path: Path) -> None:
    hosts, silent, machine = Hosts(Opened(), tasks, print, sockets=tmp_path), uuid4(), uuid4()
    hosts.settle(silent, Host("s", Chosen()))
    hosts.settle(machine, RACK)
    assert hosts.console(machine) is hosts.driver(machine)
    with pytest.raises(Gone, match="machines of host s have no serial console"):
        hosts.console(silent)


async def test_consoles_that_this_daemon_logs_are_not_looked_for_on_their_host(
    tasks: Tasks, tmp_path: Path
) -> None:
    """Simulated machines beside those of a host over ssh had its records looked at for them."""
    hosts, here, there = Hosts(Opened(), tasks, print, sockets=tmp_path), uuid4(), uuid4()
    hosts.settle(here, Host("kvm1:simulated", Simulated(), ssh="kvm1"))
    hosts.settle(there, Host("kvm1", Libvirt("qemu+ssh://kvm1/system"), ssh="kvm1"))
    assert hosts.logged_at("kvm1") == {there}
    assert hosts.is_on("kvm1", here)


async def test_places_are_called_as_they_declare(tasks: Tasks, tmp_path: Path) -> None:
    hosts, cloud = Hosts(Opened(), tasks, print, sockets=tmp_path), replace(AT, name="cloud")
    places = {each.name: hosts.use(each).connection.drivers for each in (RACK, cloud)}
    drivers = {(name, kind): d for name, each in places.items() for kind, d in each.items()}
    hosts.use(Host("other", Simulated()))
    assert hosts.calls(drivers) == {"rack": RACK.declares.calls, "cloud": AT.declares.calls}
