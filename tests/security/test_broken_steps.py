"""What one client breaks holds up no other: who was refused on a busy listener, and had closed the
connection, ended the turns in which all others are taken, for good.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.security.test_http_limits import ended, served, status
from tests.security.test_received import Clock

from nospoon.runtime.handshakes import Handshakes
from nospoon.runtime.http_limits import LIMITS
from nospoon.runtime.received import Received
from nospoon.runtime.udp import UdpSocket
from nospoon.testing.bench import free_port

FLOOD = 40
TOO_MANY = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(800))


class Broken(Exception):
    """What a step raises."""


def _break() -> bool:
    raise Broken


def _raise() -> None:
    raise Broken


@asynccontextmanager
async def logged() -> AsyncIterator[list[BaseException]]:
    """What the loop logs meanwhile, and goes on."""
    loop, seen = asyncio.get_running_loop(), list[BaseException]()

    def note(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        seen.append(context["exception"])

    loop.set_exception_handler(note)
    try:
        yield seen
    finally:
        loop.set_exception_handler(None)


async def test_steps_go_on_after_one_that_raises() -> None:
    received, went_on = Received(now=Clock()), asyncio.Event()

    def last() -> bool:
        went_on.set()
        return False

    async with logged() as seen, asyncio.timeout(20):
        received.put("stranger", _break)
        received.put("other", last)
        await went_on.wait()
    assert [type(each) for each in seen] == [Broken]


async def test_handshakes_go_on_after_one_that_raises() -> None:
    handshakes, went_on = Handshakes(now=Clock()), asyncio.Event()
    async with logged() as seen, asyncio.timeout(20):
        handshakes.put("peer", _raise)
        handshakes.put("peer", went_on.set)
        await went_on.wait()
    assert [type(each) for each in seen] == [Broken]


async def test_refused_clients_who_have_closed_break_nothing() -> None:
    async with served(LIMITS) as server, logged() as seen:
        server.connections.received = Received(now=Clock())
        for _ in range(3):
            lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(FLOOD)]
            for line in lines:
                line.sendall(TOO_MANY)
            for line in lines:
                line.close()
            reader, writer = await server.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert status(await ended(reader)) == 200
            writer.close()
        await server.emptied()
    assert not seen


async def test_a_socket_that_its_datagram_closes_ends_no_turns() -> None:
    """As that of a BMC that is taken down while datagrams wait."""
    together, told = Received(now=Clock()), asyncio.Event()
    closing: list[UdpSocket] = []
    made = UdpSocket(
        "127.0.0.1", free_port(socket.SOCK_DGRAM), lambda *_: closing[0].close(), together=together
    )
    closing.append(made)
    other = UdpSocket(
        "127.0.0.1", free_port(socket.SOCK_DGRAM), lambda *_: told.set(), together=together
    )
    try:
        async with logged() as seen, asyncio.timeout(20):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
                together.put("busy", lambda: False)  # so that both have to wait
                line.sendto(b"x", ("127.0.0.1", made.port))
                line.sendto(b"x", ("127.0.0.1", other.port))
                await told.wait()
        assert not seen
    finally:
        other.close()
