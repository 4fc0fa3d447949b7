"""What the first process of a cloud's namespaces forwards."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from functools import partial

from nospoon.dev.cloud.keeper import Keeper
from nospoon.testing.bench import free_port


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readline())
    await writer.drain()
    await reader.read()
    writer.close()


async def idle(keeper: Keeper) -> None:
    while keeper.forwarded:  # noqa: ASYNC110  (nobody tells)
        await asyncio.sleep(0)


async def test_so_many_connections_are_forwarded_at_a_time() -> None:
    port, keeper = free_port(socket.SOCK_STREAM), Keeper(most=2)

    def ask(line: bytes) -> tuple[bytes, socket.socket]:
        client = socket.create_connection(("127.0.0.2", port), timeout=20)
        client.sendall(line)
        try:
            return client.recv(9), client
        except ConnectionResetError:
            return b"", client

    async with (
        await asyncio.start_server(_echo, "127.0.0.1", port),
        await asyncio.start_server(partial(keeper.forward, port), "127.0.0.2", port),
        asyncio.timeout(20),
    ):
        clients = []
        for line, answer in ((b"one\n", b"one\n"), (b"two\n", b"two\n"), (b"more\n", b"")):
            got, client = await asyncio.to_thread(ask, line)
            assert got == answer
            clients.append(client)
        for each in clients:
            each.close()
        await idle(keeper)
        got, client = await asyncio.to_thread(ask, b"last\n")
        assert got == b"last\n"
        client.close()
        await idle(keeper)


async def test_a_client_of_a_service_that_resets_does_not_wait() -> None:
    """As one does that closes an idle connection at the moment of the next request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        line = writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    keeper = Keeper()
    service = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    front = await asyncio.start_server(partial(keeper.forward, port), "127.0.0.2", port)
    async with service, front:
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        await idle(keeper)
