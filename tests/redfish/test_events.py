"""EventService: who is told of what, by HTTP and by server-sent events."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nospoon.bmc import events
from nospoon.bmc.events import EventSettings, Filter, Happening, Message
from nospoon.bmc.messages import SettingsRequested
from nospoon.bmc.runtime import Settings
from nospoon.bmc.users import User
from nospoon.errors import ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.services.bmcs.certificates import Certificates
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import Answer, Client, client, system_of

from .test_service import reset

SERVICE = "/redfish/v1/EventService"
SUBSCRIPTIONS = f"{SERVICE}/Subscriptions"
TEST = f"{SERVICE}/Actions/EventService.SubmitTestEvent"


@dataclass
class Sink:
    """Somebody who is told: what was posted, and with which headers; `status` is its answer."""

    port: int = 0
    status: int = 204
    scheme: str = "http"
    got: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    asked: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def uri(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/told?by=redfish"

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lengths = [line for line in head.split("\r\n") if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(lengths[0].partition(":")[2]))
        self.asked += 1
        if self.status < 300:
            self.got.append(json.loads(body))
            self.heads.append(head)
        writer.write(f"HTTP/1.1 {self.status} So\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        self.news.set()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [record for event in self.got for record in event["Events"]]

    @property
    def keys(self) -> list[str]:
        return [str(each["MessageId"]).rpartition(".")[2] for each in self.records]

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not so():
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def sink(tls: ssl.SSLContext | None = None) -> AsyncIterator[Sink]:
    found = Sink(scheme="https" if tls is not None else "http")
    server = await asyncio.start_server(found.take, "127.0.0.1", 0, ssl=tls)
    async with server:
        found.port = server.sockets[0].getsockname()[1]
        yield found


def asked(b: Bench) -> bool:
    """Whether anybody listens."""
    return b.service.events.asked


async def subscribe(b: Bench, to: Sink, **body: Any) -> Answer:
    wanted = {"Destination": to.uri, "Protocol": "Redfish", **body}
    return await client(b.first).ask("POST", SUBSCRIPTIONS, wanted)


async def submit(b: Bench, **body: Any) -> Answer:
    """A test event, with the registry's identifier when no other one is given."""
    wanted = {"MessageId": "ResourceEvent.1.3.TestMessage", **body}
    return await client(b.first).ask("POST", TEST, wanted)


async def test_a_subscriber_is_told_of_power_and_new_log_entries() -> None:
    async with bench(1) as b, sink() as to:
        headers = [{"X-Token": "s3cret"}]
        made = await subscribe(b, to, Context="mine", HttpHeaders=headers)
        assert made.status == 201
        shown = (await client(b.first).get(made.headers["location"])).json
        assert (shown["Context"], shown["HttpHeaders"]) == ("mine", [])
        assert b"s3cret" not in made.data
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await to.until(lambda: "ResourcePoweredOn" in to.keys)
        await to.until(lambda: "ResourceCreated" in to.keys)
        (on,) = (each for each in to.records if each["MessageId"].endswith("PoweredOn"))
        assert on["OriginOfCondition"] == {"@odata.id": system_of(b.first)}
        assert on["Message"] == "The resource `n0` has powered on."
        entry = (await client(b.first).get(on["LogEntry"]["@odata.id"])).json
        assert entry["Message"] == "The machine was powered on"
        assert to.got[0]["Context"] == "mine"
        assert to.heads[0].startswith("POST /told?by=redfish HTTP/1.1\r\n")
        assert "\r\nX-Token: s3cret\r\n" in to.heads[0]


async def test_settings_media_tasks_and_faults_are_told() -> None:
    async with bench(1) as b, sink() as to:
        await subscribe(b, to)
        boot = {"Boot": {"BootSourceOverrideTarget": "Pxe"}}
        await client(b.first).ask("PATCH", system_of(b.first), boot)
        drive = f"{system_of(b.first)}/VirtualMedia/Cd"
        insert = f"{drive}/Actions/VirtualMedia.InsertMedia"
        await client(b.first).ask("POST", insert, {"Image": "http://h/x.iso"})
        await to.until(lambda: "TaskCompletedOK" in to.keys)
        origins = {each["OriginOfCondition"]["@odata.id"] for each in to.records}
        assert system_of(b.first) in origins
        assert f"/redfish/v1/Managers/{b.first.bmc.uuid}/VirtualMedia/Cd" in origins
        assert "TaskStarted" in to.keys
        b.machines.error = ProviderError("no spoon")
        await reset(b, "On")
        await to.until(lambda: "ResourceStatusChangedCritical" in to.keys)
        b.machines.error = None
        await reset(b, "On")
        await to.until(lambda: "ResourceStatusChangedOK" in to.keys)


