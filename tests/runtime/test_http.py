"""Requests out, against a server that says exactly what it is told to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.errors import ProviderError
from nospoon.runtime.http import Answer, request


@asynccontextmanager
async def saying(answer: bytes, asked: list[bytes] | None = None) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if asked is not None:
            asked.append(head)
        with contextlib.suppress(ConnectionError):  # a client that has enough hangs up
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a?b=c"
    finally:
        server.close()
        await server.wait_closed()


async def _get(url: str) -> Answer:
    return await request("GET", url, headers=[("X-One", "1")], verify=True, patience=5)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello",
        (
            b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
        ),
        b"HTTP/1.0 202 Accepted\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\nContent-Length: 5\r\n\r\nhello",
    ],
)
async def test_an_answer_is_read_however_its_end_is_told(answer: bytes) -> None:
    asked: list[bytes] = []
    async with saying(answer, asked) as url:
        assert await _get(url) == Answer(202, b"hello")
    assert asked[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert b"X-One: 1\r\n" in asked[0]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhello",
    ],
)
async def test_what_is_no_whole_answer_is_none(answer: bytes) -> None:
    async with saying(answer) as url:
        with pytest.raises(ProviderError, match="does not answer"):
            await _get(url)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * (1 << 20), "headers are longer than 65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 2000, "does not answer"),
    ],
    ids=["head", "body"],
)
async def test_an_answer_that_is_too_long_is_not_read_to_its_end(answer: bytes, why: str) -> None:
    async with saying(answer) as url:
        with pytest.raises(ProviderError, match=why):
            await request("GET", url, verify=True, patience=5, most=1000)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_one_error(answer: bytes) -> None:
    async def ask() -> None:
        async with saying(answer) as url:
            try:
                assert isinstance(await _get(url), Answer)
            except ProviderError:
                return

    asyncio.run(ask())


async def test_nobody_there_and_no_url_are_told() -> None:
    for url in ("http://127.0.0.1:9/", "ftp://127.0.0.1/"):
        with pytest.raises(ProviderError, match=url):
            await _get(url)
