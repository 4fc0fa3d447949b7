"""Between nospoon and a cloud, connections hang, are reset and lose answers: a clear error, and the
next try makes and removes nothing twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.errors import HostUnreachable, NospoonError
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.providers.openstack import servers
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.roster import MADE
from nospoon.runtime.tasks import Tasks
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.faulty import Front, LineFault, in_front_of
from nospoon.testing.racks import PLAN, Bench, any_rack, make, observe_all, remove_all

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
UPLOAD = "PUT /image/v2/images/.*/file"
MAKING = (
    "POST /image/v2/images$", UPLOAD, "POST /network/v2.0/networks",
    "POST /network/v2.0/subnets", "POST /network/v2.0/ports", "POST /compute/v2.1/servers$",
    "POST /compute/v2.1/servers/.*/action", "GET /compute/v2.1/servers/",
)  # fmt: skip
REMOVING = (
    "DELETE /compute/v2.1/servers/", "DELETE /network/v2.0/ports/",
    "DELETE /network/v2.0/networks/", "DELETE /image/v2/images/",
)  # fmt: skip


HANGING = ("POST /compute/v2.1/servers$", "GET /compute/v2.1/servers/", REMOVING[0])
"""Of all that is lost, this takes until a call is over: three are enough."""
PATIENCE = 5
"""Seconds until one is."""


@pytest.fixture
def front(cloud: FakeCloud) -> Iterator[Front]:
    cloud.api_timeout = PATIENCE
    with in_front_of(cloud.url) as made:
        cloud.url = made.url
        yield made


@pytest.fixture
async def watched(front: Front, connection: OpenStackConnection) -> AsyncIterator[None]:
    """As in a daemon, somebody looks at the servers: what is under way in this cloud goes on with
    looks. By the front, which was there before.
    """
    del front

    async def watch() -> None:
        async for _ in connection.machine_driver.watch():
            pass

    tasks = Tasks("a test")
    tasks.start(watch(), name="watch a cloud")
    yield
    await tasks.close()


def lost(calls: Iterable[str], *more: LineFault | int) -> list[tuple[str, LineFault | int]]:
    """Calls, and what becomes of them."""
    usual = (LineFault.RESET, LineFault.LOSE, *more)
    pairs = [(call, fault) for call in calls for fault in usual]
    slow = (LineFault.HANG, LineFault.SWALLOW)
    hanging = [(call, fault) for call in calls if call in HANGING for fault in slow]
    return [*(pair for pair in pairs if pair != (UPLOAD, LineFault.TRUNCATE)), *hanging]


@pytest.mark.parametrize(("call", "fault"), lost(MAKING, LineFault.TRUNCATE, 503))
async def test_a_call_whose_answer_is_lost_is_told_and_the_next_try_completes(
    cloud: FakeCloud, front: Front, bench: Bench, call: str, fault: LineFault | int
) -> None:
    before, rack = cloud.everything(), any_rack(bench)
    front.inject(call, fault, times=9)
    with pytest.raises(NospoonError) as failed:
        await make(bench, *rack.all)
    assert front.met
    said = str(fault) if isinstance(fault, int) else "does not answer"
    assert said in str(failed.value)
    front.clear()
    await make(bench, *rack.all)
    assert {key: each.shape for key, each in (await observe_all(bench)).items()} == {
        each.key: each.shape for each in rack.all
    }
    assert len(cloud.servers) == 1
    await remove_all(bench)
    assert cloud.everything() == before


@pytest.mark.parametrize(("call", "fault"), lost(REMOVING, 401, 403, 404, 409, 429, 500, 503))
async def test_a_removal_that_fails_is_told_and_the_next_one_completes(
    cloud: FakeCloud, front: Front, bench: Bench, call: str, fault: LineFault | int
) -> None:
    before, rack = cloud.everything(), any_rack(bench)
    await make(bench, *rack.all)
    front.inject(call, fault, times=9)
    with pytest.raises(NospoonError) as failed:
        await remove_all(bench)
    assert front.met
    said = str(fault) if isinstance(fault, int) else "does not answer"
    assert said in str(failed.value)
    front.clear()
    await remove_all(bench)
    assert cloud.everything() == before


@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("fault", [LineFault.HANG, LineFault.LOSE])
async def test_a_power_command_whose_answer_was_lost_is_given_again(
    cloud: FakeCloud, front: Front, bench: Bench, connection: OpenStackConnection, fault: LineFault
) -> None:
    """The server is still on its way when it is looked at, and there when it is told to go."""
    rack, drivers = any_rack(bench), connection.machine_driver
    await make(bench, *rack.all)
    cloud.slow = 3
    for command in (PowerCommand.ON, PowerCommand.OFF):
        front.inject("POST /compute/v2.1/servers/.*/action", fault)
        with pytest.raises(HostUnreachable, match="does not answer"):
            await drivers.power(rack.uuid, command, PLAN)
        await drivers.power(rack.uuid, command, PLAN)
        (server,) = cloud.servers.values()
        assert server["status"] == {"on": "ACTIVE", "off": "SHUTOFF"}[command]
    await remove_all(bench)


SERVERS = "POST /compute/v2.1/servers$"


async def test_a_server_that_is_made_after_its_call_was_given_up_is_waited_for(
    cloud: FakeCloud, front: Front, bench: Bench
) -> None:
    """A cloud that was slow made two, at the same port."""
    before, rack = cloud.everything(), any_rack(bench)
    front.inject(SERVERS, LineFault.LATE)
    with pytest.raises(HostUnreachable, match="does not answer"):
        await make(bench, *rack.all)

    def heard(call: str) -> None:
        if call.startswith("GET /compute/v2.1/servers/detail"):
            front.late.set()

    cloud.heard = heard
    await make(bench, *rack.all)
    assert len(cloud.servers) == 1
    cloud.heard = None
    await remove_all(bench)
    assert cloud.everything() == before


async def test_servers_that_no_one_tries_again_are_not_remembered(
    front: Front, bench: Bench, connection: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cloud that resets each call had the daemon remember as many machines as a user made up."""
    monkeypatch.setattr(servers, "LATE", 0)
    front.inject(SERVERS, LineFault.RESET, times=9)
    rack = any_rack(bench)
    assert isinstance(rack.machine.shape, Machine)
    with pytest.raises(HostUnreachable, match="does not answer"):
        await make(bench, *rack.all)
    for number in range(2):
        machine = replace(rack.machine, shape=replace(rack.machine.shape, uuid=UUID(int=number)))
        with pytest.raises(HostUnreachable, match="does not answer"):
            await connection.machine_driver.create(machine, bench.tag)
    assert len(connection.machine_driver._late) == 1


