"""Servers that a cloud shelves when they are powered off: off at once, started from an image."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.openstack_hosts.test_roots import ONE, open_seed
from tests.openstack_hosts.test_snapshots import PLAN, make, shape_of, vm

from nospoon.clusterfile.load import load
from nospoon.model.connections import WhenOff
from nospoon.model.machine import Outcome, PowerCommand, PowerState
from nospoon.model.resources.resource import Resource
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import OFF, ON, SHELVED, FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """cluster: c
hosts: {{cloud: {{openstack: {{cloud: {{name: x, auth: {{auth_url: 'http://k'}}}}, {}}}}}}}
nodes: []
"""


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def shelved() -> Resource:
    return replace(vm(), shape=replace(shape_of(vm()), shelved=True))


@pytest.mark.parametrize(
    ("said", "off", "one", "two"),
    [
        ("", WhenOff.STOP, False, False),
        ("off: shelve", WhenOff.SHELVE, True, False),
        ("off: shelve, volumes: true", WhenOff.SHELVE, True, True),
    ],
)
def test_a_file_says_what_becomes_of_servers_that_are_off(
    said: str, off: WhenOff, *, one: bool, two: bool
) -> None:
    (host,) = load(FILE.format(said or "flavors: [any]"), file="x").hosts
    assert host.connection.off is off
    assert [host.connection.shelves(count) for count in (1, 2)] == [one, two]


async def test_a_server_is_off_before_it_is_shelved_and_waits_for_that_to_be_started(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, shelved())
    machines, uuid = connection.machine_driver, shape_of(vm()).uuid
    (record,) = cloud.servers.values()
    assert await machines.power(uuid, PowerCommand.OFF, PLAN) is Outcome.CHANGED
    assert (record["status"], record["OS-EXT-STS:task_state"]) == (OFF, "shelve")
    assert [each.power for each in await machines.machines()] == [PowerState.OFF]
    assert await machines.power(uuid, PowerCommand.ON, PLAN) is Outcome.CHANGED
    assert cloud.acted == ["os-stop", "shelve", "unshelve"]
    assert record["status"] == ON
    assert await machines.power(uuid, PowerCommand.SOFT, PLAN) is Outcome.CHANGED
    assert await machines.power(uuid, PowerCommand.OFF, PLAN) is Outcome.UNCHANGED
    assert cloud.acted[3:] == ["os-stop", "shelve"]
    (seen,) = await machines.observe(None)
    assert seen.shape == shelved().shape


async def test_a_server_whose_guest_ended_is_shelved_by_the_next_power_off(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, shelved())
    machines, uuid = connection.machine_driver, shape_of(vm()).uuid
    (record,) = cloud.servers.values()
    record["status"] = OFF
    assert await machines.power(uuid, PowerCommand.OFF, PLAN) is Outcome.UNCHANGED
    assert cloud.acted == ["shelve"]


async def test_a_reset_shelves_nothing(cloud: FakeCloud, connection: OpenStackConnection) -> None:
    await make(connection, shelved())
    uuid = shape_of(vm()).uuid
    for command in (PowerCommand.CYCLE, PowerCommand.RESET):
        await connection.machine_driver.power(uuid, command, PLAN)
    assert cloud.acted == ["os-stop", "os-start", "reboot"]


async def test_a_change_of_a_shelved_server_takes_it_out_first(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, shelved())
    machines, uuid = connection.machine_driver, shape_of(vm()).uuid
    await machines.power(uuid, PowerCommand.OFF, PLAN)
    (seen,) = await machines.observe(None)
    await machines.change(seen, vm(), ONE)
    (record,) = cloud.servers.values()
    assert record["status"] == OFF
    assert cloud.acted == ["os-stop", "shelve", "unshelve", "os-stop"]
    (seen,) = await machines.observe(None)
    assert seen.shape == vm().shape


async def test_a_changed_server_that_was_shelved_is_shelved_again(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """One that was off, and is to be shelved at its next power-off, is left off."""
    await make(connection, shelved())
    machines, uuid = connection.machine_driver, shape_of(vm()).uuid
    await machines.power(uuid, PowerCommand.OFF, PLAN)
    (seen,) = await machines.observe(None)
    changed = replace(shelved(), shape=replace(shape_of(shelved()), ipv6=True))
    await machines.change(seen, changed, ONE)
    assert cloud.acted == ["os-stop", "shelve", "unshelve", "os-stop", "shelve"]
    await machines.machines()
    (record,) = cloud.servers.values()
    assert record["status"] == SHELVED
    (seen,) = await machines.observe(None)
    assert seen.shape == changed.shape
    assert not seen.running
    await machines.power(uuid, PowerCommand.ON, PLAN)
    record["status"], cloud.acted[:] = OFF, []
    await machines.change(seen, shelved(), ONE)
    assert cloud.acted == []


async def test_a_snapshot_is_restored_to_a_server_that_is_shelved_and_of_none(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states = await make(connection, shelved())
    machines, uuid = connection.machine_driver, shape_of(vm()).uuid
    assert await states.pause(uuid)
    await states.create(uuid, "first")
    await states.resume(uuid)
    await machines.power(uuid, PowerCommand.OFF, PLAN)
    await machines.machines()
    assert "its server is shelved_offloaded" in await states.refusal(uuid)
    await states.restore(uuid, "first")
    await machines.machines()
    (record,) = cloud.servers.values()
    assert (record["status"], record["image"]["id"]) == (SHELVED, list(cloud.images)[-1])
    assert "rebuild" in cloud.acted
