"""Webhooks of labs, at a server that refuses, hangs up and then accepts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nospoon.control.labs.webhooks import SIGNATURE, Webhooks, signature
from nospoon.model.lab import Webhook
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.tasks import Tasks

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


async def test_an_event_is_signed_and_sent_until_it_is_accepted() -> None:
    receiver = Receiver(500, 0, 302)
    receiver.wanted = 2
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, pauses=(0.0, 0.0, 0.0))
        for number in range(2):
            hooks.send("k", (Webhook(url, SECRET),), {"event": number})
        async with asyncio.timeout(PATIENCE):
            await receiver.enough.wait()
    assert [json.loads(body)["event"] for _, body in receiver.got] == [0, 1], "in their order"
    for headers, body in receiver.got:
        assert headers[SIGNATURE.lower()] == signature(SECRET, body)


async def test_an_event_that_is_never_accepted_holds_up_no_other() -> None:
    receiver = Receiver(500, 500)
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, ANYWHERE, pauses=(0.0,))
        for number in range(2):
            hooks.send("k", (Webhook(url, SECRET),), {"event": number})
        async with asyncio.timeout(PATIENCE):
            await receiver.enough.wait()
    assert [json.loads(body)["event"] for _, body in receiver.got] == [1]


async def test_a_url_leads_only_where_the_daemon_may_go() -> None:
    receiver = Receiver()
    async with receiver.url() as url, Tasks("test") as tasks:
        hooks = Webhooks(tasks, Reach(), pauses=())
        hooks.send("k", (Webhook(url, SECRET),), {"event": 1})
        async with asyncio.timeout(PATIENCE):
            while hooks._lines:  # noqa: ASYNC110  (nothing else shows that it gave up)
                await asyncio.sleep(0.005)
    assert receiver.got == []