async def test_no_server_is_waited_for_that_a_cloud_refused_to_make(
    cloud: FakeCloud, front: Front, bench: Bench
) -> None:
    rack, looks = any_rack(bench), list[str]()
    front.inject(SERVERS, 503, times=99)
    with pytest.raises(HostUnreachable, match="503"):
        await make(bench, *rack.all)
    front.clear()
    cloud.heard = looks.append
    await make(bench, rack.machine)
    assert len([each for each in looks if "GET /compute/v2.1/servers/detail" in each]) < 10
    assert len(cloud.servers) == 1
    await remove_all(bench)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_of_two_servers_of_a_machine_one_goes_or_both(
    cloud: FakeCloud, bench: Bench, *, is_kept: bool
) -> None:
    """As a cloud left them that made the first one even later."""
    before, rack = cloud.everything(), any_rack(bench)
    await make(bench, *rack.all)
    (kept,) = cloud.servers
    for id_, status in ((f"{0:08}{kept[8:]}", "ERROR"), (f"{'f' * 8}{kept[8:]}", "ACTIVE")):
        metadata = {k: v for k, v in cloud.servers[kept]["metadata"].items() if k != MADE}
        twin = {**cloud.servers[kept], "id": id_, "status": status, "metadata": metadata}
        cloud.servers[id_] = twin
    driver = bench.connection.drivers[Kind.MACHINE]
    if is_kept:
        (seen,) = await driver.observe(None)
        assert seen.shape != rack.machine.shape, "so that a plan changes it"
        await driver.change(seen, rack.machine, bench.tag)
        assert list(cloud.servers) == [kept]
        (seen,) = await driver.observe(None)
        assert seen.shape == rack.machine.shape
    await remove_all(bench)
    assert cloud.everything() == before
