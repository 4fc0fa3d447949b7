"""Events on their way: who is far behind loses the oldest, and is told that it lost some."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from nospoon.bmc.events import EventSettings, RetryPolicy, Subscription
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.events import delivery
from nospoon.services.bmcs.redfish.events.delivery import BATCH, WAITING, Deliveries

NOTICE = "some were lost"


@dataclass
class Destination:
    """It answers only while `open`; `asked` counts requests, `got` is what it took."""

    port: int = 0
    status: int = 204
    open: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    got: list[list[Any]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(length))
        self.asked += 1
        self.news.set()
        await self.open.wait()
        if self.status < 300:
            self.got.append(body["Events"])
        writer.write(f"HTTP/1.1 {self.status} So\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()
        self.news.set()

    async def until(self, so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not so():
                self.news.clear()
                await self.news.wait()

    @property
    def told(self) -> list[Any]:
        return [each for batch in self.got for each in batch]


@asynccontextmanager
async def delivering(to: Destination) -> AsyncIterator[Callable[[range], None]]:
    """A function that puts numbers on their way to a destination which is asked again at once."""
    server = await asyncio.start_server(to.take, "127.0.0.1", 0)
    to.port = server.sockets[0].getsockname()[1]
    wanted = Subscription("s", f"http://127.0.0.1:{to.port}/", policy=RetryPolicy.FOREVER)
    settings = EventSettings("here 1", "00", interval=0, subscriptions=(wanted,))

    async def give_up(_: str) -> None:
        raise AssertionError("it is asked for ever")

    async with server, Tasks("deliveries") as tasks:
        deliveries = Deliveries(
            tasks,
            lambda _: (settings, wanted),
            give_up,
            lambda _, records: {"Events": records},
            overrun=lambda: {"n": NOTICE},
        )

        def put(numbers: range) -> None:
            for number in numbers:
                deliveries.put("s", {"n": number})

        yield put
        deliveries.close()


def records(*numbers: int | str) -> list[dict[str, Any]]:
    return [{"n": number} for number in numbers]


async def test_what_comes_back_to_a_full_queue_is_older_than_all_that_is_there() -> None:
    to = Destination(status=503)
    async with delivering(to) as put:
        put(range(BATCH))
        await to.until(lambda: to.asked == 1)
        put(range(BATCH, BATCH + WAITING))
        to.open.set()
        await to.until(lambda: to.asked > 1)
        to.status = 204
        await to.until(lambda: len(to.told) == WAITING + 1)
    assert to.told == records(NOTICE, *range(BATCH, BATCH + WAITING))


async def test_of_too_many_the_newest_are_kept_and_the_loss_is_told_once() -> None:
    to = Destination()
    async with delivering(to) as put:
        put(range(BATCH))
        await to.until(lambda: to.asked == 1)
        put(range(BATCH, BATCH + WAITING + 5))
        to.open.set()
        await to.until(lambda: len(to.told) == BATCH + 1 + WAITING)
        assert to.told[:BATCH] == records(*range(BATCH))
        rest = range(BATCH + 5, BATCH + WAITING + 5)
        assert to.told[BATCH:] == records(NOTICE, *rest)
        put(range(1000, 1001))
        await to.until(lambda: to.told[-1] == {"n": 1000})
        assert to.told.count({"n": NOTICE}) == 1


async def test_who_is_not_too_far_behind_loses_nothing() -> None:
    to = Destination(status=503)
    async with delivering(to) as put:
        put(range(BATCH))
        await to.until(lambda: to.asked == 1)
        put(range(BATCH, WAITING))
        to.open.set()
        await to.until(lambda: to.asked > 1)
        to.status = 204
        await to.until(lambda: len(to.told) == WAITING)
    assert to.told == records(*range(WAITING))


async def _hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until whoever asks goes."""
    await reader.read()
    writer.close()


async def test_destinations_that_hang_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 60.0)
    to = Destination()
    to.open.set()
    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (to.take, _hang)]
    good, bad = (f"http://127.0.0.1:{s.sockets[0].getsockname()[1]}/" for s in servers)
    settings = EventSettings("here 1", "00", interval=0)

    def look(id_: str) -> tuple[EventSettings, Subscription]:
        return settings, Subscription(
            id_, good if id_ == "good" else bad, policy=RetryPolicy.FOREVER
        )

    async def give_up(_: str) -> None:
        raise AssertionError("it is asked for ever")

    async with servers[0], servers[1], Tasks("deliveries") as tasks:
        deliveries = Deliveries(
            tasks, look, give_up, lambda _, told: {"Events": told}, overrun=lambda: {"n": NOTICE}
        )
        for number in range(12):
            deliveries.put(f"bad {number}", {"n": 1})
        async with asyncio.timeout(30):  # before any of those is given up
            for number in range(3):
                deliveries.put("good", {"n": number})
                await to.until(lambda wanted=number: len(to.told) > wanted)  # type: ignore[misc]
        deliveries.close()
        await tasks.close()
    assert to.told == records(0, 1, 2)
