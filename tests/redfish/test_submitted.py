"""Test events, and an event service that is disabled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nospoon.services.bmcs.redfish.resources import event_service
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client

from .test_events import SERVICE, TEST, said, sink, stream, submit, subscribe


def test_the_destination_of_a_stream_is_its_client() -> None:
    assert event_service._destination_of("10.0.0.1", 5) == "redfish-sse://10.0.0.1:5"
    assert event_service._destination_of("fd00::1", 5) == "redfish-sse://[fd00::1]:5"


async def test_a_service_that_is_disabled_has_no_streams() -> None:
    async with bench(1) as b:
        line = client(b.first)
        async with stream(b) as reader:
            await line.ask("PATCH", SERVICE, {"ServiceEnabled": False})
            async with asyncio.timeout(20):
                assert (await reader.readuntil(b"\r\n0\r\n\r\n")).endswith(b"0\r\n\r\n")
        refused = await line.get(f"{SERVICE}/SSE")
        assert (refused.status, refused.message) == (503, "ServiceDisabled")
        assert refused.headers["content-type"].startswith("application/json")
        await line.ask("PATCH", SERVICE, {"ServiceEnabled": True})
        async with stream(b) as reader:
            await submit(b, EventId="there")
            assert (await said(reader))["Id"] == "there"


async def test_a_test_event_is_what_its_client_says_and_no_more() -> None:
    async with bench(1) as b, sink() as to:
        await subscribe(b, to)
        told = {
            "EventId": "7",
            "EventTimestamp": "2026-01-31T12:00:00+01:00",
            "EventType": "StatusChange",
            "EventGroupId": 9,
            "Severity": "Warning",
            "MessageSeverity": "Warning",
            "Message": "Spoon %1 is not there.",
            "MessageArgs": ["1"],
            "MessageId": "Spoon.1.0.NotThere",
        }
        assert (await submit(b, **told, OriginOfCondition="/redfish/v1/Systems/1")).status == 204
        await to.until(lambda: len(to.records) == 1)
        origin = {"@odata.id": "/redfish/v1/Systems/1"}
        shown = {**told, "Message": "Spoon 1 is not there.", "OriginOfCondition": origin}
        assert to.records[0] == {"MemberId": "0", **shown}
        assert (await submit(b)).status == 204
        await to.until(lambda: len(to.records) == 2)
        assert set(to.records[1]) == {"MemberId", "EventId", "MessageId"}


async def test_the_test_message_of_the_registry_is_sent() -> None:
    async with bench(1) as b, sink() as to:
        await subscribe(b, to)
        action = f"{SERVICE}/Actions/EventService.TestEventSubscription"
        shown = (await client(b.first).get(SERVICE)).json["Actions"]
        assert {"target": action} in shown.values()
        assert (await client(b.first).ask("POST", action)).status == 204
        await to.until(lambda: "TestMessage" in to.keys)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"MessageId": None}, "ActionParameterValueTypeError"),
        ({"MessageId": "TestMessage"}, "ActionParameterValueFormatError"),
        ({"MessageId": "Spoon.1.0.1.Bent"}, "ActionParameterValueFormatError"),
        ({"MessageId": "Spoon.1.0.Bent\n"}, "ActionParameterValueFormatError"),
        ({"MessageId": "Spoon.1.٠.Bent"}, "ActionParameterValueFormatError"),
        ({"EventTimestamp": "yesterday"}, "ActionParameterValueFormatError"),
        ({"EventTimestamp": "2026-02-30T00:00:00Z"}, "ActionParameterValueFormatError"),
        ({"EventTimestamp": "2026-02-03T00:00:00"}, "ActionParameterValueFormatError"),
        ({"EventTimestamp": 5}, "ActionParameterValueTypeError"),
        ({"EventId": "1\n\ndata: x"}, "ActionParameterValueFormatError"),
        ({"EventGroupId": True}, "ActionParameterValueTypeError"),
        ({"EventType": "Party"}, "ActionParameterValueNotInList"),
        ({"Severity": "Bad"}, "ActionParameterValueNotInList"),
        ({"MessageSeverity": "Bad"}, "ActionParameterValueNotInList"),
        ({"MessageArgs": "a"}, "ActionParameterValueTypeError"),
        ({"MessageArgs": [1]}, "ActionParameterValueTypeError"),
        ({"Spoon": 1}, "ActionParameterUnknown"),
    ],
)
async def test_a_test_event_that_makes_no_sense_is_refused(body: dict[str, Any], told: str) -> None:
    async with bench(1) as b:
        answer = await submit(b, **body)
        assert (answer.status, answer.message) == (400, told)


async def test_a_test_event_without_an_identifier_is_refused() -> None:
    async with bench(1) as b:
        missing = await client(b.first).ask("POST", TEST)
        assert (missing.status, missing.message) == (400, "ActionParameterMissing")