async def test_events_go_over_tls_to_whoever_may_be_trusted(tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Certificates(tmp_path).path("127.0.0.1"))
    async with bench(1) as b, sink(context) as to:
        await subscribe(b, to, VerifyCertificate=True, DeliveryRetryPolicy="RetryForever")
        await subscribe(b, to, Context="trusting")
        await submit(b)
        await to.until(lambda: bool(to.got))
        assert [each["Context"] for each in to.got] == ["trusting"]


async def test_a_subscriber_hears_only_of_systems_of_its_account() -> None:
    async with bench(2) as b, sink() as to:
        await subscribe(b, to)
        await b.service.power(b.configs[1].bmc.uuid, PowerCommand.ON)
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await to.until(lambda: "ResourcePoweredOn" in to.keys)
        assert str(b.configs[1].bmc.uuid) not in json.dumps(to.got)


def happening(
    message: Message = events.CHANGED, origin: str = "/redfish/v1/Systems/1"
) -> Happening:
    return Happening(message, origin, "ComputerSystem", 0.0)


@pytest.mark.parametrize(
    ("wanted", "so"),
    [
        (Filter(), True),
        (Filter(prefixes=("ResourceEvent",)), True),
        (Filter(prefixes=("TaskEvent",)), False),
        (Filter(prefixes=("TaskEvent",), message_ids=("ResourceEvent.ResourceChanged",)), True),
        (Filter(no_prefixes=("ResourceEvent",)), False),
        (Filter(message_ids=("ResourceEvent.1.0.ResourceChanged",)), True),
        (Filter(message_ids=("ResourceEvent.1.3.ResourceCreated",)), False),
        (Filter(no_message_ids=("ResourceEvent.ResourceChanged",)), False),
        (Filter(kinds=("ComputerSystem", "Task")), True),
        (Filter(kinds=("Task",)), False),
        (Filter(origins=("/redfish/v1/Systems/1",)), True),
        (Filter(origins=("/redfish/v1/Systems",)), False),
        (Filter(origins=("/redfish/v1/Systems/",), subordinate=True), True),
        (Filter(origins=("/redfish/v1/Sys",), subordinate=True), False),
        (Filter(types=("ResourceUpdated",)), True),
        (Filter(types=("Alert",)), False),
        (Filter(types=("Alert", "Other")), True),
        (Filter(severities=("Critical",)), False),
    ],
)
def test_filters_fit_what_they_name(wanted: Filter, so: bool) -> None:  # noqa: FBT001
    assert wanted.accepts(happening()) is so


async def test_filters_of_a_subscription_hold() -> None:
    async with bench(1) as b, sink() as to:
        origins = [{"@odata.id": f"{system_of(b.first)}/LogServices"}]
        await subscribe(b, to, OriginResources=origins, SubordinateResources=True)
        await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
        await to.until(lambda: len(to.keys) > 1)
        assert set(to.keys) == {"ResourceCreated"}


