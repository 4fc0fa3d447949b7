"""SecureBoot over HTTP: switched from the next start on, refused where there are no keys."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, client, system_of


def place(b: Bench) -> str:
    return f"{system_of(b.first)}/SecureBoot"


async def put(b: Bench, value: Any) -> Answer:
    return await client(b.first).ask("PATCH", place(b), {"SecureBootEnable": value})


async def state(b: Bench) -> tuple[bool, str]:
    """What it will be, and what it is."""
    body = (await client(b.first).get(place(b))).json
    return body["SecureBootEnable"], body["SecureBootCurrentBoot"]


async def test_secure_boot_is_switched_by_the_next_start() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        uuid = b.first.bmc.uuid
        await b.service.power(uuid, PowerCommand.ON)
        assert await state(b) == (True, "Enabled")
        assert (await put(b, False)).status == 200  # noqa: FBT003  (the value of a property)
        assert await state(b) == (False, "Enabled")
        b.machines.report(uuid, MachineChange.RESET, PowerState.ON)
        assert await state(b) == (False, "Enabled"), "the guest rebooted by itself"
        await b.service.power(uuid, PowerCommand.RESET)
        assert await state(b) == (False, "Disabled")
        (_, _, before), (_, reset, plan) = b.machines.told
        assert (before.secure_boot, plan.secure_boot) == (None, False)
        assert reset is PowerCommand.CYCLE, "a reset would not start it anew"
        assert not b.store.saved[-1][1].secure_boot.current


async def test_secure_boot_that_is_on_again_is_told_once() -> None:
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        for enabled in (False, True):
            await put(b, enabled)
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
            await b.service.power(b.first.bmc.uuid, PowerCommand.OFF)
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        told = [plan.secure_boot for _, command, plan in b.machines.told
                if command is PowerCommand.ON]  # fmt: skip
        assert told == [False, True, None]


async def test_firmware_without_keys_refuses_secure_boot() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        answer = await put(b, True)  # noqa: FBT003  (the value of a property)
        assert (answer.status, answer.message) == (400, "PropertyValueConflict")
        assert (await put(b, False)).status == 200  # noqa: FBT003  (the value of a property)
        assert await state(b) == (False, "Disabled")
        assert b.store.saved == []


async def test_bios_machines_have_no_secure_boot() -> None:
    async with bench(1) as b:
        assert (await client(b.first).get(place(b))).status == 404
        assert (await put(b, True)).status == 404  # noqa: FBT003  (the value of a property)


@pytest.mark.parametrize(
    ("firmware", "body", "status"),
    [
        (Firmware.UEFI_SECURE, {"ResetKeysType": "ResetAllKeysToDefault"}, 204),
        (Firmware.UEFI_SECURE, {"ResetKeysType": "DeleteAllKeys"}, 400),
        (Firmware.UEFI_SECURE, {}, 400),
        (Firmware.UEFI, {"ResetKeysType": "ResetAllKeysToDefault"}, 501),
    ],
)
async def test_keys_are_what_they_were_made_with_and_stay(
    firmware: Firmware, body: dict[str, str], status: int
) -> None:
    async with bench(1, firmware=firmware) as b:
        path = f"{place(b)}/Actions/SecureBoot.ResetKeys"
        assert (await client(b.first).ask("POST", path, body)).status == status


SUSHY = """
import json, sys
import sushy
url, user, password = sys.argv[1:]
[system] = sushy.Sushy(url, username=user, password=password).get_system_collection().get_members()
secure = system.secure_boot
told = [[secure.enabled, secure.current_boot.value, secure.mode.value]]
secure.set_enabled(False)
system.reset_system(sushy.ResetType.ON)
secure.refresh(force=True)
told.append([secure.enabled, secure.current_boot.value, secure.mode.value])
secure.set_enabled(True)
system.reset_system(sushy.ResetType.FORCE_RESTART)
secure.refresh(force=True)
told.append([secure.enabled, secure.current_boot.value, secure.mode.value])
secure.reset_keys(sushy.SecureBootResetKeysType.RESET_ALL_KEYS_TO_DEFAULT)
print(json.dumps(told))
"""


@pytest.mark.tools
async def test_sushy_switches_secure_boot(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1, firmware=Firmware.UEFI_SECURE) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, bmc.username, b.first.password]
        told = json.loads((await process.run(argv)).stdout)
    assert told == [
        [True, "Enabled", "UserMode"],
        [False, "Disabled", "UserMode"],
        [True, "Enabled", "UserMode"],
    ]
