"""What a user learns of others' accounts by giving BMCs of his own the same names and passwords."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from tests.security.asked import OTHER, Asked, a_daemon
from tests.security.asked import OWNER as MEMBER

from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.bmc.users import ADMINISTRATOR, OWNER, User
from nospoon.errors import Stale
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.services.bmcs.accounts import SESSIONS_PER_NODE, Accounts
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.testing.bench import Bench, bench, config, endpoint, free_port
from nospoon.testing.redfish import SYSTEMS, Answer, system_of
from nospoon.testing.redfish_app import ROOT, Login, Redfish

SESSIONS = f"{ROOT}/SessionService/Sessions"
GUESSED = "guessed-password"
BOB = User(3, "bob", GUESSED, ADMINISTRATOR, enabled=True, messaging=True)


@asynccontextmanager
async def two(*, apart: bool, owner: int) -> AsyncIterator[tuple[Bench, BmcConfig, BmcConfig]]:
    """A BMC of owner 0, who is the attacker, with a user of a guessed name and password; and
    another, of this owner, whose account that is.
    """
    async with bench(2) as b:
        port = free_port(socket.SOCK_STREAM) if apart else b.first.bmc.redfish_port
        bmc = replace(b.configs[1].bmc, redfish_port=port, username="bob")
        await b.service.put(victim := replace(b.configs[1], password=GUESSED, bmc=bmc, owner=owner))
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        await b.service.ask(served, lambda t: SettingsRequested(Settings(users=(BOB,)), t))
        yield b, b.first, victim


async def log_in(redfish: Redfish) -> Answer:
    assert redfish.login is not None
    given = {"UserName": redfish.login.username, "Password": redfish.login.password}
    return await redfish.without_login().ask("POST", SESSIONS, given)


async def members(redfish: Redfish, path: str = SYSTEMS, **headers: str) -> set[str]:
    listed = (await redfish.ask("GET", path, **headers)).json
    return {each["@odata.id"] for each in listed["Members"]}


async def test_sessions_do_not_show_whether_bmcs_elsewhere_have_the_same_account() -> None:
    """Of the same owner, too: its other BMCs may be other clients'."""
    for owner in (0, 1):
        async with two(apart=True, owner=owner) as (b, own, victim):
            admin, guessing = Redfish.of(b), Redfish.of(b, Login("bob", GUESSED))
            made = await log_in(guessing)
            assert made.status == 201
            assert await members(admin, SESSIONS) == {made.headers["location"]}
            assert (await admin.ask("GET", made.headers["location"])).status == 200
            token = {"x_auth_token": made.headers["x-auth-token"]}
            there = guessing.without_login().at(victim)
            assert (await there.ask("GET", SYSTEMS, **token)).status == 401
            for _ in range(SESSIONS_PER_NODE):
                assert (await log_in(guessing)).status == 201
            assert (await guessing.without_login().ask("GET", SYSTEMS, **token)).status == 401
            other = {"x_auth_token": (await log_in(guessing)).headers["x-auth-token"]}
            b.service.listeners.accounts.end_sessions(own.bmc.uuid)  # its BMC restarts
            assert (await guessing.without_login().ask("GET", SYSTEMS, **other)).status == 401


async def test_sessions_opened_elsewhere_are_neither_seen_nor_ended_here() -> None:
    for owner in (0, 1):
        async with two(apart=True, owner=owner) as (b, _, victim):
            guessing = Redfish.of(b, Login("bob", GUESSED))
            theirs = (await log_in(guessing.at(victim))).headers["location"]
            assert await members(guessing, SESSIONS) == set()
            assert (await guessing.ask("GET", theirs)).status == 404
            assert (await guessing.ask("DELETE", theirs)).status == 404
            assert await members(guessing.at(victim), SESSIONS) == {theirs}


async def test_at_one_port_an_account_reaches_bmcs_of_its_owner_only() -> None:
    """Plans give a port to one owner; daemons before did not."""
    async with two(apart=False, owner=1) as (b, own, _):
        assert await members(Redfish.of(b, Login("bob", GUESSED))) == {system_of(own)}
        assert await members(Redfish.of(b)) == {system_of(own)}


async def test_without_a_login_one_reaches_bmcs_of_one_owner_at_one_port_only() -> None:
    async with bench(3) as b:
        port = free_port(socket.SOCK_STREAM)
        for each, owner, at in zip(b.configs, (0, 1, 0), (0, 0, port), strict=True):
            where = at or each.bmc.redfish_port
            bmc = replace(each.bmc, redfish_login=False, redfish_port=where)
            await b.service.put(replace(each, bmc=bmc, owner=owner))
        stranger = Redfish.of(b).without_login()
        assert await members(stranger) == {system_of(b.first)}
        given = {"UserName": "a", "Password": "b"}
        made = await stranger.ask("POST", SESSIONS, given)
        token = {"x_auth_token": made.headers["x-auth-token"]}
        apart = replace(stranger, server=(b.first.bmc.address, port))
        assert (await apart.ask("GET", SYSTEMS, **token)).status == 401
        assert await members(apart, SESSIONS) == set()


