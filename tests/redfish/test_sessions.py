"""Sessions of others: an administrator sees and ends them, nobody else does (DSP0266 §13.3.4)."""

from __future__ import annotations

from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.bmc.users import ADMINISTRATOR, User
from nospoon.services.bmcs.accounts import OPERATOR
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Client, client, system_of

from .test_accounts import BOB, bob, create
from .test_service import SESSIONS


async def log_in(line: Client, name: str, password: str) -> tuple[str, Client]:
    """Where the session is, and requests of it."""
    body = {"UserName": name, "Password": password}
    made = await line.ask("POST", SESSIONS, body)
    assert made.status == 201
    return made.headers["location"], Client(
        line.config, {"X-Auth-Token": made.headers["x-auth-token"]}
    )


async def seen(line: Client) -> list[str]:
    members = (await line.get(SESSIONS)).json["Members"]
    return [each["@odata.id"] for each in members]


async def test_an_administrator_sees_and_ends_the_sessions_of_others() -> None:
    async with bench(1) as b:
        await create(b)
        place, session = await log_in(bob(b), "bob", str(BOB["Password"]))
        admin = client(b.first)
        assert await seen(admin) == [place]
        assert (await admin.get(place)).json["UserName"] == "bob"
        assert (await session.get(system_of(b.first))).status == 200
        assert (await admin.ask("DELETE", place)).status == 204
        assert (await session.get(system_of(b.first))).status == 401
        assert await seen(admin) == []


async def test_others_see_and_end_their_own_sessions_only() -> None:
    async with bench(1) as b:
        await create(b)
        theirs, admin = await log_in(client(b.first), "admin", b.first.password)
        own, session = await log_in(bob(b), "bob", str(BOB["Password"]))
        assert await seen(session) == [own]
        assert (await session.get(theirs)).status == 404
        assert (await session.ask("DELETE", theirs)).status == 404
        assert sorted(await seen(admin)) == sorted([own, theirs])
        assert (await session.ask("DELETE", own)).status == 204


async def with_user(b: Bench, number: int, privilege: int) -> None:
    """Bob, on one of the BMCs that share a listener."""
    served = b.service.status(b.configs[number].bmc.uuid)
    assert served is not None
    user = User(3, "bob", "hunter22", privilege, enabled=True, messaging=True)
    await b.service.ask(served, lambda t: SettingsRequested(Settings(users=(user,)), t))


async def test_an_administrator_of_some_of_their_nodes_ends_nobodys_sessions() -> None:
    async with bench(2) as b:
        await with_user(b, 0, ADMINISTRATOR)
        await with_user(b, 1, ADMINISTRATOR)
        place, _ = await log_in(bob(b, "hunter22"), "bob", "hunter22")
        for each in b.configs:
            assert await seen(client(each)) == []
            assert (await client(each).ask("DELETE", place)).status == 404
        own, _ = await log_in(client(b.first), "admin", b.first.password)
        assert sorted(await seen(bob(b, "hunter22"))) == sorted([own, place])
        await with_user(b, 0, OPERATOR)
        assert await seen(bob(b, "hunter22")) == [place]
