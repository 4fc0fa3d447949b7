"""A cloud that refuses, fails and answers oddly: a clear error, and the next try works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from starlette.responses import JSONResponse, Response

from nospoon.errors import HostUnreachable, NospoonError, OutOfSpace, ProviderError, Transient
from nospoon.model.machine import PowerCommand
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud, Rule
from nospoon.testing.racks import PLAN, Bench, any_rack, make, observe_all, remove_all

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
MAKING = (
    "POST /image/v2/images", "PUT /image/v2/images/.*/file", "POST /network/v2.0/networks",
    "POST /network/v2.0/subnets", "POST /network/v2.0/ports", "POST /compute/v2.1/servers$",
    "POST /compute/v2.1/servers/.*/action", "GET /compute/v2.1/servers/",
)  # fmt: skip
LOOKING = (
    "GET /compute/v2.1/servers/detail", "GET /compute/v2.1/flavors", "GET /compute/v2.1/limits",
    "GET /network/v2.0/networks", "GET /network/v2.0/ports", "GET /image/v2/images",
)  # fmt: skip
ODD: dict[str, Callable[[], Response]] = {
    "no JSON": lambda: Response("<html>"),
    "truncated": lambda: Response('{"servers": [{'),
    "empty": lambda: JSONResponse({}),
    "a list": lambda: JSONResponse([1, 2]),
    "null": lambda: JSONResponse(None),
    "wrong types": lambda: JSONResponse(
        {
            "servers": 7, "server": [], "flavors": {"a": None}, "images": "x", "networks": [[]],
            "ports": [None], "limits": 3, "id": {}, "network": 1,
        }
    ),
}  # fmt: skip


async def test_a_server_that_is_being_built_stays_when_the_cloud_does_not_answer(
    cloud: FakeCloud, bench: Bench
) -> None:
    rack = any_rack(bench)

    def fall_silent(call: str) -> None:
        if call == "POST /compute/v2.1/servers":
            cloud.fail("GET /compute/v2.1/servers/", 502)

    cloud.heard = fall_silent
    with pytest.raises(HostUnreachable):
        await make(bench, *rack.all)
    (begun,) = cloud.servers
    cloud.heard = None
    cloud.rules.clear()
    await make(bench, *rack.all)
    assert list(cloud.servers) == [begun]
    await remove_all(bench)


@pytest.mark.parametrize("status", [401, 403, 409, 413, 500, 502])
@pytest.mark.parametrize("call", MAKING)
async def test_a_call_that_fails_is_told_and_the_next_try_completes(
    cloud: FakeCloud, bench: Bench, call: str, status: int
) -> None:
    before, rack = cloud.everything(), any_rack(bench)
    cloud.fail(call, status, times=2 if status == 401 else 1)  # a token is renewed once
    with pytest.raises(NospoonError) as failed:
        await make(bench, *rack.all)
    assert str(status) in str(failed.value) or "login" in str(failed.value)
    cloud.rules.clear()
    await make(bench, *rack.all)
    assert {key: each.shape for key, each in (await observe_all(bench)).items()} == {
        each.key: each.shape for each in rack.all
    }
    await remove_all(bench)
    assert cloud.everything() == before


async def test_a_start_that_fails_without_a_word_is_begun_again(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection
) -> None:
    """As Nova's compute fails where two servers get one port for their serial consoles."""
    rack = any_rack(bench)
    await make(bench, *rack.all)
    cloud.failing_starts = 2
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    assert cloud.failing_starts == 0
    await connection.machine_driver.power(rack.uuid, PowerCommand.OFF, PLAN)
    cloud.failing_starts = 1000
    with pytest.raises(ProviderError, match="did not start: it is SHUTOFF again after 3 tries"):
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    cloud.failing_starts = 0
    await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    await remove_all(bench)


@pytest.mark.parametrize("call", LOOKING)
async def test_what_is_put_off_is_asked_again(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection, call: str
) -> None:
    def later() -> Response:
        return JSONResponse({"error": {}}, 429, headers={"Retry-After": "0"})

    cloud.rules.append(Rule(call, later, times=2))
    await make(bench, *any_rack(bench).all)
    await connection.survey("", ())
    await observe_all(bench)
    assert cloud.rules[0].times == 0
    await remove_all(bench)


async def test_what_is_put_off_again_and_again_fails_with_when_it_may_pass(
    cloud: FakeCloud, bench: Bench
) -> None:
    """It was tried as often as is declared; the engine tries the whole call again by then."""

    def later() -> Response:
        return JSONResponse({"error": {"message": "slowly"}}, 429, headers={"Retry-After": "0"})

    cloud.rules.append(Rule(LOOKING[0], later, times=1000))
    with pytest.raises(Transient, match="429: slowly") as refused:
        await observe_all(bench)
    assert refused.value.retry_after == 0
    assert 1000 - cloud.rules[0].times == 1 + len(bench.declares.calls.pauses)


