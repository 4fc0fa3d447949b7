"""Connections and downloads that end leave nothing behind that only the garbage collector finds.

The daemon looks through everything once a minute at most (`nospoon.runtime.gc_freeze`); strangers
open thousands of connections meanwhile.
"""

from __future__ import annotations

import asyncio
import gc
import io
import socket
import ssl
import struct
import urllib.request
from asyncio import selector_events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from nospoon.control.content.fetch import Access, Terms, Transfer, download
from nospoon.errors import Unfetchable
from nospoon.runtime.handshakes import Tls
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.reach import Reach
from nospoon.testing.bench import bench

KINDS = (Tls, LimitedHttp, RequestResponseCycle, selector_events._SelectorSocketTransport)  # type: ignore[attr-defined]
TIMES = 20
Place = tuple[str, int]
Ask = Callable[[socket.socket], None]
REQUEST = b"GET /redfish/v1/ HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n"


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def hello() -> bytes:
    """What begins a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = trusting().wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    return outgoing.read()


def half_a_handshake(line: socket.socket) -> None:
    line.sendall(hello())
    line.recv(1)


def garbage(line: socket.socket) -> None:
    line.sendall(REQUEST)
    line.recv(100)


def nothing(line: socket.socket) -> None:
    line.shutdown(socket.SHUT_WR)
    line.recv(1)


def whole(line: socket.socket) -> None:
    with trusting().wrap_socket(line) as secure:
        secure.sendall(REQUEST)
        while secure.recv(1 << 16):
            pass


def plain(line: socket.socket) -> None:
    line.sendall(REQUEST)
    while line.recv(1 << 16):
        pass


def pipelined(line: socket.socket) -> None:
    """The client goes before its last requests are begun."""
    line.sendall(REQUEST.replace(b"Connection: close\r\n", b"") * 30)
    line.recv(1)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def left() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, KINDS)]


@pytest.mark.parametrize(
    ("ask", "secure"),
    [(half_a_handshake, True), (garbage, True), (nothing, True), (whole, True), (plain, False),
     (nothing, False), (pipelined, False)],
)  # fmt: skip
async def test_connections_that_ended_are_gone(ask: Ask, secure: bool, tmp_path: Path) -> None:  # noqa: FBT001
    async with bench(1, tls=tmp_path if secure else None) as b:
        place = b.first.bmc.address, b.first.bmc.redfish_port

        def connect() -> None:
            for _ in range(TIMES):
                with socket.create_connection(place, 20) as line:
                    ask(line)

        with uncollected():
            before = len(left())
            await asyncio.to_thread(connect)
            async with asyncio.timeout(20):
                while len(left()) > before:  # noqa: ASYNC110  (what is freed tells nobody)
                    await asyncio.sleep(0.05)


def test_downloads_that_ended_are_gone() -> None:
    def openers() -> int:
        return sum(isinstance(each, urllib.request.OpenerDirector) for each in gc.get_objects())

    with uncollected():
        before = openers()
        for _ in range(TIMES):
            with pytest.raises(Unfetchable):
                download("http://127.0.0.1/x", Access(), io.BytesIO(), Transfer(), Terms(Reach()))
        assert openers() == before
