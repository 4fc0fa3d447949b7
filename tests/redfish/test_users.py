"""Users that were added over IPMI log in by Redfish, with the role that their privilege is."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json

import pytest

from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.bmc.users import User
from nospoon.testing.bench import Bench, bench


async def with_users(b: Bench, *users: User) -> None:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    await b.service.ask(served, lambda t: SettingsRequested(Settings(users=users), t))


def bob(privilege: int, password: str = "hunter22") -> User:
    return User(3, "bob", password, privilege, enabled=True, messaging=True)


async def ask(b: Bench, method: str, *, number: int = 0, body: object = None) -> int:
    """The status of a request by bob."""
    return await asyncio.to_thread(_ask, b, method, number, body)


def _ask(b: Bench, method: str, number: int, body: object) -> int:
    bmc = b.configs[number].bmc
    login = base64.b64encode(b"bob:hunter22").decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    path = f"/redfish/v1/Systems/{bmc.uuid}"
    path += "/Actions/ComputerSystem.Reset" if method == "POST" else ""
    line = http.client.HTTPConnection(bmc.address, bmc.redfish_port, timeout=30)
    try:
        line.request(method, path, json.dumps(body) if body else None, headers)
        return line.getresponse().status
    finally:
        line.close()


ON = {"ResetType": "On"}
LIT = {"LocationIndicatorActive": True}


@pytest.mark.parametrize(
    ("privilege", "statuses"),
    [(1, (401, 401, 401)), (2, (200, 403, 403)), (3, (200, 204, 204)), (4, (200, 204, 204))],
    ids=["callback", "user", "operator", "administrator"],
)
async def test_privileges_are_roles(privilege: int, statuses: tuple[int, int, int]) -> None:
    async with bench(1) as b:
        await with_users(b, bob(privilege))
        told = (
            await ask(b, "GET"), await ask(b, "POST", body=ON), await ask(b, "PATCH", body=LIT),
        )  # fmt: skip
        assert [each // 100 for each in told] == [each // 100 for each in statuses]
        assert (401 in told) == (privilege == 1)
        assert bool(b.machines.told) == (privilege > 2)


async def test_a_user_sees_only_the_system_that_knows_it() -> None:
    async with bench(2) as b:
        await with_users(b, bob(4))
        assert await ask(b, "GET") == 200
        assert await ask(b, "GET", number=1) == 404


async def test_one_who_was_changed_or_taken_away_is_refused() -> None:
    async with bench(1) as b:
        await with_users(b, bob(4))
        await with_users(b, bob(4, "another one"))
        assert await ask(b, "GET") == 401
        await with_users(b, bob(4))
        assert await ask(b, "GET") == 200
        await with_users(b)
        assert await ask(b, "GET") == 401
