"""What subscriptions and test events of a BMC client may take of the daemon."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs
from tests.redfish.test_delivery import Destination
from tests.redfish.test_events import SUBSCRIPTIONS, said, stream

from nospoon.bmc.events import EventSettings, RetryPolicy, Subscription
from nospoon.bmc.users import OWNER
from nospoon.errors import Obstacle, ProviderError, Unfetchable
from nospoon.runtime.log_rate import LINES
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import BmcConfig
from nospoon.services.bmcs.redfish.events import delivery, subscribing
from nospoon.services.bmcs.redfish.events.delivery import (
    ALL_BYTES,
    LINE_BYTES,
    OF_ONE,
    SLOW_WORKERS,
    WAITING,
    WORKERS,
    Deliveries,
    _Stock,
)
from nospoon.services.bmcs.redfish.events.events import MOST
from nospoon.services.bmcs.redfish.events.subscribing import MOST_ENTRIES
from nospoon.services.bmcs.redfish.http import submitted
from nospoon.services.bmcs.redfish.messages import errors
from nospoon.services.bmcs.redfish.messages.errors import RedfishError
from nospoon.services.bmcs.redfish.messages.jobs import Jobs
from nospoon.services.bmcs.redfish.resources.event_service import MOST_COMPARISONS, MOST_FILTERED
from nospoon.testing.bench import Bench, bench, config, free_port
from nospoon.testing.redfish import Client, client
from nospoon.testing.redfish_app import Redfish

BODY: dict[str, Any] = {"Destination": "http://192.0.2.1/", "Protocol": "Redfish"}


def record(size: int) -> dict[str, Any]:
    return {"Message": "m" * (size - len('{"Message":""}'))}


@pytest.mark.parametrize("name", ["MessageIds", "ExcludeMessageIds"])
def test_a_list_that_every_event_is_compared_with_is_short(name: str) -> None:
    ids = [f"TaskEvent.{n}" for n in range(MOST_ENTRIES)]
    assert subscribing.subscription("a", {**BODY, name: ids}).filter
    with pytest.raises(RedfishError) as refused:
        subscribing.subscription("a", {**BODY, name: [*ids, "TaskEvent.more"]})
    assert refused.value.status == 400


def test_origins_are_few_and_a_subscription_is_small() -> None:
    origins = [{"@odata.id": f"/redfish/v1/{n}"} for n in range(MOST_ENTRIES + 1)]
    with pytest.raises(RedfishError):
        subscribing.subscription("a", {**BODY, "OriginResources": origins})
    with pytest.raises(RedfishError) as refused:
        subscribing.subscription("a", {**BODY, "Context": "c" * subscribing.LARGEST})
    assert refused.value.status == 413
    kept = subscribing.subscription("a", BODY)
    with pytest.raises(RedfishError):
        subscribing.changed(kept, {"Context": "c" * subscribing.LARGEST})


def test_an_event_that_a_client_makes_up_is_small() -> None:
    body = {"MessageId": "ResourceEvent.1.3.TestMessage"}
    assert submitted.event({**body, "Message": "m" * 1000})
    with pytest.raises(RedfishError) as refused:
        submitted.event({**body, "Message": "m" * submitted.LARGEST})
    assert refused.value.status == 413


def test_arguments_that_name_one_another_are_not_written_out() -> None:
    args = [*(f"%{n}" * 4 for n in range(2, 8)), "x"]
    body = {"MessageId": "ResourceEvent.1.3.TestMessage", "Message": "%1 %8", "MessageArgs": args}
    assert submitted.event(body)[1]["Message"] == "%2%2%2%2 %8"


def test_a_text_that_names_a_long_argument_very_often_is_refused() -> None:
    body = {"MessageId": "ResourceEvent.1.3.TestMessage", "MessageArgs": ["x" * 1000]}
    assert submitted.event({**body, "Message": "%1"})
    with pytest.raises(RedfishError) as refused:
        submitted.event({**body, "Message": "%1" * 1000})
    assert refused.value.status == 413


def test_filters_do_not_look_at_thousands_of_places_of_one_event() -> None:
    body = {"MessageId": "ResourceEvent.1.3.TestMessage"}
    deep = "/redfish/v1/Managers/1/NetworkProtocol/HTTPS/Certificates/1"
    assert submitted.event({**body, "OriginOfCondition": deep})
    with pytest.raises(RedfishError) as refused:
        submitted.event({**body, "OriginOfCondition": "/" * 1000})
    assert refused.value.status == 400


async def test_a_stream_has_a_short_filter() -> None:
    async with bench(1) as b:
        terms = "%20or%20".join(["EventType%20eq%201"] * (MOST_COMPARISONS + 1))
        refused = await client(b.first).get(f"/redfish/v1/EventService/SSE?$filter={terms}")
        assert refused.status == 400


async def test_streams_with_filters_are_few_and_hold_up_no_queries() -> None:
    """All of them are asked about each event, in one turn of the loop."""
    async with bench(1) as b, AsyncExitStack() as streams, asyncio.timeout(60):
        query = "?$filter=EventType%20eq%20'Alert'"
        for _ in range(MOST_FILTERED):
            await streams.enter_async_context(stream(b, query))
        line = client(b.first)
        refused = await line.get(f"/redfish/v1/EventService/SSE{query}")
        assert (refused.status, refused.message) == (503, "EventSubscriptionLimitExceeded")
        assert (await line.get("/redfish/v1/Systems?$expand=.")).status == 200
        async with stream(b):
            pass


async def test_whether_a_stream_goes_on_is_not_asked_of_each_bmc_of_its_account() -> None:
    """They may be thousands, for each of hundreds of streams, whenever a user changes."""
    asked = []

    def is_at(system: UUID, place: tuple[str, int]) -> bool:
        asked.append((system, place))
        return True

    async with bench(2) as b, stream(b) as reader:
        b.service.events._is_at = is_at
        made = {"UserName": "bob", "Password": "hunter2222", "RoleId": "Operator"}
        line = client(b.first)
        assert (await line.ask("POST", "/redfish/v1/AccountService/Accounts", made)).status == 201
        await b.service.events.followed()
        event = await said(reader)
        assert event["Events"][0]["MessageId"].endswith("ResourceChanged")
    assert asked == []


async def test_destinations_that_never_answer_hold_up_no_other_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many of one owner as all workers, twice; then one of another."""
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)
    silent, prompt = Destination(), Destination()
    prompt.open.set()
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        for each in (silent, prompt):
            server = await asyncio.start_server(each.take, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            each.port = server.sockets[0].getsockname()[1]
        tasks = await stack.enter_async_context(Tasks("deliveries"))

        def look(id_: str) -> tuple[EventSettings, Subscription]:
            port = prompt.port if id_ == "prompt" else silent.port
            wanted = Subscription(id_, f"http://127.0.0.1:{port}/")
            return EventSettings("here 1", "00", subscriptions=(wanted,)), wanted

        async def give_up(_: str) -> None:
            """Nobody does so soon."""

        deliveries = Deliveries(
            tasks, look, give_up, lambda _, records: {"Events": records},
            overrun=dict[str, Any], owner_of=lambda id_: id_ == "prompt",
        )  # fmt: skip
        stack.callback(deliveries.close)
        stack.callback(silent.open.set)
        for number in range(2 * (WORKERS + SLOW_WORKERS)):
            deliveries.put(str(number), {"n": number})
        await silent.until(lambda: silent.asked == OF_ONE)
        deliveries.put("prompt", {"n": 1})
        await prompt.until(lambda: prompt.told == [{"n": 1}])
        assert silent.asked <= 2 * OF_ONE


def test_an_address_that_cannot_be_fetched_is_shown_as_it_is() -> None:
    url = "http://192.0.2.1/" + "%2" * 100
    failed = Unfetchable(f"cannot fetch {url}", url=url, why=Obstacle.UNAUTHORIZED)
    assert len(errors.unfetchable(failed).message) < 3 * len(url)


def test_what_waits_for_a_subscription_is_bounded_in_bytes() -> None:
    line = _Stock().line("a", None)
    for _ in range(WAITING):
        line.add(record(4096))
    assert line.size == line.stock.size <= LINE_BYTES
    assert line.lost == WAITING - len(line.waiting) > 0
    batch = line.take()
    assert line.size == len(line.waiting) * 4096
    line.put_back(batch)
    assert line.size <= LINE_BYTES
    line.clear()
    assert line.size == line.stock.size == 0


def test_what_waits_for_all_subscriptions_is_bounded_too() -> None:
    stock, lost = _Stock(), list[str]()
    lines = [stock.line(str(number), None) for number in range(2 * ALL_BYTES // LINE_BYTES)]
    for line in lines:
        for _ in range(LINE_BYTES // 4096):
            line.add(record(4096))
            stock.shorten(lost.append)
    assert stock.size == sum(line.size for line in lines) <= ALL_BYTES
    assert set(lost) == {line.subscription for line in lines if line.lost}
    for line in lines:
        stock.drop(line)
    assert (stock.size, stock.of) == (0, {})


async def test_what_waits_for_one_owner_pushes_out_no_events_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client of one BMC makes accounts, each with subscriptions whose destinations are silent."""
    monkeypatch.setattr(delivery, "ALL_BYTES", 4 * LINE_BYTES)
    prompt = Destination()
    prompt.open.set()
    async with AsyncExitStack() as stack, asyncio.timeout(30):
        server = await asyncio.start_server(prompt.take, "127.0.0.1", 0)
        await stack.enter_async_context(server)
        tasks = await stack.enter_async_context(Tasks("deliveries"))
        port = server.sockets[0].getsockname()[1]

        def look(id_: str) -> tuple[EventSettings, Subscription]:
            place = f"127.0.0.1:{port}" if id_ == "prompt" else "127.0.0.1:1"
            wanted = Subscription(id_, f"http://{place}/", policy=RetryPolicy.FOREVER)
            return EventSettings("here 1", "00", interval=3600, subscriptions=(wanted,)), wanted

        async def give_up(_: str) -> None:
            """They are asked for ever."""

        deliveries = Deliveries(
            tasks, look, give_up, lambda _, records: {"Events": records},
            overrun=lambda: {"n": "lost"}, owner_of=lambda id_: id_ == "prompt",
        )  # fmt: skip
        stack.callback(deliveries.close)
        for number in range(8):
            for _ in range(LINE_BYTES // 4096):
                deliveries.put(str(number), record(4096))
        deliveries.put("prompt", {"n": 1})
        await prompt.until(lambda: bool(prompt.told))
    assert prompt.told == [{"n": 1}]


async def test_tasks_that_a_client_makes_fail_write_few_lines() -> None:
    async def work() -> None:
        raise ProviderError("it fails")

    with capture_logs() as logs:
        async with Tasks("test") as tasks:
            jobs = Jobs(tasks, lambda _: None)
            begun = [jobs.start(uuid4(), "Insert", work()) for _ in range(10 * LINES)]
            await asyncio.wait([each.task for each in begun if each.task is not None])
    assert len(logs) <= LINES


@pytest.fixture
async def anywhere() -> AsyncIterator[tuple[Bench, BmcConfig]]:
    """A BMC that answers at all addresses of this machine, and is not served yet."""
    async with bench(0) as b:
        one = config(0, redfish_port=free_port(socket.SOCK_STREAM))
        yield b, replace(one, bmc=replace(one.bmc, address="0.0.0.0"))


def at(address: str, bmc: BmcConfig) -> Client:
    return client(replace(bmc, bmc=replace(bmc.bmc, address=address)))


async def test_an_account_has_so_many_subscriptions_at_all_addresses_of_its_bmc_together(
    anywhere: tuple[Bench, BmcConfig],
) -> None:
    """A local user reaches 16 million of them, and each event is compared with all."""
    b, bmc = anywhere
    await b.service.put(bmc)
    for number in range(MOST):
        made = await at(f"127.0.0.{number + 1}", bmc).ask("POST", SUBSCRIPTIONS, BODY)
        assert made.status == 201
    refused = await at("127.0.1.1", bmc).ask("POST", SUBSCRIPTIONS, BODY)
    assert (refused.status, refused.message) == (503, "EventSubscriptionLimitExceeded")
    shown = await at("127.0.1.2", bmc).get(SUBSCRIPTIONS)
    assert shown.json["Members@odata.count"] == MOST


async def test_subscriptions_that_were_kept_for_each_address_become_those_of_all(
    anywhere: tuple[Bench, BmcConfig],
) -> None:
    b, bmc = anywhere
    account = b.service.listeners.accounts.numbered(bmc, ())[OWNER].hex()
    for number in range(2 * MOST):
        kept = Subscription(f"{number}", BODY["Destination"])
        place = f"127.0.0.{number + 1} {bmc.bmc.redfish_port}"
        await b.store.save_events(EventSettings(place, account, subscriptions=(kept,)))
    await b.service.restore_events()
    await b.service.put(bmc)
    shown = await at("127.0.0.9", bmc).get(SUBSCRIPTIONS)
    assert shown.json["Members@odata.count"] == MOST
    kept_at = {each.place for each in await b.store.events() if each.subscriptions}
    assert kept_at == {f"0.0.0.0 {bmc.bmc.redfish_port}"}


async def test_subscriptions_go_with_a_bmc_to_another_address_and_end_with_it() -> None:
    """What stayed where it was would be kept for ever, for every address that it had."""
    async with bench(1) as b:
        before, port = b.first, free_port(socket.SOCK_STREAM)
        made = await client(before).ask("POST", SUBSCRIPTIONS, BODY)
        assert made.status == 201
        after = replace(before, bmc=replace(before.bmc, address="127.0.0.2", redfish_port=port))
        await b.service.put(after)
        assert (await client(after).get(made.headers["location"])).status == 200
        kept = {each.place for each in await b.store.events() if each.subscriptions}
        assert kept == {f"127.0.0.2 {port}"}
        await b.service.remove(after.bmc.uuid)
        assert not any(each.subscriptions for each in await b.store.events())


async def test_subscriptions_stay_where_another_bmc_knows_their_account() -> None:
    async with bench(0) as b:
        port = free_port(socket.SOCK_STREAM)
        one, two = (replace(config(n, redfish_port=port), password="same") for n in range(2))
        for each in (one, two):
            await b.service.put(each)
        assert (await client(one).ask("POST", SUBSCRIPTIONS, BODY)).status == 201
        await b.service.put(replace(one, bmc=replace(one.bmc, address="127.0.0.2")))
        kept = {each.place for each in await b.store.events() if each.subscriptions}
        assert kept == {f"127.0.0.1 {port}"}


class Asked(asyncio.Lock):
    """One that says when it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        if self.locked():
            self.asked.set()
        return await super().acquire()


async def test_who_subscribes_while_its_bmc_loses_power_has_no_more_subscriptions() -> None:
    """Such requests wait for those before them, and their client may have the outlet, too."""
    async with bench(1) as b, asyncio.TaskGroup() as group:
        redfish = Redfish.of(b)
        for _ in range(MOST):
            assert (await redfish.ask("POST", SUBSCRIPTIONS, BODY)).status == 201
        writing = b.service.events._writing = Asked()
        async with writing:
            waiting = group.create_task(redfish.ask("POST", SUBSCRIPTIONS, BODY))
            await writing.asked.wait()
            b.service.registry.hide_redfish(b.first.bmc)
        assert (await waiting).status == 503
