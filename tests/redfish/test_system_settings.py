"""What a System and its Chassis let clients set besides the boot: policy, tag and light."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from nospoon.bmc import octets
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.model.boot import BootPlan
from nospoon.model.machine import PowerCommand, PowerPolicy
from nospoon.runtime import clock
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.services.bmcs.redfish.resources.changes import refuse_others
from nospoon.testing.bench import ORDER, Bench, bench
from nospoon.testing.redfish import SYSTEMS, Answer, client, system_of

from .test_accounts import bob, create


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
    ("tag", "told"),
    [(b"\xef\xbb\xbfABC", "ABC"), (b"\xff" * 63, "ÿ" * 63), (b"a\nb", "a\nb"),
     ("Löffel".encode(), "Löffel")],
)  # fmt: skip
async def test_whatever_ipmi_took_as_a_tag_is_shown_and_hinders_nobody(
    tag: bytes, told: str
) -> None:
    async with bench(1) as b:
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        changed = Settings(asset_tag=octets.kept(tag))
        await b.service.ask(served, lambda ticket: SettingsRequested(changed, ticket))
        line, chassis = client(b.first), f"/redfish/v1/Chassis/{b.first.bmc.uuid}"
        booted = await patch(b, {"Boot": {"BootSourceOverrideTarget": "Pxe"}})
        lit = await line.ask("PATCH", chassis, {"LocationIndicatorActive": True})
        assert (booted.status, lit.status) == (200, 200)
        assert booted.json["AssetTag"] == lit.json["AssetTag"] == told
        assert octets.octets(settings(b).asset_tag) == tag


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"PowerRestorePolicy": "Sometimes"}, "PropertyValueNotInList"),
        ({"PowerRestorePolicy": None}, "PropertyValueTypeError"),
        ({"AssetTag": 0}, "PropertyValueTypeError"),
        ({"AssetTag": "ö" * 32}, "StringValueTooLong"),
        ({"AssetTag": "a\nb"}, "PropertyValueFormatError"),
        (b'{"AssetTag": "\\ud800"}', "MalformedJSON"),
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


async def test_the_boot_order_is_changed_and_followed() -> None:
    async with bench(1) as b:
        shown = (await client(b.first).get(system_of(b.first))).json["Boot"]["BootOrder"]
        turned = shown[::-1]
        changed = await patch(b, {"Boot": {"BootOrder": turned}})
        assert (changed.status, changed.json["Boot"]["BootOrder"]) == (200, turned)
        assert changed.json["Boot"]["BootSourceOverrideEnabled"] == "Disabled"
        assert b.store.saved[-1][1].boot_order == ORDER[::-1]
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        assert b.machines.told[-1][2] == BootPlan(ORDER[::-1], ORDER[::-1])
        await b.service.put(b.first)
        again = (await client(b.first).get(system_of(b.first))).json["Boot"]["BootOrder"]
        assert again == turned, "the file has nothing new"
        for option in turned:
            place = f"{system_of(b.first)}/BootOptions/{option}"
            assert (await client(b.first).get(place)).json["BootOptionReference"] == option


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("Boot0002", "PropertyValueTypeError"),
        (None, "PropertyValueTypeError"),
        ([2], "PropertyValueTypeError"),
        ([], "PropertyValueFormatError"),
        (["Boot0002"], "PropertyValueFormatError"),
        (["Boot0002", "Boot0000", "Boot0000"], "PropertyValueFormatError"),
        (["Boot0002", "Boot0001"], "PropertyValueNotInList"),
    ],
)
async def test_a_boot_order_names_every_option_once(order: Any, message: str) -> None:
    async with bench(1) as b:
        body = {"Boot": {"BootOrder": order, "BootSourceOverrideTarget": "Pxe"}}
        refused = await patch(b, body)
        assert (refused.status, refused.message) == (400, message)
        assert b.store.saved == []


async def test_the_light_of_a_chassis_is_that_of_its_system() -> None:
    async with bench(1) as b:
        line, place = client(b.first), f"/redfish/v1/Chassis/{b.first.bmc.uuid}"
        lit = await line.ask("PATCH", place, {"LocationIndicatorActive": True})
        assert (lit.status, lit.json["LocationIndicatorActive"]) == (200, True)
        assert (await line.get(system_of(b.first))).json["IndicatorLED"] == "Lit"
        refused = await line.ask("PATCH", place, {"ChassisType": "Rack"})
        assert (refused.status, refused.message) == (400, "PropertyNotWritable")


async def test_the_tag_of_a_chassis_is_that_of_its_system() -> None:
    async with bench(1) as b:
        line, place = client(b.first), f"/redfish/v1/Chassis/{b.first.bmc.uuid}"
        assert (await line.ask("PATCH", place, {"AssetTag": "7"})).json["AssetTag"] == "7"
        assert (await line.get(system_of(b.first))).json["AssetTag"] == "7"
        refused = await line.ask("PATCH", place, {"PowerRestorePolicy": "AlwaysOn"})
        assert (refused.status, refused.message) == (400, "PropertyUnknown")


def seconds(answer: Answer) -> float:
    return datetime.fromisoformat(answer.json["DateTime"]).timestamp()


async def test_the_clock_of_a_manager_is_that_of_its_log() -> None:
    async with bench(1) as b:
        line, place = client(b.first), f"/redfish/v1/Managers/{b.first.bmc.uuid}"
        log = f"{place}/LogServices/SEL"
        assert abs(seconds(await line.get(place)) - clock.unix()) < 60
        tags = [(await line.get(each)).headers["etag"] for each in (place, log)]
        wanted = "2030-01-01T12:00:00+01:00"
        changed = await line.ask("PATCH", place, {"DateTime": wanted}, If_Match=tags[0])
        assert changed.status == 200
        set_to = datetime.fromisoformat(wanted).timestamp()
        for each, tag in zip((place, log), tags, strict=True):
            answer = await line.get(each)
            assert 0 <= seconds(answer) - set_to < 60
            assert answer.headers["etag"] == tag, "that a clock goes is no change"
        await line.ask("POST", f"{log}/Actions/LogService.ClearLog")
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        (entry, *_) = (await line.get(f"{log}/Entries")).json["Members"]
        assert entry["Created"].startswith("2030-01-01T11:0")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("noon", "PropertyValueFormatError"),
        ("2030-01-01", "PropertyValueFormatError"),
        ("2030-01-01T12:00:00", "PropertyValueFormatError"),
        (1893495600, "PropertyValueTypeError"),
        ("1969-12-31T00:00:00Z", "PropertyValueOutOfRange"),
        ("0001-01-01T00:00:00+23:59", "PropertyValueOutOfRange"),
        ("9999-12-31T23:59:59-23:59", "PropertyValueOutOfRange"),
    ],
)
async def test_a_time_that_is_none_is_refused(value: Any, message: str) -> None:
    async with bench(1) as b:
        place = f"/redfish/v1/Managers/{b.first.bmc.uuid}"
        refused = await client(b.first).ask("PATCH", place, {"DateTime": value})
        assert (refused.status, refused.message) == (400, message)
        assert settings(b).clock_offset == 0.0


async def test_the_clock_is_set_by_administrators_only() -> None:
    async with bench(1) as b:
        await create(b)
        place = f"/redfish/v1/Managers/{b.first.bmc.uuid}"
        body = {"DateTime": "2030-01-01T12:00:00Z"}
        assert (await bob(b).ask("PATCH", place, body)).status == 403


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


def test_a_change_of_what_may_be_changed_does_not_make_the_resource_to_compare_it() -> None:
    made: list[str] = []

    def resource() -> dict[str, Any]:
        made.append("once")
        return {"PowerState": "On"}

    refuse_others({"AssetTag": "7", "@odata.etag": "x"}, ("AssetTag",), resource)
    assert made == []
    with pytest.raises(RedfishError) as refused:
        refuse_others({"PowerState": "Off"}, ("AssetTag",), resource)
    assert refused.value.message_id.endswith("PropertyNotWritable")
    assert made == ["once"]
