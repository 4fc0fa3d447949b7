"""Who may use one BMC of an endpoint guesses no quicker at the passwords of others there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from nospoon.protocols.failures import FREE, FREE_OF_SOURCE
from nospoon.services.bmcs.guesses import Guesses
from nospoon.testing.bench import Bench, bench, endpoint
from nospoon.testing.redfish import SYSTEMS, Answer
from nospoon.testing.redfish_app import ROOT, Login, Redfish, state

ACCOUNTS = f"{ROOT}/AccountService/Accounts"
SECRET = "alices-secret"
ALICE = {"UserName": "alice", "Password": "guess-number-0", "RoleId": "Administrator"}
SOURCE = "127.0.0.1"


@asynccontextmanager
async def beside_alice(*, needs_login: bool = True) -> AsyncIterator[Bench]:
    """A BMC, and one at the same endpoint whose account is alice's."""
    async with bench(2) as b, asyncio.timeout(30):
        first, second = b.configs
        own = replace(first, bmc=replace(first.bmc, redfish_login=needs_login))
        await b.service.put(own)
        theirs = replace(second, password=SECRET, bmc=replace(second.bmc, username="alice"))
        await b.service.put(theirs)
        yield replace(b, configs=[own, theirs])


def exhaust(queue: Callable[[float], float | None]) -> None:
    """So many attempts wait that the next one is refused."""
    now = asyncio.get_running_loop().time()
    assert any(queue(now) is None for _ in range(100))


async def as_alice(b: Bench, password: str) -> Answer:
    return await Redfish.of(b, Login("alice", password)).ask("GET", SYSTEMS)


async def test_what_a_client_gives_users_of_its_bmc_counts_as_guesses_right_or_wrong() -> None:
    async with beside_alice() as b:
        mallory = Redfish.of(b)
        assert (await mallory.ask("POST", ACCOUNTS, ALICE)).status == 201

        async def guess(password: str) -> Answer:
            body = {"Password": password}
            assert (await mallory.ask("PATCH", f"{ACCOUNTS}/3", body)).status == 200
            return await as_alice(b, password)

        for number in range(FREE):
            for answer in (await guess(f"guess-number-{number}"), await as_alice(b, SECRET)):
                assert answer.json["Members@odata.count"] == 1
        guesses, place = b.service.listeners.accounts.guesses, endpoint(b.first)
        bmc = b.first.bmc.uuid
        exhaust(lambda now: guesses.queue_user(place, bmc, "alice", now=now))
        for password in ("another guess", SECRET):
            assert (await as_alice(b, SECRET)).status == 200
            refused = await guess(password)
            assert (refused.status, refused.headers["retry-after"]) == (503, "10")
        b.service.listeners.accounts.guesses = Guesses()
        for _ in range(2 * FREE):  # it is tried once
            assert (await as_alice(b, SECRET)).json["Members@odata.count"] == 2


async def test_logins_that_work_do_not_forget_guesses_at_other_bmcs_of_an_endpoint() -> None:
    async with bench(2) as b, asyncio.timeout(30):
        own, guesses = Redfish.of(b), b.service.listeners.accounts.guesses

        async def guess(password: str) -> int:
            assert (await own.ask("GET", SYSTEMS)).status == 200
            return (await Redfish.of(b, Login("admin", password)).ask("GET", SYSTEMS)).status

        for _ in range(FREE_OF_SOURCE + 1):  # a conductor that has a wrong one
            assert await guess("old-password") == 401
        for number in range(1, FREE_OF_SOURCE):
            assert await guess(f"guess-number-{number}") == 401
        exhaust(lambda now: guesses.queue(endpoint(b.first), SOURCE, "admin", now=now))
        for password in ("another guess", b.configs[1].password):
            wanted = Redfish.of(b, Login("admin", password))
            assert (await wanted.ask("GET", SYSTEMS)).status == 503
            elsewhere = replace(own, client="192.0.2.9")
            assert (await elsewhere.ask("GET", SYSTEMS)).status == 200


async def test_logins_beside_a_bmc_that_needs_none_are_guesses() -> None:
    async with beside_alice(needs_login=False) as b:
        guesses = b.service.listeners.accounts.guesses
        for _ in range(FREE_OF_SOURCE + 1):  # clients that always send credentials send any
            assert (await as_alice(b, "any")).json["Members@odata.count"] == 1
        for number in range(1, FREE_OF_SOURCE):
            assert (await as_alice(b, f"guess-number-{number}")).status == 200
        exhaust(lambda now: guesses.queue(endpoint(b.first), SOURCE, "alice", now=now))
        for password in ("another guess", SECRET):
            assert (await as_alice(b, password)).status == 503
        assert (await Redfish.of(b).without_login().ask("GET", SYSTEMS)).status == 200


async def test_without_a_login_accounts_are_not_created_changed_or_deleted() -> None:
    async with beside_alice(needs_login=False) as b:
        admin, stranger = Redfish.of(b), Redfish.of(b).without_login()
        assert (await admin.ask("POST", ACCOUNTS, ALICE)).status == 201
        given = {"UserName": "any", "Password": "at all"}
        session = await stranger.ask("POST", f"{ROOT}/SessionService/Sessions", given)
        token = {"x_auth_token": session.headers["x-auth-token"]}
        before = state(b)
        for each, headers in ((stranger, {}), (stranger, token)):
            assert (await each.ask("GET", f"{ACCOUNTS}/3", **headers)).status == 200
            for method, path, body in (
                ("POST", ACCOUNTS, {**ALICE, "UserName": "bob"}),
                ("PATCH", f"{ACCOUNTS}/3", {"Password": "another-password"}),
                ("DELETE", f"{ACCOUNTS}/3", None),
            ):
                assert (await each.ask(method, path, body, **headers)).status == 401
        assert state(b) == before
        assert (await admin.ask("DELETE", f"{ACCOUNTS}/3")).status == 204
