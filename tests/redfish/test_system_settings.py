"""What a System and its Chassis let clients set besides the boot: policy, tag and light."""

from __future__ import annotations

from typing import Any

import pytest

from nospoon.bmc.runtime import PowerPolicy, Settings
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import SYSTEMS, Answer, client, system_of


def settings(b: Bench) -> Settings:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    return served.aggregate.runtime.settings


async def patch(b: Bench, body: Any) -> Answer:
    return await client(b.first).ask("PATCH", system_of(b.first), body)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("AlwaysOff", PowerPolicy.ALWAYS_OFF),
        ("LastState", PowerPolicy.PREVIOUS),
        ("AlwaysOn", PowerPolicy.ALWAYS_ON),
    ],
)
async def test_the_power_restore_policy_is_that_of_ipmi(name: str, policy: PowerPolicy) -> None:
    async with bench(1) as b:
        assert (await client(b.first).get(system_of(b.first))).json["PowerRestorePolicy"]
        changed = await patch(b, {"PowerRestorePolicy": name})
        assert (changed.status, changed.json["PowerRestorePolicy"]) == (200, name)
        assert settings(b).policy is policy
        bios = (await client(b.first).get(f"{system_of(b.first)}/Bios")).json["Attributes"]
        assert bios["AcPowerRecovery"].lower() in name.lower()


async def test_the_asset_tag_is_that_of_dcmi() -> None:
    async with bench(1) as b:
        assert (await client(b.first).get(system_of(b.first))).json["AssetTag"] is None
        assert (await patch(b, {"AssetTag": "Löffel 7"})).json["AssetTag"] == "Löffel 7"
        assert settings(b).asset_tag == "Löffel 7"
        assert (await patch(b, {"AssetTag": None})).json["AssetTag"] is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"PowerRestorePolicy": "Sometimes"}, "PropertyValueNotInList"),
        ({"PowerRestorePolicy": None}, "PropertyValueTypeError"),
        ({"AssetTag": 0}, "PropertyValueTypeError"),
        ({"AssetTag": "ö" * 32}, "StringValueTooLong"),
        ({"AssetTag": "a\nb"}, "PropertyValueFormatError"),
        ({"AssetTag": "fine", "Bios": {}}, "PropertyNotWritable"),
        ({"AssetTag": "fine", "Spoon": {}}, "PropertyUnknown"),
    ],
)
async def test_what_makes_no_sense_changes_nothing(body: Any, message: str) -> None:
    async with bench(1) as b:
        before = settings(b)
        refused = await patch(b, body)
        assert (refused.status, refused.message) == (400, message)
        assert settings(b) is before


async def test_the_light_of_a_chassis_is_that_of_its_system() -> None:
    async with bench(1) as b:
        line, place = client(b.first), f"/redfish/v1/Chassis/{b.first.bmc.uuid}"
        lit = await line.ask("PATCH", place, {"LocationIndicatorActive": True})
        assert (lit.status, lit.json["LocationIndicatorActive"]) == (200, True)
        assert (await line.get(system_of(b.first))).json["IndicatorLED"] == "Lit"
        refused = await line.ask("PATCH", place, {"ChassisType": "Rack"})
        assert (refused.status, refused.message) == (400, "PropertyNotWritable")


async def test_one_slash_too_many_leads_to_the_same() -> None:
    async with bench(1) as b:
        line = client(b.first)
        for path in (SYSTEMS, system_of(b.first), "/redfish", "/redfish/v1/odata"):
            assert (await line.get(f"{path}/")).json == (await line.get(path)).json
            assert (await line.get(f"{path}//")).status == 404
        reset = f"{system_of(b.first)}/Actions/ComputerSystem.Reset/"
        assert (await line.ask("POST", reset, {"ResetType": "On"})).status == 204


@pytest.mark.parametrize("form", ["{{{}}}", "urn:uuid:{}", "{:.8}"])
async def test_a_system_is_found_by_its_id_and_no_other_form_of_it(form: str) -> None:
    async with bench(1) as b:
        line, uuid = client(b.first), str(b.first.bmc.uuid)
        assert (await line.get(f"{SYSTEMS}/{uuid.upper()}")).status == 200
        assert (await line.get(f"{SYSTEMS}/{form.format(uuid)}")).status == 404
        assert (await line.get(f"{SYSTEMS}/{uuid.replace('-', '')}")).status == 404


async def test_whoever_has_any_version_is_told_nothing_new() -> None:
    async with bench(1) as b:
        answer = await client(b.first).get(system_of(b.first), If_None_Match="*")
        assert (answer.status, answer.data) == (304, b"")
