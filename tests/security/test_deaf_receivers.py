"""Receivers of requests that take nothing, or do not end TLS: they are waited for as long as for an
answer, and no longer. BMC clients and members choose them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nospoon.errors import ProviderError
from nospoon.runtime.http import request
from nospoon.testing.certificates import written

LARGE = bytes(16 << 20)
"""More than the kernel takes for a receiver that reads nothing."""


@asynccontextmanager
async def deaf(context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """`HOST:PORT` of a server that reads nothing, after its handshake where it has TLS."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a transport that reads
        await over.wait()
        writer.transport.abort()

    over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, limit=1)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def ask(url: str, body: bytes) -> None:
    with pytest.raises(ProviderError, match="did not answer within"):
        async with asyncio.timeout(20):  # asyncio itself waits 30 s for the end of TLS
            await request("POST", url, body, verify=False, patience=0.5)


async def test_who_reads_no_request_is_not_waited_for() -> None:
    async with deaf() as place:
        await ask(f"http://{place}/", LARGE)


@pytest.mark.parametrize("body", [b"", LARGE])
async def test_who_does_not_end_tls_is_not_waited_for(tmp_path: Path, body: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*written(tmp_path, "127.0.0.1"))
    async with deaf(context) as place:
        await ask(f"https://{place}/", body)


async def test_a_scheme_in_capitals_has_tls_too() -> None:
    """Requests have passwords of BMCs, and signatures of webhooks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        loop = asyncio.get_running_loop()
        listener.setblocking(False)  # noqa: FBT003  (socket's own signature)
        url = f"HTTPS://127.0.0.1:{listener.getsockname()[1]}/"
        asking = loop.create_task(request("GET", url, verify=False, patience=20))
        line, _ = await loop.sock_accept(listener)
        with line:
            assert (await loop.sock_recv(line, 3))[:2] == b"\x16\x03", "a ClientHello (RFC 8446 §5)"
        with pytest.raises(ProviderError):
            await asking
