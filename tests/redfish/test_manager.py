"""Manager.Reset and ResetToDefaults over HTTP, with what IPMI notices of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.bmc.users import User
from nospoon.model.machine import PowerPolicy
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench
from nospoon.testing.due import forward
from nospoon.testing.redfish import SYSTEMS, Answer, Client, basic, client

SESSIONS = "/redfish/v1/SessionService/Sessions"


def manager(b: Bench) -> str:
    return f"/redfish/v1/Managers/{b.first.bmc.uuid}"


async def act(b: Bench, action: str, body: Any, by: Client | None = None) -> Answer:
    path = f"{manager(b)}/Actions/Manager.{action}"
    return await (by or client(b.first)).ask("POST", path, body)


async def with_settings(b: Bench, settings: Settings) -> None:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    answer = await b.service.ask(served, lambda ticket: SettingsRequested(settings, ticket))
    assert answer.reason == ""


async def log_in(b: Bench) -> Client:
    body = {"UserName": b.first.bmc.username, "Password": b.first.password}
    made = await Client(b.first, {}).ask("POST", SESSIONS, body)
    assert made.status == 201
    return Client(b.first, {"X-Auth-Token": made.headers["x-auth-token"]})


@pytest.mark.parametrize("kind", ["GracefulRestart", "ForceRestart"])
async def test_a_bmc_that_restarts_is_away_for_a_while_and_knows_nobody(kind: str) -> None:
    async with bench(1, restart_seconds=600) as b:
        session = await log_in(b)
        assert (await session.get(SYSTEMS)).status == 200
        assert (await act(b, "Reset", {"ResetType": kind}, session)).status == 204
        away = await client(b.first).get(SYSTEMS)
        assert (away.status, away.headers["retry-after"]) == (503, "1")
        forward(600)
        async with asyncio.timeout(20):
            while (await session.get(SYSTEMS)).status == 503:
                pass
        assert (await session.get(SYSTEMS)).status == 401
        assert (await client(b.first).get(SYSTEMS)).status == 200
        entries = f"{manager(b)}/LogServices/SEL/Entries"
        log = (await client(b.first).get(entries)).json["Members"]
        assert log[-1]["Message"] == "The BMC restarts"


async def test_others_at_the_same_address_go_on() -> None:
    async with bench(2, restart_seconds=30) as b:
        assert (await act(b, "Reset", {})).status == 204
        first, second = b.configs
        assert (await client(second).get(f"{SYSTEMS}/{second.bmc.uuid}")).status == 200
        assert (await client(first).get(f"{SYSTEMS}/{first.bmc.uuid}")).status == 503


@pytest.mark.tools
async def test_ipmi_is_silent_while_the_bmc_restarts() -> None:
    async with bench(1, restart_seconds=30) as b:
        bmc = b.first.bmc
        ipmitool = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-p", str(bmc.ipmi_port)]
        ipmitool += ["-U", bmc.username, "-P", b.first.password, "-N", "1", "-R", "1"]
        reset = await process.run([*ipmitool, "mc", "reset", "cold"], check=False)
        assert "Sent cold reset command" in reset.stdout
        silent = await process.run([*ipmitool, "mc", "info"], check=False)
        assert silent.status != 0
        assert (await client(b.first).get(SYSTEMS)).status == 503


async def test_an_operator_cannot_restart_a_bmc() -> None:
    async with bench(1) as b:
        joe = User(3, "joe", "secret-of-joe", 3, enabled=True, messaging=True)
        await with_settings(b, Settings(users=(joe,)))
        by = Client(b.first, basic(replace(b.first, bmc=replace(b.first.bmc, username="joe")),
                                   joe.password))  # fmt: skip
        assert (await act(b, "Reset", {}, by)).status == 403
        assert (await client(b.first).get(SYSTEMS)).status == 200


async def test_defaults_forget_settings_and_say_so_in_the_store() -> None:
    async with bench(1, restart_seconds=0.1) as b:
        await with_settings(b, Settings(policy=PowerPolicy.ALWAYS_OFF, asset_tag="x"))
        assert (await act(b, "ResetToDefaults", {"ResetType": "ResetAll"})).status == 204
        assert b.store.saved[-1][1].settings == Settings()


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("Reset", {"ResetType": "Nmi"}, "ActionParameterValueNotInList"),
        ("Reset", {"ResetType": 1}, "ActionParameterValueTypeError"),
        ("ResetToDefaults", {}, "ActionParameterMissing"),
        ("ResetToDefaults", {"ResetType": "Everything"}, "ActionParameterValueNotInList"),
    ],
)
async def test_other_restarts_are_refused(action: str, body: Any, message: str) -> None:
    async with bench(1) as b:
        answer = await act(b, action, body)
        assert (answer.status, answer.message) == (400, message)
        assert (await client(b.first).get(SYSTEMS)).status == 200