@pytest.mark.parametrize("call", LOOKING)
async def test_what_is_unavailable_again_and_again_is_asked_as_often_as_is_declared(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection, call: str
) -> None:
    """By no library between: its pauses would be as long as the cloud likes."""

    def later() -> Response:
        return JSONResponse({"error": {"message": "soon"}}, 503, headers={"Retry-After": "0"})

    async def look() -> None:
        await observe_all(bench)
        await connection.survey("", ())

    cloud.rules.append(Rule(call, later, times=1000))
    with pytest.raises(HostUnreachable, match="503: soon") as refused:
        await look()
    assert refused.value.retry_after == 0
    assert 1000 - cloud.rules[0].times == 1 + len(bench.declares.calls.pauses)


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("call", [*LOOKING, *MAKING])
async def test_odd_answers_are_errors_and_no_crashes(
    cloud: FakeCloud, bench: Bench, connection: OpenStackConnection, call: str, what: str
) -> None:
    rack = any_rack(bench)
    cloud.rules.append(Rule(call, ODD[what], times=1000))
    told = ""
    try:
        await make(bench, *rack.all)
        await observe_all(bench)
        await connection.survey("", ())
        await connection.deployments()
        await connection.machine_driver.machines()
        async for _ in connection.machine_driver.watch():
            break
        await connection.machine_driver.power(rack.uuid, PowerCommand.ON, PLAN)
    except NospoonError as error:
        told = str(error)
    assert len(told) < 1000
    cloud.rules.clear()
    await remove_all(bench)


async def test_a_server_that_nova_cannot_build_is_removed_and_told_in_its_words(
    cloud: FakeCloud, bench: Bench
) -> None:
    rack = any_rack(bench)
    *before, machine = rack.all
    await make(bench, *before)

    def failed() -> Response:
        (server,) = cloud.servers.values()
        return JSONResponse({"server": {
            **server, "status": "ERROR", "fault": {"message": "No valid host was found."},
        }})  # fmt: skip

    cloud.rules.append(Rule("GET /compute/v2.1/servers/[0-9a-f]{8}-", failed))
    with pytest.raises(OutOfSpace, match=r"No valid host was found\."):
        await make(bench, machine)
    assert not cloud.servers
    await make(bench, machine)
    assert len(cloud.servers) == 1


QUOTA = "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances"
OVER = {
    "Nova": ("POST /compute/v2.1/servers$", 403, {"forbidden": {"code": 403, "message": QUOTA}}),
    "Nova with unified limits": (
        "POST /compute/v2.1/servers$",
        403,
        {"forbidden": {"code": 403, "message": "Project 0 is over a limit for [servers]"}},
    ),
    "Neutron": (
        "POST /network/v2.0/ports",
        409,
        {"NeutronError": {"message": "Quota exceeded for resources: ['port']."}},
    ),
}


@pytest.mark.parametrize("service", OVER)
async def test_a_quota_that_is_used_up_is_want_of_capacity(
    cloud: FakeCloud, bench: Bench, service: str
) -> None:
    call, status, body = OVER[service]
    cloud.rules.append(Rule(call, lambda: JSONResponse(body, status), times=1000))
    with pytest.raises(OutOfSpace, match=f"refused with {status}: "):
        await make(bench, *any_rack(bench).all)
    cloud.rules.clear()
    cloud.rules.append(Rule(call, lambda: JSONResponse({"forbidden": {}}, 403)))
    with pytest.raises(ProviderError) as refused:
        await make(bench, *any_rack(bench).all)
    assert not isinstance(refused.value, OutOfSpace), "what a project may never do does not pass"


async def test_nothing_of_another_deployment_is_seen_or_changed(
    cloud: FakeCloud, bench: Bench
) -> None:
    other = replace(bench, deployment="other")
    await make(bench, *any_rack(bench).all)
    for server in cloud.servers.values():
        server["metadata"]["nospoon_deployment"] = "other"
    for thing in (*cloud.networks.values(), *cloud.ports.values()):
        if "description" in thing:
            thing["description"] = thing["description"].replace(":kit:", ":other:")
    for image in cloud.images.values():
        image["nospoon_deployment"] = "other"
    before = cloud.everything()
    assert not await observe_all(bench)
    await remove_all(bench)
    assert cloud.everything() == before
    assert other.deployment in await bench.connection.deployments()
