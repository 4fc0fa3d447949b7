"""What is costly for each byte, and comes on many connections at once, has a little of each turn of
the event loop: strangers stopped it for a second at a time.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import sslproto
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.security.test_http_limits import Served, ended, served, status

from nospoon.runtime.handshakes import Tls
from nospoon.runtime.http_limits import LIMITS
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.received import PIECE, SECONDS, Received, Step
from nospoon.runtime.serve import Contexts
from nospoon.runtime.tls import self_signed

HEAD = b"POST /body HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
CLIENTS = 12


class Clock:
    """Each look takes half of a turn's time."""

    now = 0.0

    def __call__(self) -> float:
        self.now += SECONDS / 2
        return self.now


class Turns:
    """Counts turns of the loop, and what is done in each."""

    def __init__(self) -> None:
        self.number, self.done = 0, dict[int, int]()
        self._next()

    def _next(self) -> None:
        self.number += 1
        self.handle = asyncio.get_running_loop().call_soon(self._next)

    def count(self, *_: Any) -> None:
        self.done[self.number] = self.done.get(self.number, 0) + 1


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    counted = Turns()
    try:
        yield counted
    finally:
        counted.handle.cancel()


@contextmanager
def counted(
    monkeypatch: pytest.MonkeyPatch, where: type, name: str, count: Callable[..., None]
) -> Any:
    done = getattr(where, name)

    def wrapped(self: Any, *given: Any) -> Any:
        count(*given)
        return done(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(where, name, wrapped)
        yield


async def test_steps_are_spread_over_turns_and_sources_take_turns() -> None:
    clock, told, seen = Clock(), list[str](), list[int]()
    received = Received(now=clock)

    def step(name: str, left: list[int]) -> bool:
        told.append(name)
        left[0] -= 1
        return left[0] > 0

    assert received.may_begin()
    for name in ("a1", "a2", "b1"):
        received.put(name[0], partial(step, name, [2]))
    assert not received.may_begin()  # others were first
    while len(told) < 6:
        await asyncio.sleep(0)
        seen.append(len(told))
    assert told == ["a1", "b1", "a2", "b1", "a1", "a2"]
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 2


async def read(server: Served, lines: list[socket.socket], said: bytes) -> None:
    """All send at once, and are answered."""
    for each in lines:
        each.send(said)
    for each in lines:
        each.setblocking(False)  # noqa: FBT003  (socket's own signature)
        reader, writer = await asyncio.open_connection(sock=each)
        assert status(await ended(reader)) == 200
        writer.close()
    await server.emptied()


async def test_chunks_of_one_byte_do_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"1\r\na\r\n" * 3000 + b"0\r\n\r\n"
    async with served(LIMITS) as server, turns() as loop:
        server.connections.received = Received(now=Clock())
        lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CLIENTS)]
        sizes = list[int]()

        def count(data: bytes) -> None:
            loop.count()
            sizes.append(len(data))

        with counted(monkeypatch, LimitedHttp, "_feed", count):
            await read(server, lines, HEAD + body)
    assert sum(sizes) == CLIENTS * len(HEAD + body)
    assert max(sizes) <= PIECE
    assert max(loop.done.values()) <= 4


async def test_records_of_tls_do_not_stop_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OpenSSL does for them is not seen from here: changes of keys, records of one byte."""
    key, certificate = self_signed("127.0.0.1", name="x")
    file = tmp_path / "pem"
    file.write_bytes(key + certificate)
    given = {"contexts": Contexts(file)}
    trusting = ssl.create_default_context(cadata=certificate.decode())
    async with served(LIMITS, **given) as server, turns() as loop:
        server.connections.received = Received(now=Clock())
        opened = await asyncio.gather(*(server.connect(ssl=trusting) for _ in range(CLIENTS)))
        with counted(monkeypatch, sslproto.SSLProtocol, "_do_read", loop.count):
            for _, writer in opened:
                writer.write(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            for reader, writer in opened:
                assert status(await ended(reader)) == 200
                writer.close()
            await server.emptied()
    assert max(loop.done.values()) <= 6


def test_one_step_of_tls_takes_little() -> None:
    assert Tls.max_size <= PIECE


class Sources(Received):
    """Whose turns there were. All that comes waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[Hashable]()

    def may_begin(self) -> bool:
        return False

    def put(self, source: Hashable, step: Step) -> None:
        self.seen.add(source)
        super().put(source, step)


@pytest.mark.parametrize("tls", [False, True])
async def test_users_of_this_machine_have_one_turn_whichever_loopback_address_they_take(
    tmp_path: Path, *, tls: bool
) -> None:
    key, certificate = self_signed("127.0.0.1", name="x")
    file = tmp_path / "pem"
    file.write_bytes(key + certificate)
    secured = {"contexts": Contexts(file)} if tls else {}
    trusting = ssl.create_default_context(cadata=certificate.decode()) if tls else None
    async with served(LIMITS, **secured) as server:
        received = server.connections.received = Sources()
        for number in (2, 3):
            place = f"127.0.0.{number}", 0
            reader, writer = await server.connect(local_addr=place, ssl=trusting)
            writer.write(b"GET /small HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(await ended(reader)) == 200
            writer.close()
        assert received.seen == {"127.0.0.1"}
