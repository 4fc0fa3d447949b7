"""Looks at servers that are waited for: how often, and what of them others hear."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from tests.openstack_hosts.test_calls import made, many

from nospoon.model.machine import MachineChange, MachineEvent, PowerCommand
from nospoon.model.resources.machines import Machine
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.looks import SELDOMEST, Pace
from nospoon.providers.openstack.roster import SKEW
from nospoon.runtime import clock
from nospoon.testing.fake_cloud import OFF, FakeCloud
from nospoon.testing.racks import PLAN, Bench

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
ALL = "GET /compute/v2.1/servers/detail"


def looks(pace: Pace, *events: float) -> list[float]:
    """When servers are looked at until the last of these moments was seen."""
    found, left = list[float](), sorted(events)
    while left:
        found.append(pace.due)
        seen = [each for each in left if each <= pace.due]
        left = left[len(seen) :]
        pace.looked(pace.due, is_new=bool(seen))
    return found


def test_looks_become_as_rare_as_what_happens() -> None:
    pace = Pace(0.5)
    pace.begin(0.5)
    every_five = [5.0 * n for n in range(1, 41)]
    found = looks(pace, *every_five)
    assert len(found) <= 3 * len(every_five)
    assert found[-1] - every_five[-1] <= SELDOMEST * 0.5
    often = Pace(0.5)
    often.begin(0.5)
    assert len(looks(often, *(0.5 * n for n in range(1, 41)))) <= 40
    assert often.pause == 0.5


async def test_what_waits_says_itself_what_became_of_its_server_and_the_watch_hears_the_rest(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection
) -> None:
    """The list of those who wait is that of the watch."""
    pairs = await many(bench)
    await made(bench, pairs)
    first, second, third, *_ = (
        each.shape.uuid for _, each in pairs if isinstance(each.shape, Machine)
    )
    driver = connection.machine_driver
    for each in (first, second, third):
        await driver.power(each, PowerCommand.ON, PLAN)
    heard = list[MachineEvent]()
    ready, ended = asyncio.Event(), asyncio.Event()
    awaited = {
        (third, MachineChange.SHUTDOWN),
        (first, MachineChange.STOPPED),
        (second, MachineChange.STOPPED),
    }

    async def listen() -> None:
        async for event in driver.watch():
            heard.append(event)
            ready.set()
            awaited.discard((event.uuid, event.change))
            if not awaited:
                ended.set()

    watching = asyncio.create_task(listen())  # noqa: TID251
    await ready.wait()
    server = await driver._roster.id_of(third)
    cloud.servers[str(server)] |= {"status": OFF, "updated": cloud.now()}
    before = cloud.calls[ALL]
    await asyncio.gather(*(driver.power(each, PowerCommand.OFF, PLAN) for each in (first, second)))
    await ended.wait()
    watching.cancel()
    changes = {(each.uuid, each.change) for each in heard}
    assert changes.isdisjoint({(each, MachineChange.SHUTDOWN) for each in (first, second)})
    assert cloud.calls[ALL] > before


async def test_a_server_that_went_between_two_lists_of_all_is_gone(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection
) -> None:
    pairs = await many(bench)
    await made(bench, pairs)
    roster = connection.machine_driver._roster
    found, _, _ = await roster.changed("")
    victim = found[0]
    cloud.remove(str(victim.id))
    _, gone, _ = await roster.changed("")
    assert gone == {victim.id}


async def test_a_list_of_all_hides_nothing_that_went(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection
) -> None:
    """Others delete a server, and another list of all comes before that of those who wait."""
    pairs = await many(bench)
    await made(bench, pairs)
    third, *others = (each.shape.uuid for _, each in pairs if isinstance(each.shape, Machine))
    driver = connection.machine_driver
    looks = driver._watched.looks
    await looks.since(clock.monotonic())
    server = await driver._roster.id_of(third)
    await driver.machines()
    cloud.remove(str(server))
    looks._is_whole = False  # as after a minute in which no one waited
    await driver._roster.servers()
    with driver._watched._feed.listen() as queue:
        await asyncio.gather(*(driver.power(e, PowerCommand.ON, PLAN) for e in others))
        await looks.since(clock.monotonic())
        heard = [queue.get_nowait() for _ in range(queue.qsize())]
    assert (third, MachineChange.UNDEFINED) in {(each.uuid, each.change) for each in heard}


async def test_what_was_written_by_a_clock_that_is_behind_is_seen(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection
) -> None:
    pairs = await many(bench)
    await made(bench, pairs)
    roster = connection.machine_driver._roster
    found, _, since = await roster.changed("")
    earlier = datetime.fromisoformat(since) - SKEW
    written = {"status": "ERROR", "updated": earlier.isoformat().replace("+00:00", "Z")}
    cloud.servers[str(found[0].id)] |= written
    seen, _, _ = await roster.changed(since)
    assert [each.status for each in seen if each.id == found[0].id] == ["ERROR"]