async def until_gone(b: Bench, path: str, so: Callable[[Answer], bool]) -> Answer:
    async with asyncio.timeout(60):
        while not so(answer := await client(b.first).get(path)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return answer


async def set_retries(b: Bench) -> None:
    quick = {"DeliveryRetryAttempts": 1, "DeliveryRetryIntervalSeconds": 1}
    assert (await client(b.first).ask("PATCH", SERVICE, quick)).status == 200


async def test_a_destination_that_refuses_is_asked_again_then_its_subscription_ends() -> None:
    async with bench(1) as b, sink() as to:
        await set_retries(b)
        place = (await subscribe(b, to)).headers["location"]
        to.status = 500
        await submit(b)
        await until_gone(b, place, lambda answer: answer.status == 404)
        assert to.asked == 2


async def test_a_suspended_subscription_is_resumed() -> None:
    async with bench(1) as b, sink() as to:
        await set_retries(b)
        place = (await subscribe(b, to, DeliveryRetryPolicy="SuspendRetries")).headers["location"]
        to.status = 500
        await submit(b)
        await until_gone(b, place, lambda a: a.json["Status"]["State"] == "Disabled")
        to.status = 204
        await submit(b)
        resume = f"{place}/Actions/EventDestination.ResumeSubscription"
        assert (await client(b.first).ask("POST", resume, {})).status == 204
        await submit(b, EventId="after")
        await to.until(lambda: bool(to.got))
        assert [each["EventId"] for each in to.records] == ["after"]


async def test_what_waited_is_delivered_in_order_when_the_destination_is_back() -> None:
    async with bench(1) as b, sink() as to:
        await set_retries(b)
        await subscribe(b, to, DeliveryRetryPolicy="RetryForever")
        to.status = 503
        for number in range(5):
            await submit(b, EventId=f"e{number}")
        await to.until(lambda: to.asked > 0)
        to.status = 200
        await to.until(lambda: len(to.records) == 5)
        assert [each["EventId"] for each in to.records] == [f"e{number}" for number in range(5)]


async def test_subscriptions_are_changed_and_deleted() -> None:
    async with bench(1) as b, sink() as to:
        place = (await subscribe(b, to, Context="a")).headers["location"]
        line = client(b.first)
        tag = (await line.get(place)).headers["etag"]
        assert (await line.ask("PATCH", place, {"Context": "b"}, If_Match=tag)).status == 200
        assert (await line.ask("PATCH", place, {"Context": "c"}, If_Match=tag)).status == 412
        refused = await line.ask("PATCH", place, {"Destination": "http://elsewhere/"})
        assert (refused.status, refused.message) == (400, "PropertyNotWritable")
        assert (await line.get(place)).json["Context"] == "b"
        assert (await line.ask("DELETE", place)).status == 204
        assert (await line.get(SUBSCRIPTIONS)).json["Members"] == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "PropertyMissing"),
        ({"Destination": None}, "PropertyValueTypeError"),
        ({"Destination": "ftp://h/"}, "PropertyValueNotInList"),
        ({"Destination": "http://"}, "PropertyValueNotInList"),
        ({"Destination": "http://h:x/"}, "PropertyValueNotInList"),
        ({"Destination": "http://h/\r\nX: y"}, "PropertyValueNotInList"),
        ({"Destination": 4}, "PropertyValueTypeError"),
        ({"Destination": "http://h/", "Spoon": 1}, "PropertyUnknown"),
        ({"Destination": "http://h/", "Protocol": "SNMPv3"}, "PropertyValueNotInList"),
        ({"Destination": "http://h/", "RegistryPrefixes": ["X"]}, "PropertyValueNotInList"),
        ({"Destination": "http://h/", "ResourceTypes": "Task"}, "PropertyValueTypeError"),
        ({"Destination": "http://h/", "OriginResources": ["/x"]}, "PropertyValueTypeError"),
        ({"Destination": "http://h/", "MessageIds": ["Base"]}, "PropertyValueNotInList"),
        ({"Destination": "http://h/", "HttpHeaders": [{"a": "b\r\nc"}]}, "PropertyValueTypeError"),
        ({"Destination": "http://h/", "HttpHeaders": [{"Host": "h"}]}, "PropertyValueNotInList"),
        ({"Destination": "http://h/", "DeliveryRetryPolicy": "No"}, "PropertyValueNotInList"),
        ({"Destination": "http://h/", "SubordinateResources": 1}, "PropertyValueTypeError"),
    ],
)
async def test_what_cannot_be_subscribed_to_is_refused(body: dict[str, Any], told: str) -> None:
    async with bench(1) as b:
        whole = {"Protocol": "Redfish", **body}
        answer = await client(b.first).ask("POST", SUBSCRIPTIONS, whole)
        assert (answer.status, answer.message) == (400, told)
        assert (await client(b.first).get(SUBSCRIPTIONS)).json["Members"] == []


async def test_a_subscription_says_by_which_protocol() -> None:
    async with bench(1) as b:
        body = {"Destination": "http://h/"}
        answer = await client(b.first).ask("POST", SUBSCRIPTIONS, body)
        assert (answer.status, answer.message) == (400, "PropertyMissing")
        (info,) = answer.json["error"]["@Message.ExtendedInfo"]
        assert info["MessageArgs"] == ["Protocol"]


async def test_one_who_may_only_look_cannot_subscribe() -> None:
    async with bench(1) as b, sink() as to:
        served = b.service.status(b.first.bmc.uuid)
        assert served is not None
        bob = User(3, "bob", "hunter22", 2, enabled=True, messaging=True)
        await b.service.ask(served, lambda t: SettingsRequested(Settings(users=(bob,)), t))
        bmc = replace(b.first.bmc, username="bob")
        reader = client(replace(b.first, bmc=bmc, password="hunter22"))
        assert (await reader.get(SERVICE)).status == 200
        answer = await reader.ask("POST", SUBSCRIPTIONS, {"Destination": to.uri})
        assert answer.status == 403


async def test_an_account_has_so_many_subscriptions_and_no_more() -> None:
    async with bench(1) as b, sink() as to:
        statuses = [(await subscribe(b, to)).status for _ in range(33)]
        assert statuses == [201] * 32 + [503]


