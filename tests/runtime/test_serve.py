"""Servers of HTTP: what they say of the time, and that they wait for nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn.server

from nospoon.runtime import server_state
from nospoon.runtime.serve import HttpServer


async def hello(scope: Any, receive: object, send: Callable[[Any], Awaitable[None]]) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(app: Any = hello, **config: Any) -> AsyncIterator[int]:
    """On a port of loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, [listener], **config)
    port: int = listener.getsockname()[1]
    await server.start()
    try:
        yield port
    finally:
        await server.close()


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[bytes, bytes]:
    """The headers of an answer."""
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _ = await reader.readuntil(b"\r\n\r\n"), await reader.readuntil(b"0\r\n\r\n")
    return dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)


async def test_each_answer_has_the_date_of_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        dates = []
        for now in (784111777.0, 784111777.9, 784111778.0):
            monkeypatch.setattr(server_state, "unix", lambda now=now: now)
            headers = await asked(reader, writer)
            dates.append(headers[b"date"])
            assert headers[b"server"] == b"uvicorn"
        writer.close()
    assert dates == [
        b"Sun, 06 Nov 1994 08:49:37 GMT",  # RFC 9110 §5.6.7
        b"Sun, 06 Nov 1994 08:49:37 GMT",
        b"Sun, 06 Nov 1994 08:49:38 GMT",
    ]


async def test_a_server_that_nobody_asks_sleeps_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvicorn's own wakes ten times a second, and once more before it ends."""

    class Asyncio:
        """What uvicorn's server uses of it, but for the sleep."""

        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        async def sleep(self, seconds: float) -> None:
            raise AssertionError(f"it sleeps {seconds} s")

    monkeypatch.setattr(uvicorn.server, "asyncio", Asyncio())
    async with serving():
        for _ in range(5):
            await asyncio.sleep(0)


async def test_who_is_connected_is_let_go_at_the_end() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await asked(reader, writer)
    assert await reader.read() == b""
    writer.close()


async def test_what_is_cut_off_at_the_end_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    """No error of the server (500), and nothing of it in the log; half an answer just ends."""
    begun = asyncio.Semaphore(0)

    async def endless(scope: Any, receive: object, send: Callable[[Any], Awaitable[None]]) -> None:
        del receive
        if scope["path"] == "/half":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        begun.release()
        await asyncio.Event().wait()

    async with serving(endless, timeout_graceful_shutdown=0) as port:
        asking = []
        for path in ("/none", "/half"):
            asking.append(await asyncio.open_connection("127.0.0.1", port))
            asking[-1][1].write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await begun.acquire()
    none, half = [await reader.read() for reader, _ in asking]
    assert none.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nretry-after: 1\r\n" in none
    assert half.endswith(b"\r\n\r\n4\r\nhalf\r\n"), "no end of its body"
    assert "Exception in ASGI application" not in caplog.text
    for _, writer in asking:
        writer.close()
