"""DMTF's redfishtool, as somebody at a keyboard uses it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nospoon.model.boot import BootDevice
from nospoon.model.machine import PowerCommand
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench

pytestmark = pytest.mark.tools


async def tool(b: Bench, *argv: str, auth: str = "Basic") -> Any:
    """What it prints, as JSON; None when it prints nothing."""
    bmc = b.first.bmc
    place = ["-r", f"{bmc.address}:{bmc.redfish_port}", "-S", "Never", "-A", auth]
    login = ["-u", bmc.username, "-p", b.first.password]
    program = str(Path(sys.executable).with_name("redfishtool"))
    done = await process.run([program, *place, *login, *argv], timeout=60)
    return json.loads(done.stdout) if done.stdout.strip() else None


@pytest.mark.parametrize("auth", ["Basic", "Session"])
async def test_redfishtool_looks_at_a_system_and_switches_it(auth: str) -> None:
    async with bench(1) as b:
        shown = await tool(b, "Systems", "-F", "get", auth=auth)
        assert (shown["Name"], shown["PowerState"]) == ("n0", "Off")
        await tool(b, "Systems", "-F", "setBootOverride", "Once", "Pxe", auth=auth)
        await tool(b, "Systems", "-F", "reset", "On", auth=auth)
        ((_, command, plan),) = b.machines.told
        assert (command, plan.now[0]) == (PowerCommand.ON, BootDevice.NETWORK)
        await tool(b, "Systems", "-F", "setIndicatorLed", "Lit", auth=auth)
        shown = await tool(b, "Systems", "-F", "get", auth=auth)
        assert (shown["PowerState"], shown["IndicatorLED"]) == ("On", "Lit")


async def test_redfishtool_finds_every_collection_and_makes_an_account() -> None:
    async with bench(2) as b:
        found = await tool(b, "Systems", "list")
        assert found["Members@odata.count"] == 1, "each node has an account of its own"
        assert (await tool(b, "Chassis", "-F", "Power"))["Name"] == "Power"
        assert (await tool(b, "Managers", "-F", "get"))["ManagerType"] == "BMC"
        made = await tool(b, "AccountService", "adduser", "eve", "open-sesame9", "Operator")
        assert (made["UserName"], made["RoleId"]) == ("eve", "Operator")
        listed = await tool(b, "AccountService", "Accounts")
        assert listed["Members@odata.count"] == 2
