"""Bios over HTTP: registry, pending settings, and sushy as Ironic's bios interface uses it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from nospoon.runtime import process
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, client, system_of


def bios_of(b: Bench) -> str:
    return f"{system_of(b.first)}/Bios"


async def attributes(b: Bench, path: str = "") -> dict[str, Any]:
    found = (await client(b.first).get(bios_of(b) + path)).json["Attributes"]
    assert isinstance(found, dict)
    return found


async def reset(b: Bench, kind: str) -> Answer:
    path = f"{system_of(b.first)}/Actions/ComputerSystem.Reset"
    return await client(b.first).ask("POST", path, {"ResetType": kind})


async def put(b: Bench, attributes: Any, **headers: str) -> Answer:
    body = {"Attributes": attributes}
    return await client(b.first).ask("PATCH", f"{bios_of(b)}/Settings", body, **headers)


async def test_attributes_wait_for_the_next_reset() -> None:
    async with bench(1) as b:
        assert (await put(b, {"NumLock": "Off"})).status == 200
        assert await attributes(b, "/Settings") == {"NumLock": "Off"}
        assert (await attributes(b))["NumLock"] == "On"
        assert (await reset(b, "On")).status == 204
        assert (await attributes(b))["NumLock"] == "Off"
        assert await attributes(b, "/Settings") == {}
        told = (await client(b.first).get(bios_of(b))).json["@Redfish.Settings"]
        assert told["Messages"][0]["MessageId"].endswith(".Success")
        assert b.store.saved[-1][1].bios.values == (("NumLock", "Off"),)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"NumLock": "Maybe"}, "PropertyValueNotInList"),
        ({"BootTimeout": 1000}, "PropertyValueOutOfRange"),
        ({"BootTimeout": "1"}, "PropertyValueTypeError"),
        ({"AdminContact": "x" * 65}, "StringValueTooLong"),
        ({"BootMode": "Bios"}, "PropertyNotWritable"),
        ({"Nonsense": 1}, "PropertyUnknown"),
        ([], "PropertyValueTypeError"),
    ],
)
async def test_what_the_registry_does_not_allow_is_refused_and_nothing_is_taken(
    attributes: Any, message: str
) -> None:
    async with bench(1) as b:
        good = {"QuietBoot": "Enabled"}
        given = {**good, **attributes} if isinstance(attributes, dict) else attributes
        answer = await put(b, given)
        assert (answer.status, answer.message) == (400, message)
        pending = await client(b.first).get(f"{bios_of(b)}/Settings")
        assert pending.json["Attributes"] == {}


async def test_settings_of_another_time_are_not_changed() -> None:
    async with bench(1) as b:
        before = await client(b.first).get(f"{bios_of(b)}/Settings")
        assert (await put(b, {"NumLock": "Off"}, If_Match=before.headers["etag"])).status == 200
        assert (await put(b, {"NumLock": "On"}, If_Match=before.headers["etag"])).status == 412
        assert await attributes(b, "/Settings") == {"NumLock": "Off"}


async def test_settings_are_applied_at_a_reset_and_at_no_other_time() -> None:
    async with bench(1) as b:
        body = {"@Redfish.SettingsApplyTime": {"ApplyTime": "Immediate"}}
        answer = await client(b.first).ask("PATCH", f"{bios_of(b)}/Settings", body)
        assert (answer.status, answer.message) == (400, "PropertyValueNotInList")


async def test_what_is_in_force_is_not_changed_directly() -> None:
    async with bench(1) as b:
        answer = await client(b.first).ask("PATCH", bios_of(b), {"Attributes": {}})
        assert answer.status == 405


async def test_there_is_no_firmware_password_to_change() -> None:
    async with bench(1) as b:
        path = f"{bios_of(b)}/Actions/Bios.ChangePassword"
        answer = await client(b.first).ask("POST", path, {})
        assert (answer.status, answer.message) == (501, "ActionNotSupported")


SUSHY = """
import json, sys
import sushy
url, user, password = sys.argv[1:]
root = sushy.Sushy(url, username=user, password=password)
[system] = root.get_system_collection().get_members()
bios = system.bios
told = {"before": bios.attributes["ProcTurboMode"], "status": bios.update_status.status}
entries = bios.get_attribute_registry().registry_entries.attributes
told["registry"] = {each.name: each.attribute_type for each in entries}
bios.set_attributes({"ProcTurboMode": "Disabled", "BootTimeout": 7},
                    apply_time=sushy.ApplyTime.ON_RESET)
told["pending"] = bios.pending_attributes
system.reset_system(sushy.ResetType.ON)
bios.refresh(force=True)
told["after"] = [bios.attributes["ProcTurboMode"], bios.attributes["BootTimeout"]]
told["applied"] = bios.update_status.status
bios.reset_bios()
system.reset_system(sushy.ResetType.FORCE_RESTART)
bios.refresh(force=True)
told["reset"] = [bios.attributes["ProcTurboMode"], bios.attributes["BootTimeout"]]
print(json.dumps(told))
"""


@pytest.mark.tools
async def test_sushy_sets_attributes_that_a_reset_applies(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, bmc.username, b.first.password]
        told = json.loads((await process.run(argv)).stdout)
        registry = told.pop("registry")
        assert registry["BootTimeout"] == "Integer"
        assert set(registry) == set(await attributes(b))
    assert told == {
        "before": "Enabled",
        "status": 4,  # sushy's NO_UPDATES
        "pending": {"ProcTurboMode": "Disabled", "BootTimeout": 7},
        "after": ["Disabled", 7],
        "applied": 1,  # sushy's UPDATE_SUCCESS
        "reset": ["Enabled", 5],
    }
