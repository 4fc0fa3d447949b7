"""Bodies of requests: as long as they may be, however they are framed."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from nospoon.services.bmcs.redfish.http.exchange import MAX_BODY
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, client, system_of

from .test_volumes import post, rack

SESSIONS = "/redfish/v1/SessionService/Sessions"
PART = 1 << 16


async def chunked(b: Bench, method: str, path: str, data: bytes, *, known: bool = True) -> Answer:
    """A request with `Transfer-Encoding: chunked`; `known`: with the account of the BMC."""
    return await asyncio.to_thread(_chunked, b, method, path, data, known=known)


def _chunked(b: Bench, method: str, path: str, data: bytes, *, known: bool) -> Answer:
    bmc = b.first.bmc
    line = http.client.HTTPConnection(bmc.address, bmc.redfish_port, timeout=30)
    headers = {"Content-Type": "application/json", **(client(b.first).headers if known else {})}
    parts: Iterator[bytes] = (data[at : at + PART] for at in range(0, len(data), PART))
    try:
        line.request(method, path, parts, headers, encode_chunked=True)
        got = line.getresponse()
        return Answer(got.status, dict(got.getheaders()), got.read())
    finally:
        line.close()


def as_json(body: Any, *, size: int = 0) -> bytes:
    """At least so long."""
    return json.dumps(body).encode().ljust(size)


async def test_a_body_of_chunks_is_no_longer_than_any_other() -> None:
    async with bench(1) as b:
        lit = {"LocationIndicatorActive": True}
        fits = await chunked(b, "PATCH", system_of(b.first), as_json(lit, size=MAX_BODY))
        assert fits.status == 200
        long = await chunked(b, "PATCH", system_of(b.first), as_json(lit, size=MAX_BODY + 1))
        assert (long.status, long.message) == (413, "PayloadTooLarge")
        whole = as_json(lit, size=MAX_BODY + 1)
        refused = await client(b.first).ask("PATCH", system_of(b.first), whole)
        assert (refused.status, refused.message) == (413, "PayloadTooLarge")


async def test_whoever_has_not_logged_in_sends_no_more() -> None:
    async with bench(1) as b:
        body = as_json({"UserName": "admin", "Password": "x"}, size=4 * MAX_BODY)
        assert (await chunked(b, "POST", SESSIONS, body, known=False)).status == 413


@pytest.mark.parametrize(
    "path",
    [
        "{system}/LogServices/SEL/Actions/LogService.ClearLog",
        "/redfish/v1/EventService/Actions/EventService.SubmitTestEvent",
    ],
)
async def test_a_body_that_may_be_left_out_is_read_when_it_comes_in_chunks(path: str) -> None:
    async with bench(1) as b:
        place = path.format(system=system_of(b.first))
        refused = await chunked(b, "POST", place, as_json({"Spoon": 1}))
        assert refused.status == 400


async def test_a_volume_is_not_removed_at_another_time_than_its_client_says() -> None:
    async with rack() as b:
        place = (await post(b, {"CapacityBytes": 1 << 30})).headers["location"]
        body = as_json({"@Redfish.OperationApplyTime": "Immediate"})
        assert (await chunked(b, "DELETE", place, body)).status == 400
        long = await chunked(b, "DELETE", place, as_json({}, size=MAX_BODY + 1))
        assert long.status == 413
        assert (await client(b.first).ask("DELETE", place)).status == 204
