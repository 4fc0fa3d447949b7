"""What DSP0266 wants of headers and methods, whatever the resource is."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from nospoon.model.cluster import Firmware
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.testing.bench import bench
from nospoon.testing.redfish import SYSTEMS, Client, client, system_of

from .test_service import SESSIONS


async def test_what_is_read_tells_its_methods_and_its_schema() -> None:
    async with bench(1) as b:
        system = await client(b.first).get(system_of(b.first))
        assert system.headers["allow"] == "GET, HEAD, PATCH"
        kind = system.json["@odata.type"].split(".")[1]
        place = f"http://redfish.dmtf.org/schemas/v1/ComputerSystem.{kind}.json"
        assert system.headers["link"] == f"<{place}>; rel=describedby"
        listed = await client(b.first).get(SYSTEMS)
        assert "/ComputerSystemCollection.json>" in listed.headers["link"]


@pytest.mark.parametrize("path", ["/redfish/v1/", SYSTEMS])
async def test_a_method_that_no_resource_has_is_not_implemented(path: str) -> None:
    async with bench(1) as b:
        refused = await client(b.first).ask("TRACE", path)
        assert (refused.status, refused.message) == (501, "GeneralError")


async def test_a_method_that_this_resource_lacks_tells_those_it_has() -> None:
    async with bench(1) as b:
        refused = await client(b.first).ask("OPTIONS", SYSTEMS)
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_a_session_is_made_at_the_members_of_the_collection_too() -> None:
    async with bench(1) as b:
        account = {"UserName": b.first.bmc.username, "Password": b.first.password}
        made = await Client(b.first, {}).ask("POST", f"{SESSIONS}/Members", account)
        assert made.status == 201
        session = Client(b.first, {"X-Auth-Token": made.headers["x-auth-token"]})
        assert (await session.get(made.headers["location"])).status == 200
        wrong = account | {"Password": "another"}
        refused = await Client(b.first, {}).ask("POST", f"{SESSIONS}/Members", wrong)
        assert refused.status == 401


async def said(to: BmcConfig, request: bytes) -> list[bytes]:
    """The status lines of what is answered to these bytes, sent at once."""
    return [each for each in (await heard(to, request)).split(b"\r\n") if each.startswith(b"HTTP/")]


async def heard(to: BmcConfig, request: bytes) -> bytes:
    """All that is answered until the connection is closed."""
    reader, writer = await asyncio.open_connection(to.bmc.address, to.bmc.redfish_port)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("method", [b"FAKEMETHOD", b"PROPFIND", b"A"])
async def test_a_method_that_is_not_implemented_is_told_as_every_error_is(method: bytes) -> None:
    async with bench(1) as b:
        request = method + b" /redfish/v1/ HTTP/1.1\r\nHost: bmc\r\nConnection: close\r\n\r\n"
        head, _, body = (await heard(b.first, request)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 501 ")
        assert f"content-length: {len(body)}" in head.decode().lower()
        assert b"application/json" in head
        (info,) = json.loads(body)["error"]["@Message.ExtendedInfo"]
        assert info["MessageId"].endswith(".GeneralError")
        assert method.decode() in info["Message"]


async def test_a_method_that_nobody_knows_is_told_behind_the_body_of_another_request_too() -> None:
    async with bench(1) as b:
        odd = b"FAKEMETHOD /redfish/v1/ HTTP/1.1\r\nHost: bmc\r\n\r\n"
        post = b"POST /redfish/v1/ HTTP/1.1\r\nHost: bmc\r\nContent-Length: 2\r\n\r\n{}"
        assert await said(b.first, odd) == [b"HTTP/1.1 501 Not Implemented"]
        assert b"HTTP/1.1 501 Not Implemented" in await said(b.first, post + odd)


async def test_a_malformed_request_is_told_as_every_error_is() -> None:
    async with bench(1) as b:
        told = await heard(b.first, b"GET /redfish/v1/ HTTP/1.1\r\nno header\r\n\r\n")
        (info,) = json.loads(told.partition(b"\r\n\r\n")[2])["error"]["@Message.ExtendedInfo"]
        assert info["Message"] == "Invalid HTTP request received."


async def test_an_error_that_nobody_expected_is_told_as_every_error_is() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        b.machines.keys = cast("Any", None)  # nothing that could be gone through
        answer = await client(b.first).get(f"{system_of(b.first)}/SecureBoot/SecureBootDatabases")
        assert (answer.status, answer.message) == (500, "InternalError")
        assert (await client(b.first).get(SYSTEMS)).status == 200


@pytest.mark.parametrize(
    ("headers", "status", "told"),
    [
        ({"OData_Version": "3.0"}, 412, "OData-Version: 3.0"),
        ({"Content_Type": "text/plain"}, 415, "Content-Type: text/plain"),
    ],
)
async def test_a_header_that_makes_no_sense_is_named(
    headers: dict[str, str], status: int, told: str
) -> None:
    async with bench(1) as b:
        place = system_of(b.first)
        refused = await client(b.first).ask("PATCH", place, {"AssetTag": "x"}, **headers)
        assert (refused.status, refused.message) == (status, "HeaderInvalid")
        (info,) = refused.json["error"]["@Message.ExtendedInfo"]
        assert info["MessageArgs"] == [told]
        assert told in info["Message"]


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_queries_are_for_what_is_read(method: str) -> None:
    async with bench(1) as b:
        line, place = client(b.first), system_of(b.first)
        answer = await line.ask(method, f"{place}?$select=Name", {"AssetTag": "x"})
        assert (answer.status, answer.message) == (400, "QueryNotSupportedOnOperation")
        assert (await line.get(place)).json["AssetTag"] is None
        assert (await line.ask("PATCH", f"{place}?mine=1", {"AssetTag": "x"})).status == 200


async def test_a_malformed_request_is_a_bad_request() -> None:
    async with bench(1) as b:
        assert await said(b.first, b"GET /redfish/v1/ HTTP/1.1\r\nno header\r\n\r\n") == [
            b"HTTP/1.1 400 Bad Request"
        ]


async def test_of_changes_of_a_system_at_once_with_one_etag_one_wins() -> None:
    async with bench(1) as b:
        line, place = client(b.first), system_of(b.first)
        tag = (await line.get(place)).headers["etag"]
        body = {"LocationIndicatorActive": True}
        told = await asyncio.gather(
            *(line.ask("PATCH", place, body, If_Match=tag) for _ in range(5))
        )
        assert sorted(each.status for each in told) == [200, 412, 412, 412, 412]
