"""Websockets of the daemon's socket, sent what no console sends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.security.test_received import Clock, turns

from nospoon.api.peer import PeerHttp, PeerWebSocket
from nospoon.runtime.http_limits import LIMITS, Connections, HttpLimits
from nospoon.runtime.limited_websocket import MOST_FRAMES, MOST_UNREAD, READ_AT_ONCE
from nospoon.runtime.received import Received
from nospoon.runtime.serve import HttpServer

BINARY, PING, CONTINUED = 2, 9, 0
TOO_BIG = 1009
"""Close code (RFC 6455 §7.4.1)."""


def frame(
    data: bytes, opcode: int = BINARY, *, last: bool = True, compressed: bool = False
) -> bytes:
    """As a client sends it (RFC 6455 §5.2), masked with zeros."""
    head = bytes([opcode | last << 7 | compressed << 6])
    length = len(data)
    if length < 126:
        return head + bytes([0x80 | length]) + bytes(4) + data
    if length < 1 << 16:
        return head + b"\xfe" + struct.pack(">H", length) + bytes(4) + data
    return head + b"\xff" + struct.pack(">Q", length) + bytes(4) + data


class Served:
    """A server; `read`: bytes of each piece that its websockets were given."""

    connections: Connections

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read: list[int] = []
        self.taken: Callable[[], None] = lambda: None
        self.received: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []

    async def app(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        assert scope["type"] == "websocket"
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            self.received.append(message["bytes"])
            if len(message["bytes"]) > 1:
                await send({"type": "websocket.send", "bytes": b"taken"})

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A websocket, and the headers of the answer."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        self.writers.append(writer)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
            b"Sec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: " + b64encode(os.urandom(16)) + b"\r\n\r\n"
        )
        return reader, writer, await reader.readuntil(b"\r\n\r\n")


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "socket") as found:
        yield found


@contextlib.asynccontextmanager
async def serving(path: Path, limits: HttpLimits = LIMITS) -> AsyncIterator[Served]:
    found = Served(path)

    class Counted(PeerWebSocket):
        def _take(self) -> None:
            found.read.append(len(self._unread))
            found.taken()
            super()._take()

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(found.path))
    found.connections = Connections(limits)
    server = HttpServer(
        found.app,
        [listener],
        limits=limits,
        connections=found.connections,
        http=PeerHttp,
        ws=Counted,
        interface="asgi3",
    )
    await server.start()
    try:
        yield found
    finally:
        for writer in found.writers:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await server.close()


async def sent(writer: asyncio.StreamWriter, data: bytes) -> bool:
    """Whether all of it could be sent."""
    async with asyncio.timeout(20):
        try:
            for at in range(0, len(data), 1 << 16):
                writer.write(data[at : at + (1 << 16)])
                await writer.drain()
        except ConnectionError:
            return False
        return True


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side ends."""
    found = b""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                found += data
    return found


async def test_nothing_is_unpacked(served: Served) -> None:
    """15 KB became 15 MiB, and stopped the loop for 50 ms."""
    _, _, head = await served.open()
    assert b" 101 " in head
    assert b"deflate" not in head


async def test_a_message_that_is_too_large_ends_the_connection(served: Served) -> None:
    reader, writer, _ = await served.open()
    await sent(writer, frame(b"a" * (1 << 16)))
    assert b"taken" in await reader.readuntil(b"taken")
    await sent(writer, frame(b"b" * ((1 << 16) + 1)))
    assert struct.pack(">H", TOO_BIG) in await ended(reader)


async def test_endless_fragments_end_the_connection(served: Served) -> None:
    reader, writer, _ = await served.open()
    fragments = frame(b"", CONTINUED, last=False) * (MOST_FRAMES + READ_AT_ONCE)
    await sent(writer, frame(b"", last=False) + fragments)
    await ended(reader)


async def test_who_reads_no_answers_to_pings_is_left(served: Served) -> None:
    _, writer, _ = await served.open()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    assert not await sent(writer, frame(b"x" * 125, PING) * (8 * MOST_UNREAD // 125))


async def test_little_is_read_at_a_time(served: Served) -> None:
    """Frames of one byte took 150 ms of one turn of the loop."""
    reader, writer, _ = await served.open()
    await sent(writer, frame(b"x") * 20_000 + frame(b"", 8))
    await ended(reader)
    assert len(served.received) == 20_000
    assert max(served.read[1:]) <= READ_AT_ONCE


async def test_a_console_does_not_give_way_to_requests(tmp_path: Path) -> None:
    """It waits for no request, as a connection that is kept alive does."""
    limits = replace(LIMITS, per_peer=2)
    async with serving(tmp_path / "socket", limits) as served:
        reader, writer, _ = await served.open()
        for _ in range(4):
            _, idle = await asyncio.open_unix_connection(str(served.path))
            served.writers.append(idle)
        await served.open()
        writer.write(frame(b"typed"))
        assert b"taken" in await reader.readuntil(b"taken")


async def test_small_frames_on_many_websockets_do_not_stop_the_loop(served: Served) -> None:
    """Each took 10 ms of one turn of the loop: 200 of one member held up all BMCs for seconds."""
    served.connections.received = Received(now=Clock())
    opened = [await served.open() for _ in range(12)]
    async with turns() as loop:
        served.taken = loop.count
        for _, writer, _ in opened:
            writer.write(frame(b"x") * 500 + frame(b"", 8))
        await asyncio.gather(*(ended(reader) for reader, _, _ in opened))
    assert len(served.received) == 12 * 500
    assert max(loop.done.values()) <= 4
