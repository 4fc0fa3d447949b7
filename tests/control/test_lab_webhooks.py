"""Webhooks of labs, at a server that refuses, hangs up and then accepts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from nospoon.control.labs import webhooks
from nospoon.control.labs.webhooks import DELIVERY, SIGNATURE, Webhooks, signature
from nospoon.model.lab import Webhook
from nospoon.runtime.log_rate import LINES
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.tasks import Tasks
from nospoon.store.lab_notices import Notice

SECRET = "sixteen letters!"
PATIENCE = 20.0


class Receiver:
    """Answers with these statuses in turn, then with 204; 0: it hangs up."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.got = list(statuses), list[tuple[dict[str, str], bytes]]()
        self.enough = asyncio.Event()
        self.wanted = 1

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()[1:-1]
        headers = {k.lower(): v for k, _, v in (each.partition(": ") for each in head)}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self.statuses.pop(0) if self.statuses else 204
        if status:
            writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        writer.close()
        if status == 204:
            self.got.append((headers, body))
            if len(self.got) >= self.wanted:
                self.enough.set()

    @asynccontextmanager
    async def url(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/hook"
        server.close()


def event(number: int) -> Notice:
    return Notice(f"id-{number}", "1000:c/dev", 0, json.dumps({"event": number}))


async def forgotten(ids: Sequence[str]) -> None:
    del ids


async def test_an_event_is_signed_and_sent_until_it_is_accepted() -> None:
    receiver = Receiver(500, 0, 302)
    receiver.wanted = 2
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, forgotten, pauses=(0.0, 0.0, 0.0))
        for number in range(2):
            hooks.send((Webhook(url, SECRET),), event(number))
        async with asyncio.timeout(PATIENCE):
            await receiver.enough.wait()
    assert [json.loads(body)["event"] for _, body in receiver.got] == [0, 1], "in their order"
    assert [headers[DELIVERY.lower()] for headers, _ in receiver.got] == ["id-0", "id-1"]
    for headers, body in receiver.got:
        assert headers[SIGNATURE.lower()] == signature(SECRET, body)


async def test_an_event_that_is_never_accepted_holds_up_no_other() -> None:
    receiver = Receiver(500, 500)
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, forgotten, pauses=(0.0,))
        for number in range(2):
            hooks.send((Webhook(url, SECRET),), event(number))
        async with asyncio.timeout(PATIENCE):
            await receiver.enough.wait()
    assert [json.loads(body)["event"] for _, body in receiver.got] == [1]


async def test_a_url_leads_only_where_the_daemon_may_go() -> None:
    receiver = Receiver()
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, Reach(), forgotten, pauses=())
        hooks.send((Webhook(url, SECRET),), event(1))
        async with asyncio.timeout(PATIENCE):
            while hooks._lines:  # noqa: ASYNC110  (nothing else shows that it gave up)
                await asyncio.sleep(0.005)
    assert receiver.got == []


async def test_an_event_is_kept_until_each_hook_has_it_or_is_given_up() -> None:
    good, bad, over = Receiver(), Receiver(500), asyncio.Queue[str]()

    async def forget(ids: Sequence[str]) -> None:
        for each in ids:
            over.put_nowait(each)

    async with good.url() as one, bad.url() as two, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, forget, pauses=())
        hooks.send((Webhook(one, SECRET), Webhook(two, SECRET)), event(1))
        hooks.send((), event(2))
        async with asyncio.timeout(PATIENCE):
            assert {await over.get(), await over.get()} == {"id-1", "id-2"}
    assert over.empty()
    assert len(good.got) == 1


async def test_a_hook_that_left_its_file_gets_nothing_that_waits() -> None:
    """Its receiver may be trusted no more, or its secret be known."""
    bad, good, over = Receiver(500), Receiver(), asyncio.Queue[str]()

    async def forget(ids: Sequence[str]) -> None:
        for each in ids:
            over.put_nowait(each)

    async with bad.url() as one, good.url() as two, Tasks("test") as tasks:
        left, stays = Webhook(one, SECRET), Webhook(two, SECRET)
        hooks = Webhooks(
            tasks,
            ANYWHERE,
            forget,
            pauses=(0.0,),
            has=lambda _, hook: hook == stays or not has_left,
        )
        has_left = False
        hooks.send((left,), event(1))
        assert await over.get() == "id-1"
        has_left = True
        hooks.send((left, stays), event(2))
        assert await over.get() == "id-2"
    assert [json.loads(body)["event"] for _, body in bad.got] == [1]
    assert [json.loads(body)["event"] for _, body in good.got] == [2]


async def test_few_lines_are_written_of_events_that_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "MOST_OF_OWNER", 1)
    with capture_logs() as logs:
        async with Tasks("test") as tasks:
            hooks = Webhooks(tasks, ANYWHERE, forgotten, pauses=())
            for number in range(10 * LINES):
                hook = Webhook(f"http://127.0.0.1:1/{number}", SECRET)
                hooks.send((hook,), Notice(f"id-{number}", "4711:c/dev", 0, "{}"))
    assert len(logs) == LINES


async def test_what_waits_when_a_daemon_ends_is_kept() -> None:
    asked, over = asyncio.Event(), list[Sequence[str]]()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.close()

    async def forget(ids: Sequence[str]) -> None:
        over.append(ids)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Tasks("test") as tasks:
        hook = Webhook(f"http://127.0.0.1:{port}/", SECRET)
        hooks = Webhooks(tasks, ANYWHERE, forget)
        for number in range(2):
            hooks.send((hook,), event(number))
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
    assert over == []
