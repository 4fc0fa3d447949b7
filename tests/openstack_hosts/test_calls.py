"""How many calls of a cloud's API many nodes take that are made, switched and removed together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Port
from nospoon.model.resources.resource import Observed, Resource
from nospoon.plan import identity
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.racks import PLAN, Bench, any_rack, make, observe_all

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
COUNT, LOOKS = 10, 6
MOST = COUNT * LOOKS // 2
"""Of looks at single servers: who is the last to wait, as on a busy machine, looks alone."""
MORE = 5
"""Calls for a node that a loop over the bare API would not make: it creates a port and a server and
stops it, starts it, stops it, and deletes both.
"""
ONE, ALL = "GET /compute/v2.1/servers/ID", "GET /compute/v2.1/servers/detail"
Pair = tuple[Resource, Resource]


async def many(bench: Bench) -> list[Pair]:
    """Ports and machines as those of the kit's rack, which is made."""
    rack = list(any_rack(bench).all)
    await make(bench, *rack)
    (port,) = (each for each in rack if isinstance(each.shape, Port))
    (machine,) = (each for each in rack if isinstance(each.shape, Machine))
    return [_another(bench, port, machine, f"n{number}") for number in range(COUNT)]


def _another(bench: Bench, port: Resource, machine: Resource, name: str) -> Pair:
    assert isinstance(port.shape, Port)
    assert isinstance(machine.shape, Machine)
    uuid = identity.node_uuid(bench.cluster, name)
    mac = identity.mac_address(uuid, 0)
    key = Key(Kind.PORT, bench.host, f"{name}-0")
    (nic,), (disk,) = machine.shape.nics, machine.shape.disks
    made = replace(
        machine.shape,
        uuid=uuid,
        nics=(replace(nic, mac=mac, port=identity.port_name(uuid, 0)),),
        disks=(replace(disk, volume=f"{name}-0"),),
    )
    return (
        Resource(key, replace(port.shape, mac=mac), port.needs, name),
        Resource(Key(Kind.MACHINE, bench.host, name), made, (key,), name),
    )


async def made(bench: Bench, pairs: list[Pair]) -> None:
    await asyncio.gather(*(make(bench, *pair) for pair in pairs))


async def remove(bench: Bench, found: Mapping[Key, Observed], pair: Pair) -> None:
    for each in reversed(pair):
        await bench.connection.drivers[each.key.kind].delete(found[each.key])


async def test_nodes_that_are_made_together_share_what_they_ask(
    cloud: FakeCloud, bench: Bench
) -> None:
    pairs = await many(bench)
    cloud.slow = LOOKS
    cloud.calls.clear()
    await made(bench, pairs)
    assert cloud.calls["GET /compute/v2.1/flavors"] < COUNT / 2
    assert cloud.calls[ONE] <= MOST
    found = await observe_all(bench)
    assert all(machine.key in found for _, machine in pairs)


async def test_nodes_that_are_switched_together_are_looked_at_together(
    cloud: FakeCloud, bench: Bench
) -> None:
    pairs = await many(bench)
    await made(bench, pairs)
    driver = bench.connection.machine_driver
    uuids = [pair[1].shape.uuid for pair in pairs if isinstance(pair[1].shape, Machine)]

    async def switch(command: PowerCommand) -> None:
        await asyncio.gather(*(driver.power(uuid, command, PLAN) for uuid in uuids))
        powers = {each.uuid: each.power for each in await driver.machines()}
        expected = PowerState.ON if command is PowerCommand.ON else PowerState.OFF
        assert {powers[uuid] for uuid in uuids} == {expected}

    cloud.slow = LOOKS
    for command in (PowerCommand.ON, PowerCommand.OFF):
        cloud.calls.clear()
        await switch(command)
        assert cloud.calls[ONE] <= MOST, "each is asked for once, and all together later"
        assert cloud.calls[ALL] >= 1


async def test_no_more_calls_are_made_than_a_few_beside_those_of_a_loop(
    cloud: FakeCloud, bench: Bench
) -> None:
    pairs = await many(bench)
    driver = bench.connection.machine_driver
    uuids = [pair[1].shape.uuid for pair in pairs if isinstance(pair[1].shape, Machine)]

    async def switch(command: PowerCommand) -> None:
        await asyncio.gather(*(driver.power(uuid, command, PLAN) for uuid in uuids))

    async def delete() -> None:
        found = await observe_all(bench)
        await asyncio.gather(*(remove(bench, found, pair) for pair in pairs))

    cloud.slow = LOOKS
    for act, bare in (
        (made(bench, pairs), 3),
        (switch(PowerCommand.ON), 1),
        (switch(PowerCommand.OFF), 1),
        (delete(), 2),
    ):
        cloud.calls.clear()
        await act
        assert cloud.calls.total() <= (bare + MORE) * COUNT, cloud.calls
