"""BMCs whose cluster file says `redfish_auth: none` need no login; others beside them do."""

from __future__ import annotations

from dataclasses import replace
from socket import gethostname

import pytest

from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import SYSTEMS, Client, basic, system_of

SESSIONS = "/redfish/v1/SessionService/Sessions"


async def opened(b: Bench, config: BmcConfig, *, login: bool = False) -> None:
    await b.service.put(replace(config, bmc=replace(config.bmc, redfish_login=login)))


async def names(client: Client) -> set[str]:
    listed = (await client.get(SYSTEMS)).json["Members"]
    return {each["@odata.id"] for each in listed}


async def reset(client: Client, config: BmcConfig, **headers: str) -> int:
    path = f"{system_of(config)}/Actions/ComputerSystem.Reset"
    return (await client.ask("POST", path, {"ResetType": "On"}, **headers)).status


async def test_a_stranger_uses_what_needs_no_login_and_nothing_else() -> None:
    async with bench(3) as b:
        free, closed, other = b.configs
        await opened(b, free)
        stranger = Client(free, {})
        assert await names(stranger) == {system_of(free)}
        assert (await stranger.get(system_of(closed))).status == 404
        assert await reset(stranger, closed) == 404
        assert await reset(stranger, free) == 204
        assert b.machines.told[-1][:2] == (free.bmc.uuid, PowerCommand.ON)
        assert await names(Client(closed, basic(closed))) == {system_of(closed)}
        await opened(b, other)
        assert await names(stranger) == {system_of(free), system_of(other)}


async def test_credentials_that_are_not_needed_may_be_any() -> None:
    async with bench(2) as b:
        free = b.first
        await opened(b, free)
        given = {"UserName": "somebody", "Password": "something"}
        session = await Client(free, {}).ask("POST", SESSIONS, given)
        assert session.status == 201
        by_token = Client(free, {"X-Auth-Token": session.headers["x-auth-token"]})
        for client in (by_token, Client(free, basic(free, "wrong"))):
            assert await names(client) == {system_of(free)}
        assert await reset(Client(free, basic(free)), free) == 204


async def test_pages_of_other_sites_in_a_browser_have_to_log_in() -> None:
    """RFC 6454 §7.3: browsers say where a request comes from."""
    async with bench(1) as b:
        await opened(b, b.first)
        evil = {"Origin": "http://evil.example"}
        assert await reset(Client(b.first, evil), b.first) == 401
        assert await reset(Client(b.first, {**evil, **basic(b.first, "wrong")}), b.first) == 401
        assert await reset(Client(b.first, {**evil, **basic(b.first)}), b.first) == 204


@pytest.mark.parametrize("host", ["rebound.evil.example:8000", "127.0.0.1.evil.example", "1.2.3"])
async def test_names_that_others_may_have_lead_here_need_a_login(host: str) -> None:
    """A page of a site whose name was made to lead here reads as if it were its own."""
    async with bench(1) as b:
        await opened(b, b.first)
        rebound = {"Host": host}
        assert (await Client(b.first, rebound).get(SYSTEMS)).status == 401
        wrong = Client(b.first, {**rebound, **basic(b.first, "wrong")})
        assert (await wrong.get(SYSTEMS)).status == 401
        assert (await Client(b.first, {**rebound, **basic(b.first)}).get(SYSTEMS)).status == 200


@pytest.mark.parametrize(
    "host", ["192.0.2.1", "[2001:db8::1]:8000", "LOCALHOST:80", "a.localhost", "bmc", gethostname()]
)
async def test_names_that_lead_here_only_for_those_who_are_here_need_none(host: str) -> None:
    async with bench(1) as b:
        await opened(b, b.first)
        assert (await Client(b.first, {"Host": host}).get(SYSTEMS)).status == 200


async def test_what_needs_a_login_again_is_closed_at_once() -> None:
    async with bench(1) as b:
        await opened(b, b.first)
        given = {"UserName": "a", "Password": "b"}
        token = (await Client(b.first, {}).ask("POST", SESSIONS, given)).headers["x-auth-token"]
        await opened(b, b.first, login=True)
        for headers in ({}, {"X-Auth-Token": token}):
            assert (await Client(b.first, headers).get(SYSTEMS)).status == 401
        assert await names(Client(b.first, basic(b.first))) == {system_of(b.first)}
