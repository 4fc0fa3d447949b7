"""The Redfish service over HTTP, as a client sees it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import socket
from dataclasses import replace
from typing import Any

import pytest

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootMethod, BootMode, BootOverride, OverrideEnabled
from nospoon.model.cluster import Firmware
from nospoon.model.machine import MachineChange, PowerCommand, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.services.bmcs.lan import lan
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import SYSTEMS, Answer, Client, basic, client, system_of

SESSIONS = "/redfish/v1/SessionService/Sessions"


def override(b: Bench) -> BootOverride:
    served = b.service.status(b.first.bmc.uuid)
    assert served is not None
    return served.override


async def reset(b: Bench, kind: str) -> Answer:
    path = f"{system_of(b.first)}/Actions/ComputerSystem.Reset"
    return await client(b.first).ask("POST", path, {"ResetType": kind})


async def boot(b: Bench, **values: Any) -> Answer:
    wanted = {f"BootSourceOverride{name}": value for name, value in values.items()}
    return await client(b.first).ask("PATCH", system_of(b.first), {"Boot": wanted})


async def test_the_root_is_open_and_the_rest_is_not() -> None:
    async with bench(1) as b:
        stranger = Client(b.first, {})
        for path in ("/redfish", "/redfish/v1", "/redfish/v1/", "/redfish/v1/odata"):
            assert (await stranger.get(path)).status == 200
        metadata = await stranger.get("/redfish/v1/$metadata")
        assert metadata.headers["content-type"].startswith("application/xml")
        for path in (SYSTEMS, system_of(b.first), SESSIONS, "/redfish/v1/Managers"):
            refused = await stranger.get(path)
            assert refused.status == 401
            assert "www-authenticate" in refused.headers


async def test_every_link_leads_somewhere() -> None:
    async with bench(1) as b:
        todo, seen = ["/redfish/v1/"], set[str]()
        while todo:
            path = todo.pop()
            if path in seen:
                continue
            seen.add(path)
            answer = await client(b.first).get(path)
            assert answer.status == 200, path
            assert answer.headers["odata-version"] == "4.0"
            assert answer.json["@odata.id"] == path
            todo += links(answer.json)
        assert len(seen) > 50


def links(value: Any) -> list[str]:
    match value:
        case {"@odata.id": str(link)} if len(value) == 1:
            return [link]
        case dict():
            return [link for each in value.values() for link in links(each)]
        case list():
            return [link for each in value for link in links(each)]
        case _:
            return []


async def test_an_account_sees_its_own_system_only() -> None:
    async with bench(2) as b:
        first, second = b.configs
        members = (await client(first).get(SYSTEMS)).json["Members"]
        assert members == [{"@odata.id": system_of(first)}]
        assert (await client(first).get(system_of(second))).status == 404
        assert (await client(second).get(system_of(second))).status == 200


@pytest.mark.parametrize("password", ["", "wrong", "password-1"])
async def test_a_wrong_password_is_refused(password: str) -> None:
    async with bench(1) as b:
        wrong = Client(b.first, basic(b.first, password))
        assert (await wrong.get(SYSTEMS)).status == 401


@pytest.mark.parametrize("header", ["Basic", "Basic !!", "Basic QQ==", "Bearer x", "Basic /w=="])
async def test_authorization_that_makes_no_sense_is_refused(header: str) -> None:
    async with bench(1) as b:
        assert (await Client(b.first, {"Authorization": header}).get(SYSTEMS)).status == 401


async def test_a_session_works_until_it_is_deleted() -> None:
    async with bench(1) as b:
        account = {"UserName": "admin", "Password": b.first.password}
        made = await Client(b.first, {}).ask("POST", SESSIONS, account)
        assert made.status == 201
        member = Client(b.first, {"X-Auth-Token": made.headers["x-auth-token"]})
        place = made.headers["location"]
        assert (await member.get(system_of(b.first))).status == 200
        assert (await member.get(SESSIONS)).json["Members"] == [{"@odata.id": place}]
        assert "Password" not in (await member.get(place)).json
        assert (await member.ask("DELETE", place)).status == 204
        assert (await member.get(system_of(b.first))).status == 401


async def test_a_session_ends_with_its_password_and_survives_an_unchanged_up() -> None:
    async with bench(1) as b:
        account = {"UserName": "admin", "Password": b.first.password}
        made = await Client(b.first, {}).ask("POST", SESSIONS, account)
        member = Client(b.first, {"X-Auth-Token": made.headers["x-auth-token"]})
        await b.service.put(b.first)
        assert (await member.get(SYSTEMS)).status == 200
        await b.service.put(replace_password(b.first, "other"))
        assert (await member.get(SYSTEMS)).status == 401


def replace_password(config: BmcConfig, password: str) -> BmcConfig:
    return BmcConfig(config.node, config.cluster, config.bmc, config.machine, password)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"UserName": "admin"}, 400, "PropertyMissing"),
        ({"UserName": "admin", "Password": 5}, 400, "PropertyValueTypeError"),
        ({"UserName": "admin", "Password": "wrong"}, 401, "ResourceAtUriUnauthorized"),
        ([], 400, "MalformedJSON"),
        (b"{", 400, "MalformedJSON"),
        (b"\xff\xfe", 400, "MalformedJSON"),
        (b"", 400, "MalformedJSON"),
        (b"[" * 9000, 400, "MalformedJSON"),
        (b"[" * 20000, 413, "PayloadTooLarge"),
    ],
)
async def test_a_login_that_makes_no_sense_is_refused(body: Any, status: int, message: str) -> None:
    async with bench(1) as b:
        answer = await Client(b.first, {}).ask("POST", SESSIONS, body)
        assert (answer.status, answer.message) == (status, message)


@pytest.mark.parametrize(
    ("kind", "before", "command"),
    [
        ("On", PowerState.OFF, PowerCommand.ON),
        ("ForceOn", PowerState.OFF, PowerCommand.ON),
        ("ForceOff", PowerState.ON, PowerCommand.OFF),
        ("GracefulShutdown", PowerState.ON, PowerCommand.SOFT),
        ("ForceRestart", PowerState.ON, PowerCommand.RESET),
        ("PowerCycle", PowerState.ON, PowerCommand.CYCLE),
        ("Nmi", PowerState.ON, PowerCommand.DIAG),
        ("PushPowerButton", PowerState.ON, PowerCommand.SOFT),
        ("PushPowerButton", PowerState.OFF, PowerCommand.ON),
        ("ForceRestart", PowerState.OFF, PowerCommand.ON),
        ("GracefulRestart", PowerState.OFF, PowerCommand.ON),
        ("PowerCycle", PowerState.OFF, PowerCommand.ON),
    ],
)
async def test_every_reset_type_is_the_command_that_it_says(
    kind: str, before: PowerState, command: PowerCommand
) -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.OBSERVED, before)
        assert (await reset(b, kind)).status == 204
        assert [each for _, each, _ in b.machines.told] == [command]


async def test_a_graceful_restart_shuts_down_and_starts_again() -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.OBSERVED, PowerState.ON)
        assert (await reset(b, "GracefulRestart")).status == 204
        async with asyncio.timeout(20):
            while len(b.machines.told) < 2:  # noqa: ASYNC110  (these machines have no event)
                await asyncio.sleep(0.01)
        assert [each for _, each, _ in b.machines.told] == [PowerCommand.SOFT, PowerCommand.ON]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"ResetType": "Explode"}, "ActionParameterValueNotInList"),
        ({"ResetType": 5}, "ActionParameterValueTypeError"),
        ({"ResetType": ["On"]}, "ActionParameterValueTypeError"),
        ({"Reset": "On"}, "ActionParameterUnknown"),
        ("On", "MalformedJSON"),
        (b"", "MalformedJSON"),
    ],
)
async def test_a_reset_that_makes_no_sense_is_refused(body: Any, message: str) -> None:
    async with bench(1) as b:
        path = f"{system_of(b.first)}/Actions/ComputerSystem.Reset"
        answer = await client(b.first).ask("POST", path, body)
        assert (answer.status, answer.message) == (400, message)
        assert b.machines.told == []


async def test_an_interrupt_of_a_machine_that_is_off_is_refused_in_the_standards_words() -> None:
    async with bench(1) as b:
        refused = await reset(b, "Nmi")
        assert (refused.status, refused.message) == (409, "ResourceInStandby")
        (told,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert "needs a machine that is on" in told["Resolution"]


async def test_a_manager_names_the_service_through_which_it_is_seen() -> None:
    async with bench(2) as b:
        root = (await client(b.first).get("/redfish/v1")).json
        paths = [each["@odata.id"] for each in
                 (await client(b.first).get("/redfish/v1/Managers")).json["Members"]]  # fmt: skip
        shown = [(await client(b.first).get(path)).json for path in paths]
        assert {each["ServiceEntryPointUUID"] for each in shown} == {root["UUID"]}


async def test_a_manager_has_the_address_that_ipmi_tells() -> None:
    async with bench(1) as b:
        path = f"/redfish/v1/Managers/{b.first.bmc.uuid}/EthernetInterfaces"
        assert (await client(b.first).get(path)).json["Members@odata.count"] == 1
        told = (await client(b.first).get(f"{path}/1")).json
        assert told["IPv4Addresses"] == [
            {"Address": "127.0.0.1", "SubnetMask": "255.255.255.255", "AddressOrigin": "Static",
             "Gateway": None}
        ]  # fmt: skip
        assert told["MACAddress"] == lan(b.first).mac.hex(":")
        assert (await client(b.first).get(f"{path}/2")).status == 404


async def test_what_can_be_set_of_lights_and_overrides_is_listed() -> None:
    async with bench(1) as b:
        system = (await client(b.first).get(system_of(b.first))).json
        assert system["IndicatorLED@Redfish.AllowableValues"] == ["Lit", "Off"]
        told = system["Boot"]["BootSourceOverrideEnabled@Redfish.AllowableValues"]
        assert told == ["Disabled", "Once", "Continuous"]


@pytest.mark.parametrize(
    "values", [{"kind": NodeKind.CONTAINER}, {"kind": NodeKind.VM, "boot": BootMethod.NONE}]
)
async def test_what_boots_its_root_alone_takes_no_other_override(values: dict[str, Any]) -> None:
    """It would have no effect."""
    async with bench(1) as b:
        b.service.reshape(replace(b.first.machine, **values))
        system = (await client(b.first).get(system_of(b.first))).json
        told = system["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"]
        assert told == ["None", "Hdd"]
        refused = await boot(b, Target="Pxe")
        assert (refused.status, refused.message) == (400, "PropertyValueNotInList")
        uri = {"Boot": {"HttpBootUri": "http://192.0.2.1/x.efi"}}
        refused = await client(b.first).ask("PATCH", system_of(b.first), uri)
        assert (refused.status, refused.message) == (400, "PropertyNotWritable")
        assert not override(b).active
        assert (await boot(b, Target="Hdd", Enabled="Once")).status == 200
        assert override(b).target is BootDevice.DISK


async def test_an_override_of_before_it_was_refused_can_be_taken_away() -> None:
    async with bench(1) as b:
        assert (await boot(b, Target="Pxe", Enabled="Continuous")).status == 200
        b.service.reshape(replace(b.first.machine, kind=NodeKind.CONTAINER))
        assert (await boot(b, Enabled="Disabled")).status == 200
        assert not override(b).active


async def test_a_command_for_the_guest_while_another_is_under_way_gets_503_with_retry_after() -> (
    None
):
    async with bench(1) as b:
        b.machines.delay = 1.0
        assert (await reset(b, "On")).status == 204
        busy = await reset(b, "GracefulShutdown")
        assert busy.status == 503
        assert int(busy.headers["retry-after"]) > 0


async def test_a_failure_that_is_known_is_no_success_and_shows() -> None:
    async with bench(1) as b:
        b.machines.error = ProviderError("the pool is full")
        refused = await reset(b, "On")
        assert refused.status == 500
        assert "the pool is full" in refused.json["error"]["message"]
        system = (await client(b.first).get(system_of(b.first))).json
        assert system["PowerState"] == "Off"
        assert system["Status"]["Health"] == "Critical"
        assert system["Status"]["Conditions"][0]["Message"] == "the pool is full"


@pytest.mark.parametrize(
    ("power", "shown"),
    [
        (PowerState.ON, ("On", "Enabled", "OK")),
        (PowerState.OFF, ("Off", "Disabled", "OK")),
        (PowerState.FAILED, ("On", "Enabled", "Critical")),
        (PowerState.ABSENT, ("Off", "Absent", "Critical")),
        (PowerState.UNKNOWN, (None, "UnavailableOffline", "OK")),
    ],
)
async def test_power_and_health_are_the_machines(
    power: PowerState, shown: tuple[str | None, str, str]
) -> None:
    async with bench(1) as b:
        b.machines.report(b.first.bmc.uuid, MachineChange.OBSERVED, power)
        system = (await client(b.first).get(system_of(b.first))).json
        status = system["Status"]
        assert (system["PowerState"], status["State"], status["Health"]) == shown


async def test_once_is_shown_and_used_up() -> None:
    async with bench(1) as b:
        answer = await boot(b, Target="Pxe", Enabled="Once")
        assert answer.status == 200
        assert answer.json["Boot"]["BootSourceOverrideEnabled"] == "Once"
        wanted = BootOverride(BootDevice.NETWORK, OverrideEnabled.ONCE, BootMode.LEGACY)
        assert override(b) == wanted
        assert b.store.saved[-1][1].override == override(b)
        await reset(b, "On")
        shown = (await client(b.first).get(system_of(b.first))).json["Boot"]
        assert shown["BootSourceOverrideEnabled"] == "Disabled"
        assert shown["BootSourceOverrideTarget"] == "None"


async def test_continuous_stays_until_it_is_disabled() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        await boot(b, Target="Hdd", Enabled="Continuous", Mode="UEFI")
        await reset(b, "On")
        wanted = BootOverride(BootDevice.DISK, OverrideEnabled.CONTINUOUS, BootMode.UEFI)
        assert override(b) == wanted
        await boot(b, Enabled="Disabled")
        assert not override(b).active


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"Target": "Toaster"}, "PropertyValueNotInList"),
        ({"Target": 5}, "PropertyValueTypeError"),
        ({"Target": "Pxe", "Enabled": "Twice"}, "PropertyValueNotInList"),
        ({"Target": "Pxe", "Mode": "UEFI"}, "PropertyValueNotInList"),
        ({"Colour": "red"}, "PropertyUnknown"),
    ],
)
async def test_an_override_that_makes_no_sense_is_refused(
    values: dict[str, Any], message: str
) -> None:
    async with bench(1) as b:
        answer = await boot(b, **values)
        assert (answer.status, answer.message) == (400, message)
        assert not override(b).active


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"Boot": 5}, "PropertyValueTypeError"),
        ({"Boot": None}, "PropertyValueTypeError"),
        ({"PowerState": "On"}, "PropertyNotWritable"),
        ({"Nonsense": 1}, "PropertyUnknown"),
        ({"LocationIndicatorActive": "yes"}, "PropertyValueTypeError"),
        ([1], "MalformedJSON"),
    ],
)
async def test_a_patch_that_makes_no_sense_is_refused(body: Any, message: str) -> None:
    async with bench(1) as b:
        answer = await client(b.first).ask("PATCH", system_of(b.first), body)
        assert (answer.status, answer.message) == (400, message)


async def test_a_system_by_its_name_is_where_its_uuid_is() -> None:
    """As sushy-emulator answers (main.py, AliasAccessError)."""
    async with bench(2) as b:
        for rest in ("", "/VirtualMedia"):
            answer = await client(b.first).get(f"{SYSTEMS}/{b.first.node}{rest}")
            assert answer.status == 307
            assert answer.headers["location"] == f"{system_of(b.first)}{rest}"
        stranger = Client(b.first, {})
        assert (await stranger.get(f"{SYSTEMS}/{b.first.node}")).status == 401


async def test_a_body_of_another_media_type_is_refused() -> None:
    async with bench(1) as b:
        answer = await client(b.first).ask(
            "PATCH", system_of(b.first), b"<x/>", Content_Type="text/xml"
        )
        assert answer.status == 415


@pytest.mark.parametrize(
    "path",
    [
        "/redfish/v1/Nothing",
        "/nothing",
        f"{SYSTEMS}/5d0f2f0e-0000-4000-8000-000000000000",
        f"{SYSTEMS}/x",
        f"{SYSTEMS}/x/EthernetInterfaces",
        f"{SESSIONS}/x",
    ],
)
async def test_what_is_not_there_is_not_found(path: str) -> None:
    async with bench(1) as b:
        answer = await client(b.first).get(path)
        assert (answer.status, answer.message) == (404, "ResourceMissingAtURI")
        assert (await client(b.first).get(f"{system_of(b.first)}/EthernetInterfaces/9")).status == (
            404
        )


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", SYSTEMS, "GET, HEAD"),
        ("PUT", SESSIONS, "GET, HEAD, POST"),
        ("POST", "/redfish/v1/Managers", "GET, HEAD"),
    ],
)
async def test_a_method_that_is_not_allowed_is_told_what_is(
    method: str, path: str, allowed: str
) -> None:
    async with bench(1) as b:
        answer = await client(b.first).ask(method, path)
        assert answer.status == 405
        assert answer.headers["allow"] == allowed


async def test_another_odata_version_is_refused() -> None:
    async with bench(1) as b:
        assert (await client(b.first).get(SYSTEMS, OData_Version="3.0")).status == 412
        assert (await client(b.first).get(SYSTEMS, OData_Version="4.0")).status == 200


async def test_a_stale_etag_is_refused_and_a_fresh_one_spares_the_body() -> None:
    async with bench(1) as b:
        first = await client(b.first).get(system_of(b.first))
        tag = first.headers["etag"]
        assert first.json["@odata.etag"] == tag
        again = await client(b.first).get(system_of(b.first), If_None_Match=tag)
        assert (again.status, again.data) == (304, b"")
        body = {"Boot": {"BootSourceOverrideTarget": "Pxe"}}
        changed = await client(b.first).ask("PATCH", system_of(b.first), body, If_Match=tag)
        assert changed.status == 200
        stale = await client(b.first).ask("PATCH", system_of(b.first), body, If_Match=tag)
        assert stale.status == 412
        fresh = (await client(b.first).get(system_of(b.first))).headers["etag"]
        assert fresh == changed.headers["etag"] != tag


async def test_a_head_has_no_body() -> None:
    async with bench(1) as b:
        answer = await client(b.first).ask("HEAD", system_of(b.first))
        assert (answer.status, answer.data) == (200, b"")


async def test_hardware_is_told_as_declared() -> None:
    async with bench(1) as b:
        path, machine = system_of(b.first), b.first.machine
        system = (await client(b.first).get(path)).json
        assert system["UUID"] == str(machine.uuid)
        assert system["ProcessorSummary"]["Count"] == 2
        assert system["MemorySummary"]["TotalSystemMemoryGiB"] == 1.5
        nic = (await client(b.first).get(f"{path}/EthernetInterfaces/0")).json
        assert nic["MACAddress"] == machine.nics[0].mac


@pytest.mark.parametrize(
    ("rate", "told"), [(0, ("SSD", None)), (1, ("SSD", None)), (7200, ("HDD", 7200))]
)
async def test_a_drive_says_what_its_guest_is_told_of_it(
    rate: int, told: tuple[str, int | None]
) -> None:
    async with bench(1) as b:
        config = with_disk(b.first)
        (disk,) = config.machine.disks
        turning = replace(disk, bus="scsi", rotation_rate=rate)
        await b.service.put(replace(config, machine=replace(config.machine, disks=(turning,))))
        path = f"/redfish/v1/Chassis/{b.first.bmc.uuid}/Drives/0"
        drive = (await client(b.first).get(path)).json
        assert (drive["MediaType"], drive.get("RotationSpeedRPM")) == told


async def test_answers_on_a_kept_connection_are_not_held_back() -> None:
    """Head and body are two segments; with Nagle's algorithm each answer would take 40 ms more."""
    async with bench(1) as b:
        line = http.client.HTTPConnection(b.first.bmc.address, b.first.bmc.redfish_port, timeout=30)
        with contextlib.closing(line):
            await asyncio.to_thread(line.request, "GET", "/redfish/v1/")
            await asyncio.to_thread(lambda: line.getresponse().read())
            (end,) = _other_ends(line.sock.getsockname())
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def _other_ends(peer: tuple[str, int]) -> list[socket.socket]:
    """Of a connection from there: this process serves it."""
    found = []
    for each in gc.get_objects():
        if isinstance(each, socket.socket):
            with contextlib.suppress(OSError):  # it is not connected
                if each.getpeername() == peer:
                    found.append(each)
    return found