async def test_a_session_is_good_at_every_address_of_a_wildcard() -> None:
    async with bench(1) as b:
        bmc = replace(b.first.bmc, address="0.0.0.0", redfish_port=free_port(socket.SOCK_STREAM))
        await b.service.put(replace(b.first, bmc=bmc))
        here = replace(Redfish.of(b), server=("127.0.0.1", bmc.redfish_port))
        there = replace(here, server=("127.0.0.2", bmc.redfish_port)).without_login()
        token = {"x_auth_token": (await log_in(here)).headers["x-auth-token"]}
        assert await members(there, **token) == {system_of(b.first)}


async def test_event_services_of_earlier_versions_go_on() -> None:
    """They are kept under the accounts' names, which had no owner."""
    key = bytes(32)
    for open_ in (False, True):
        node = config(0, redfish_port=1)
        node = replace(node, owner=7, bmc=replace(node.bmc, redfish_login=not open_))
        accounts = Accounts(key)
        before, now = accounts.numbered_before(node, (BOB,)), accounts.numbered(node, (BOB,))
        assert before.keys() == now.keys()
        assert set(before.values()).isdisjoint(now.values())
    async with bench(1) as b:
        subscribing = Redfish.of(b)
        given = {"Destination": "http://192.0.2.9/", "Protocol": "Redfish"}
        path = f"{ROOT}/EventService/Subscriptions"
        made = await subscribing.ask("POST", path, given)
        assert made.status == 201
        (settings,) = b.store.event_settings.values()
        accounts = b.service.listeners.accounts
        (old,) = accounts.numbered_before(b.first, ()).values()
        await b.service.remove(b.first.bmc.uuid)
        b.store.event_settings.clear()
        b.service.events.restore([replace(settings, account=old.hex())])
        await b.service.put(b.first)
        assert await members(subscribing, path) == {made.headers["location"]}
        kept = {e.account for e in b.store.event_settings.values() if e.subscriptions}
        assert kept == {accounts.numbered(b.first, ())[OWNER].hex()}


async def test_a_bmc_of_another_owner_now_is_anothers() -> None:
    async with bench(1) as b:
        redfish = Redfish.of(b)
        token = {"x_auth_token": (await log_in(redfish)).headers["x-auth-token"]}
        await b.service.put(replace(b.first, owner=1))
        assert (await redfish.without_login().ask("GET", SYSTEMS, **token)).status == 401
        assert await members(redfish) == {system_of(b.first)}
        assert b.service.listeners.accounts.owners(endpoint(b.first)) == [1]


def clusters(name: str, bmc: str) -> str:
    given = f"bmc: {{{bmc}}}\n" if bmc else ""
    return f"cluster: {name}\nhosts: {{s: simulated}}\n{given}nodes: [{{bmc: [redfish]}}]\n"


async def served_at(asked: Asked, uid: int) -> set[str]:
    """Where BMCs of a user answer Redfish."""
    listed = (await asked.ask(uid, "GET", "/v1/bmcs")).json
    return {each["redfish"] for each in listed}


async def test_users_of_a_daemon_have_redfish_ports_of_their_own(tmp_path: Path) -> None:
    port = free_port(socket.SOCK_STREAM)
    given = f"redfish_port: {port}"
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(MEMBER, clusters("mine", given))).status == 202
        refused = await asked.up(OTHER, clusters("theirs", given))
        assert refused.status == 422
        assert f"another user's BMCs answer Redfish at 127.0.0.1:{port}" in refused.body.decode()
        assert "mine" not in refused.body.decode()
        assert (await asked.up(MEMBER, clusters("beside", given))).status == 202
        assert (await asked.up(OTHER, clusters("theirs", ""))).status == 202
        assert (await asked.up(MEMBER, clusters("third", ""))).status == 202
        assert (await served_at(asked, MEMBER)).isdisjoint(await served_at(asked, OTHER))


async def test_a_plan_that_shares_an_endpoint_with_anothers_is_stale(tmp_path: Path) -> None:
    """Both were made when neither cluster was there."""
    at = Allocations(endpoints={"n": Endpoint("127.0.0.1", 0, 8000)})
    row = ClusterRow(uuid4(), "mine", 1, 1, "c.yaml", "", {}, at, 0.0)
    other = replace(row, id=uuid4(), name="other", owner=2)
    elsewhere = Allocations(endpoints={"n": Endpoint("127.0.0.1", 0, 8001)})
    database = Database.open(f"sqlite:///{tmp_path}/s")
    try:
        await database.call(stored.save, row)
        with pytest.raises(Stale, match="another cluster took the same address and port, TCP"):
            await database.call(stored.save, other)
        await database.call(stored.save, replace(other, owner=1))
        await database.call(stored.save, replace(other, id=uuid4(), allocations=elsewhere))
    finally:
        database.close()