async def test_a_service_that_is_disabled_tells_nothing() -> None:
    async with bench(1) as b, sink() as to:
        await subscribe(b, to)
        await client(b.first).ask("PATCH", SERVICE, {"ServiceEnabled": False})
        await submit(b, EventId="lost")
        await client(b.first).ask("PATCH", SERVICE, {"ServiceEnabled": True})
        await submit(b, EventId="told")
        await to.until(lambda: bool(to.got))
        assert [each["EventId"] for each in to.records] == ["told"]


async def test_nobody_asked_means_nothing_is_made() -> None:
    async with bench(1) as b:
        assert not asked(b)
        b.service.events.restore([EventSettings("127.0.0.1 1", "00")])
        assert not asked(b)


@asynccontextmanager
async def stream(
    b: Bench, query: str = "", *, line: Client | None = None
) -> AsyncIterator[asyncio.StreamReader]:
    bmc = b.first.bmc
    reader, writer = await asyncio.open_connection(bmc.address, bmc.redfish_port)
    headers = {"Host": "x", **(line or client(b.first)).headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"GET {SERVICE}/SSE{query} HTTP/1.1\r\n{lines}\r\n"
    writer.write(head.encode())
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert "200 ok" in answer
    assert "content-type: text/event-stream" in answer
    await reader.readuntil(b": nospoon\n\n")
    try:
        yield reader
    finally:
        writer.close()
        await writer.wait_closed()


async def said(reader: asyncio.StreamReader) -> dict[str, Any]:
    async with asyncio.timeout(20):
        data = await reader.readuntil(b"\ndata: ")
        assert b"id: " in data
        found: dict[str, Any] = json.loads(await reader.readuntil(b"\n"))
    return found


async def test_a_stream_tells_what_happens_until_it_is_closed() -> None:
    async with bench(1) as b:
        async with stream(b) as reader:
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
            event = await said(reader)
            assert event["Events"][0]["MessageId"] == "ResourceEvent.1.3.ResourcePoweredOn"
            (member,) = (await client(b.first).get(SUBSCRIPTIONS)).json["Members"]
            shown = (await client(b.first).get(member["@odata.id"])).json
            assert shown["SubscriptionType"] == "SSE"
            assert re.fullmatch(r"redfish-sse://127\.0\.0\.1:\d+", shown["Destination"])
        await until_gone(b, SUBSCRIPTIONS, lambda answer: answer.json["Members"] == [])
        assert not asked(b)


async def test_a_stream_ends_when_it_is_deleted() -> None:
    async with bench(1) as b, stream(b) as reader:
        (member,) = (await client(b.first).get(SUBSCRIPTIONS)).json["Members"]
        assert (await client(b.first).ask("DELETE", member["@odata.id"])).status == 204
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"\r\n0\r\n\r\n")).endswith(b"0\r\n\r\n")


async def test_nothing_of_a_stream_can_be_changed() -> None:
    async with bench(1) as b, stream(b):
        (member,) = (await client(b.first).get(SUBSCRIPTIONS)).json["Members"]
        place = member["@odata.id"]
        refused = await client(b.first).ask("PATCH", place, {"Context": "mine"})
        assert (refused.status, refused.headers["allow"]) == (405, "DELETE, GET, HEAD")
        assert refused.message == "OperationNotAllowed"
        assert (await client(b.first).get(place)).json["Context"] is None


async def test_a_stream_is_filtered() -> None:
    async with bench(1) as b:
        log = f"{system_of(b.first)}/LogServices"
        asked = f"?$filter=SubordinateResources%20eq%20true%20and%20OriginResource%20eq%20'{log}'"
        async with stream(b, asked) as reader:
            await b.service.power(b.first.bmc.uuid, PowerCommand.ON)
            origin = (await said(reader))["Events"][0]["OriginOfCondition"]["@odata.id"]
            assert origin.startswith(f"{log}/SEL/Entries/")
        by_id = "?$filter=MessageId%20eq%20'ResourceEvent.ResourcePoweredOff'"
        async with stream(b, by_id) as reader:
            await b.service.power(b.first.bmc.uuid, PowerCommand.OFF)
            assert (await said(reader))["Events"][0]["MessageId"].endswith("PoweredOff")
        assert (await client(b.first).get(f"{SERVICE}/SSE?$filter=x")).status == 400
        none = f"{SERVICE}/SSE?$filter=not%20(EventType%20eq%20'Alert'%20or%20Severity%20eq%20'OK')"
        refused = await client(b.first).get(none)
        assert (refused.status, refused.message) == (400, "QueryParameterValueFormatError")


async def test_subscriptions_made_at_once_are_all_kept() -> None:
    async with bench(1) as b, sink() as to:
        made = await asyncio.gather(*(subscribe(b, to) for _ in range(6)))
        assert [each.status for each in made] == [201] * 6
        assert len((await client(b.first).get(SUBSCRIPTIONS)).json["Members"]) == 6
