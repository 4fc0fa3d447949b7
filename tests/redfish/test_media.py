"""Virtual media by Redfish: inserted at once or as a Task, shown, ejected; and HTTP boot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nospoon.bmc.faults import Fault, Kind
from nospoon.errors import Obstacle, OutOfSpace, ProviderError, Unfetchable
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, client, system_of

IMAGE = "http://h/images/boot.iso?x=1"


async def act(rack: Bench, name: str, body: Any = None, owner: str = "Systems") -> Answer:
    place = f"/redfish/v1/{owner}/{rack.first.bmc.uuid}/VirtualMedia/Cd"
    return await client(rack.first).ask("POST", f"{place}/Actions/VirtualMedia.{name}", body or {})


async def drive(rack: Bench, owner: str = "Systems") -> Any:
    place = f"/redfish/v1/{owner}/{rack.first.bmc.uuid}/VirtualMedia/Cd"
    return (await client(rack.first).get(place)).json


@pytest.mark.parametrize("owner", ["Systems", "Managers"])
async def test_media_are_inserted_shown_in_both_places_and_ejected(owner: str) -> None:
    async with bench(1) as rack:
        body = {"Image": IMAGE, "UserName": "me", "Password": "secret", "Inserted": True}
        assert (await act(rack, "InsertMedia", body, owner)).status == 204
        uuid = rack.first.bmc.uuid
        assert rack.media.asked == [(uuid, IMAGE, "me", "secret", False)]
        for place in ("Systems", "Managers"):
            shown = await drive(rack, place)
            assert (shown["Image"], shown["ImageName"], shown["Inserted"]) == (
                IMAGE, "boot.iso", True,
            )  # fmt: skip
            assert "Password" not in shown
        assert (await act(rack, "EjectMedia", owner=owner)).status == 204
        assert (await drive(rack))["Inserted"] is False


async def test_of_an_image_without_a_scheme_the_transfer_protocol_is_its() -> None:
    async with bench(1) as rack:
        body = {"Image": "h/boot.iso", "TransferProtocolType": "HTTPS"}
        assert (await act(rack, "InsertMedia", body)).status == 204
        assert (await drive(rack))["Image"] == "https://h/boot.iso"


async def test_a_long_transfer_is_a_task_that_can_be_watched_to_its_end() -> None:
    async with bench(1) as rack:
        rack.media.gate = asyncio.Event()
        begun = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert begun.status == 202
        assert (begun.json["TaskState"], begun.json["TaskStatus"]) == ("Running", "OK")
        monitor, task = begun.headers["location"], begun.json["@odata.id"]
        assert (await client(rack.first).get(monitor)).status == 202
        rack.media.gate.set()
        for _ in range(200):
            if (await client(rack.first).get(monitor)).status != 202:
                break
        assert (await client(rack.first).get(monitor)).status == 204
        ended = (await client(rack.first).get(task)).json
        assert (ended["TaskState"], ended["PercentComplete"]) == ("Completed", 100)
        assert (await drive(rack))["Inserted"] is True


async def test_a_transfer_that_fails_says_why_and_leaves_nothing_in() -> None:
    async with bench(1) as rack:
        rack.media.error = ProviderError("cannot fetch it: HTTP Error 404")
        refused = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert refused.status == 500
        assert "HTTP Error 404" in refused.json["error"]["message"]
        tasks = (await client(rack.first).get("/redfish/v1/TaskService/Tasks")).json["Members"]
        shown = (await client(rack.first).get(tasks[0]["@odata.id"])).json
        assert (shown["TaskState"], shown["TaskStatus"]) == ("Exception", "Critical")
        assert "HTTP Error 404" in shown["Messages"][0]["Message"]
        assert (await drive(rack))["Inserted"] is False


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "ActionParameterMissing"),
        ({"Image": 3}, "ActionParameterValueTypeError"),
        ({"Image": "nfs://h/x.iso"}, "ActionParameterValueFormatError"),
        ({"Image": IMAGE, "TransferProtocolType": "NFS"}, "ActionParameterValueNotInList"),
        ({"Image": IMAGE, "Inserted": False}, "ActionParameterValueNotInList"),
        ({"Image": "http:///x.iso"}, "ActionParameterValueFormatError"),
        ({"Image": "http://h/a b.iso"}, "ActionParameterValueFormatError"),
        ({"Image": None}, "ActionParameterValueTypeError"),
        ({"Image": IMAGE, "Password": 7}, "ActionParameterValueTypeError"),
        ({"Image": IMAGE, "TransferMethod": "Teleport"}, "ActionParameterValueNotInList"),
        ({"Image": IMAGE, "Whatever": 1}, "ActionParameterUnknown"),
    ],
)
async def test_an_insertion_that_makes_no_sense_is_refused(body: Any, message: str) -> None:
    async with bench(1) as rack:
        refused = await act(rack, "InsertMedia", body)
        assert (refused.status, refused.message) == (400, message)
        assert rack.media.asked == []


async def test_whether_certificates_are_verified_can_be_set() -> None:
    async with bench(1) as rack:
        place = f"{system_of(rack.first)}/VirtualMedia/Cd"
        changed = await client(rack.first).ask("PATCH", place, {"VerifyCertificate": True})
        assert (changed.status, changed.json["VerifyCertificate"]) == (200, True)
        await act(rack, "InsertMedia", {"Image": IMAGE})
        assert rack.media.asked[0][-1] is True
        refused = await client(rack.first).ask("PATCH", place, {"VerifyCertificate": "yes"})
        assert refused.message == "PropertyValueTypeError"


async def test_others_see_neither_the_task_nor_the_drive() -> None:
    async with bench(2) as rack:
        rack.media.gate = asyncio.Event()
        begun = await act(rack, "InsertMedia", {"Image": IMAGE})
        stranger = client(rack.configs[1])
        assert (await stranger.get(begun.json["@odata.id"])).status == 404
        place = f"{system_of(rack.first)}/VirtualMedia/Cd"
        assert (await stranger.get(place)).status == 404
        rack.media.gate.set()


async def test_the_uri_of_http_boot_is_set_beside_the_override_and_taken_away() -> None:
    async with bench(1) as rack:
        line, place = client(rack.first), system_of(rack.first)
        body = {"Boot": {"HttpBootUri": "http://h/x.efi"}}
        shown = (await line.ask("PATCH", place, body)).json["Boot"]
        assert (shown["HttpBootUri"], shown["BootSourceOverrideTarget"]) == (
            "http://h/x.efi", "None",
        )  # fmt: skip
        body = {"Boot": {"BootSourceOverrideTarget": "UefiHttp"}}
        shown = (await line.ask("PATCH", place, body)).json["Boot"]
        assert (shown["HttpBootUri"], shown["BootSourceOverrideTarget"]) == (
            "http://h/x.efi", "UefiHttp",
        )  # fmt: skip
        shown = (await line.ask("PATCH", place, {"Boot": {"HttpBootUri": None}})).json["Boot"]
        assert shown["HttpBootUri"] is None
        refused = await line.ask("PATCH", place, {"Boot": {"HttpBootUri": 4}})
        assert refused.message == "PropertyValueTypeError"
        refused = await line.ask("PATCH", place, {"Boot": {"BootOptions": {}}})
        assert refused.message == "PropertyNotWritable"


@pytest.mark.parametrize(
    "uri",
    ["tftp://h/x", "http://", "http:///x", "http://h/a b", "http://h:0/x", "http://[::1/x", "https",
     "http://h/\n", "http://hé/x"],
)  # fmt: skip
async def test_a_uri_that_nothing_boots_from_is_refused(uri: str) -> None:
    async with bench(1) as rack:
        line, place = client(rack.first), system_of(rack.first)
        refused = await line.ask("PATCH", place, {"Boot": {"HttpBootUri": uri}})
        assert (refused.status, refused.message) == (400, "PropertyValueFormatError")
        assert (await line.get(place)).json["Boot"]["HttpBootUri"] is None


async def test_an_address_of_ipv6_boots_by_http_too() -> None:
    async with bench(1) as rack:
        body = {"Boot": {"HttpBootUri": "https://[fd00::1]:8443/boot.efi"}}
        answer = await client(rack.first).ask("PATCH", system_of(rack.first), body)
        assert answer.json["Boot"]["HttpBootUri"] == "https://[fd00::1]:8443/boot.efi"


@pytest.mark.parametrize(
    ("why", "message", "args"),
    [
        (Obstacle.UNREACHABLE, "CouldNotEstablishConnection", [IMAGE]),
        (Obstacle.UNAUTHORIZED, "ResourceAtUriUnauthorized", [IMAGE, "no: HTTP Error 401"]),
        (Obstacle.MISSING, "ResourceMissingAtURI", [IMAGE]),
        (Obstacle.BROKEN, "InvalidObject", [IMAGE]),
    ],
)
async def test_what_cannot_be_fetched_is_told_as_what_it_is(
    why: Obstacle, message: str, args: list[str]
) -> None:
    async with bench(1) as rack:
        rack.media.error = Unfetchable("no: HTTP Error 401", url=IMAGE, why=why)
        refused = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert (refused.status, refused.message) == (400, message)
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert info["MessageArgs"] == args
        assert all(each in info["Message"] for each in args)
        assert info["Resolution"] == "no: HTTP Error 401."
        (task,) = (await client(rack.first).get("/redfish/v1/TaskService/Tasks")).json["Members"]
        shown = (await client(rack.first).get(task["@odata.id"])).json
        assert shown["TaskState"] == "Exception"
        assert shown["Messages"][0]["MessageId"].endswith(f".{message}")


async def test_a_disk_that_is_full_is_told() -> None:
    async with bench(1) as rack:
        rack.media.error = OutOfSpace("pool nospoon is full")
        refused = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert (refused.status, refused.message) == (507, "InsufficientStorage")
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert info["Resolution"] == "pool nospoon is full"


async def test_work_that_ends_as_nobody_expected_is_not_completed() -> None:
    async with bench(1) as rack:
        rack.media.service = None  # so that it trips over an assertion
        refused = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert refused.status == 500
        (task,) = (await client(rack.first).get("/redfish/v1/TaskService/Tasks")).json["Members"]
        shown = (await client(rack.first).get(task["@odata.id"])).json
        assert (shown["TaskState"], shown["TaskStatus"]) == ("Exception", "Critical")
        assert shown["Messages"]


async def test_a_task_tells_no_account() -> None:
    async with bench(1) as rack:
        await act(rack, "InsertMedia", {"Image": "http://me:secret@h/x.iso"})
        (task,) = (await client(rack.first).get("/redfish/v1/TaskService/Tasks")).json["Members"]
        shown = await client(rack.first).get(task["@odata.id"])
        assert b"http://h/x.iso" in shown.data
        assert b"secret" not in shown.data


async def test_media_fail_on_demand_as_often_as_was_asked() -> None:
    async with bench(1) as rack:
        rack.service.set_fault(rack.first.bmc.uuid, Fault(Kind.MEDIA_FAILS, count=1))
        refused = await act(rack, "InsertMedia", {"Image": IMAGE})
        assert (refused.status, refused.message) == (400, "CouldNotEstablishConnection")
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert "injected fault" in info["Resolution"]
        assert (await act(rack, "InsertMedia", {"Image": IMAGE})).status == 204
