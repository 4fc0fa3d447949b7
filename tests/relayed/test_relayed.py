"""What helpers on relays send: lines and frames, and to which BMCs they lead."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import resource
import socket
import struct
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest

from nospoon.protocols.relayed import (
    DATAGRAMS,
    HEAD,
    Datagrams,
    Flow,
    Malformed,
    Stream,
    framed,
    head_of,
    opening,
)
from nospoon.runtime import slices
from nospoon.runtime.clock import monotonic
from nospoon.runtime.http_limits import LIMITS
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.udp import ports_in_use
from nospoon.services.relayed import bmcs
from nospoon.services.relayed.bmcs import (
    MOST_FLOWS,
    MOST_OF_CLIENT,
    MOST_STREAMS,
    WAITING,
    RelayedBmcs,
)
from nospoon.testing.own_network import own_network

ONE, OTHER = UUID(int=1), UUID(int=2)
BMC, OTHERS, CLIENT = (IPv4Address(each) for each in ("127.66.0.7", "127.66.0.8", "10.0.0.9"))
FLOW = Flow(BMC, CLIENT, 4000)
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(autouse=True)
def network() -> Iterator[None]:
    """IPMI's own port is free there, which another test may have on all addresses here."""
    with own_network():
        yield


def test_a_line_says_what_a_connection_is_for() -> None:
    assert opening(DATAGRAMS) == Datagrams()
    line = f"PROXY TCP4 10.0.0.9 {BMC} 4000 443\r\n".encode()
    assert opening(line) == Stream(CLIENT, BMC, 443)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"DATAGRAMS\n",
        b"PROXY TCP4 10.0.0.9 127.66.0.7 4000 443\n",
        b"PROXY TCP6 10.0.0.9 127.66.0.7 4000 443\r\n",
        b"PROXY TCP4 10.0.0.9 localhost 4000 443\r\n",
        b"PROXY TCP4 x 127.66.0.7 4000 443\r\n",
        b"PROXY TCP4 10.0.0.9 127.66.0.7 4000 0\r\n",
        b"PROXY TCP4 10.0.0.9 127.66.0.7 4000 65536\r\n",
        "PROXY TCP4 10.0.0.9 127.66.0.7 4000 \u0663\r\n".encode(),
        b"PROXY TCP4 10.0.0.9 127.66.0.7 4000 443 1\r\n",
        b"PROXY TCP4 10.0.0.9 127.66.0.7 4000 443" + b" " * 100 + b"\r\n",
    ],
)
def test_any_other_line_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        opening(line)


def test_a_frame_is_read_as_it_was_written() -> None:
    data = framed(FLOW, b"abc")
    assert head_of(data[: HEAD.size]) == (FLOW, 3)
    assert data[HEAD.size :] == b"abc"
    assert data[:2] == struct.pack("!H", 3)
    with pytest.raises(Malformed):
        head_of(framed(FLOW, bytes(1501))[: HEAD.size])


def said(what: bytes) -> bytes:
    """What a BMC at `BMC` answers who comes from its own address."""
    return f"{BMC} ".encode() + what


class _Echo(asyncio.DatagramProtocol):
    """A BMC that says who asked, and what."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(addr[0].encode() + b" " + data, addr)


@asynccontextmanager
async def served(place: Path, *, flows: int = MOST_FLOWS) -> AsyncIterator[str]:
    """The socket of a relay. A BMC of the cluster ONE is at `BMC`, one of OTHER at `OTHERS`."""
    loop = asyncio.get_running_loop()

    async def redfish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0].encode()
        try:
            with contextlib.suppress(asyncio.IncompleteReadError):  # its client went
                writer.write(peer + b" " + await reader.readexactly(3))
        finally:
            writer.close()

    def answers(cluster: UUID, address: str, port: int) -> bool:
        return (cluster, address) in {(ONE, str(BMC)), (OTHER, str(OTHERS))} and port != 22

    relayed = RelayedBmcs(answers, flows=flows)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relayed.serve(ONE, reader, writer)

    made = [
        (await loop.create_datagram_endpoint(_Echo, local_addr=(each, bmcs.IPMI_PORT)))[0]
        for each in (str(BMC), str(OTHERS))
    ]
    listener = await asyncio.start_server(redfish, str(BMC), 8443)
    server = await asyncio.start_unix_server(serve, place / "bmcs")
    try:
        yield str(place / "bmcs")
    finally:
        server.close()
        listener.close()
        for transport in made:
            transport.close()


@asynccontextmanager
async def connected(path: str) -> AsyncIterator[Pair]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # the other end went first
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(60):
        return await reader.read()


async def test_datagrams_reach_the_bmc_of_their_address_and_its_answers_their_client(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as path, connected(path) as (reader, writer):
        others = Flow(OTHERS, CLIENT, 4000)
        writer.write(DATAGRAMS + framed(others, b"not of this cluster") + framed(FLOW, b"one"))
        second = Flow(BMC, CLIENT, 4001)
        writer.write(framed(second, b"two"))
        got = {}
        async with asyncio.timeout(60):
            for _ in range(2):
                flow, length = head_of(await reader.readexactly(HEAD.size))
                got[flow] = await reader.readexactly(length)
        assert got == {FLOW: said(b"one"), second: said(b"two")}, "from its own address"
        writer.write(b"\xff" * HEAD.size)
        assert await ended(reader) == b""


async def test_a_stream_reaches_redfish_at_its_address_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as path:
        for bmc, port, wanted in (
            (str(BMC), 8443, said(b"GET")),
            (str(BMC), 22, b""),
            (str(OTHERS), 8443, b""),
            ("127.0.0.1", 8443, b""),
        ):
            async with connected(path) as (reader, writer):
                writer.write(f"PROXY TCP4 10.0.0.9 {bmc} 4000 {port}\r\nGET".encode())
                assert await ended(reader) == wanted


async def test_clients_that_are_too_many_push_out_the_longest_silent(tmp_path: Path) -> None:
    async with served(tmp_path, flows=4) as path, connected(path) as (reader, writer):
        writer.write(DATAGRAMS)
        for port in (*range(1, 30), 1):
            writer.write(framed(Flow(BMC, CLIENT, port), b"x"))
            async with asyncio.timeout(60):
                flow, length = head_of(await reader.readexactly(HEAD.size))
                assert (flow.port, await reader.readexactly(length)) == (port, said(b"x"))


async def test_a_relay_has_so_many_connections_and_gets_new_ones_as_they_end(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as path, AsyncExitStack() as stack:
        first = [await stack.enter_async_context(connected(path)) for _ in range(MOST_STREAMS)]
        async with connected(path) as (reader, _):
            assert await ended(reader) == b"", "it is one too many"
        for _, writer in first:
            writer.write(b"none\r\n")
        for each, _ in first:
            assert await ended(each) == b""
        async with connected(path) as (reader, writer):
            writer.write(f"PROXY TCP4 10.0.0.9 {BMC} 4000 8443\r\nGET".encode())
            assert await ended(reader) == said(b"GET")


def asking(client: str = "10.0.0.9") -> bytes:
    return f"PROXY TCP4 {client} {BMC} 4000 8443\r\n".encode()


async def test_clients_of_all_connections_of_a_cluster_are_bounded(tmp_path: Path) -> None:
    """A relay has as many connections for datagrams as it likes."""
    async with served(tmp_path, flows=4) as path, AsyncExitStack() as stack:
        for _ in range(3):
            reader, writer = await stack.enter_async_context(connected(path))
            writer.write(DATAGRAMS)
            for port in range(1, 5):
                writer.write(framed(Flow(BMC, CLIENT, port), b"x"))
                async with asyncio.timeout(60):
                    _, length = head_of(await reader.readexactly(HEAD.size))
                    await reader.readexactly(length)
        there = [port for address, port in ports_in_use("udp") if address == str(BMC)]
        assert len(there) == 4 + 1, "sockets of clients, and the BMC's own"


async def test_a_relay_that_reads_no_answers_keeps_no_connection(tmp_path: Path) -> None:
    async with served(tmp_path) as path, AsyncExitStack() as stack:
        before = _descriptors()
        for number in range(1, 4):
            sock = socket.socket(socket.AF_UNIX)
            stack.callback(sock.close)
            sock.setblocking(False)  # noqa: FBT003  (socket's own signature)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, path)
            await loop.sock_sendall(sock, DATAGRAMS)
            async with asyncio.timeout(60):
                while _unread(sock) < WAITING:  # what the kernel keeps, and more behind it
                    await loop.sock_sendall(sock, framed(FLOW, b"x" * 1400) * 20)
                    await asyncio.sleep(0.01)
                for _ in range(20):
                    await loop.sock_sendall(sock, framed(FLOW, b"x" * 1400) * 20)
                    await asyncio.sleep(0.01)
                sock.shutdown(socket.SHUT_WR)
                while _descriptors() > before + number:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # the daemon's ends are closed


async def test_clients_are_bounded_whichever_connection_ends_first(tmp_path: Path) -> None:
    async with served(tmp_path, flows=4) as path, AsyncExitStack() as stack:
        for _ in range(4):
            reader, writer = await stack.enter_async_context(connected(path))
            writer.write(DATAGRAMS)
            async with connected(path) as (other, ending):  # while the first one has no client
                ending.write(DATAGRAMS + b"\xff" * HEAD.size)
                assert await ended(other) == b""
            for port in range(1, 5):
                await exchange(reader, writer, Flow(BMC, CLIENT, port))
        there = [port for address, port in ports_in_use("udp") if address == str(BMC)]
        assert len(there) == 4 + 1, "sockets of clients, and the BMC's own"


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> None:
    writer.write(framed(flow, b"x"))
    async with asyncio.timeout(60):
        came, length = head_of(await reader.readexactly(HEAD.size))
        assert (came, await reader.readexactly(length)) == (flow, said(b"x"))


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """For relays: only the last ones are free, which are for others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        for _ in range(4 * LIMITS.reserve):  # of few, fewer would be kept
            stack.callback(os.close, os.dup(0))
        probe = stack.enter_context(socket.socket())
        free = probe.fileno()
        probe.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + LIMITS.reserve, hard))
        try:
            assert LIMITS.highest_descriptor == free - 1
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_relay_takes_none_of_the_last_descriptors_for_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bmcs, "OPENING", 3600.0)
    async with served(tmp_path) as path:
        with no_descriptors_left():
            async with connected(path) as (reader, _):
                assert await ended(reader) == b""
        async with connected(path) as (reader, writer):
            writer.write(asking() + b"GET")
            assert await ended(reader) == said(b"GET")


async def test_a_relay_takes_none_of_the_last_descriptors_for_clients(tmp_path: Path) -> None:
    async with served(tmp_path) as path, connected(path) as (reader, writer):
        writer.write(DATAGRAMS)
        await exchange(reader, writer, FLOW)
        with no_descriptors_left():
            await exchange(reader, writer, FLOW)
            writer.write(framed(Flow(BMC, CLIENT, 4001), b"x"))
            assert await ended(reader) == b""


async def test_a_relay_takes_none_of_the_last_descriptors_towards_bmcs(tmp_path: Path) -> None:
    async with served(tmp_path) as path:
        before = _descriptors()
        async with connected(path) as (reader, writer):
            while _descriptors() < before + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the daemon's end is not open yet
            with no_descriptors_left():
                writer.write(asking() + b"GET")
                assert await ended(reader) == b""


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  (a count)


def _unread(sock: socket.socket) -> int:
    amount = array.array("i", [0])
    fcntl.ioctl(sock, termios.FIONREAD, amount)
    return amount[0]


async def test_a_connection_ends_with_its_bmc_whatever_its_client_keeps_open(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as path, AsyncExitStack() as stack:
        for number in range(MOST_STREAMS + 1):
            reader, writer = await stack.enter_async_context(connected(path))
            writer.write(asking(f"10.0.1.{number}") + b"GET")
            assert await ended(reader) == said(b"GET"), number


async def test_one_client_leaves_connections_to_others(tmp_path: Path) -> None:
    async with served(tmp_path) as path, AsyncExitStack() as stack:
        for _ in range(MOST_OF_CLIENT):
            _, writer = await stack.enter_async_context(connected(path))
            writer.write(asking() + b"no")  # the BMC waits for more
        reader, writer = await stack.enter_async_context(connected(path))
        writer.write(asking() + b"GET")
        assert await ended(reader) == b"", "it is one too many"
        reader, writer = await stack.enter_async_context(connected(path))
        writer.write(asking("10.0.0.10") + b"GET")
        assert await ended(reader) == said(b"GET")


class _Turns:
    """Turns of the loop, and in which of them BMCs were looked for: each look takes a slice."""

    def __init__(self) -> None:
        self._turn, self.looked, self.over = 0, list[int](), asyncio.Event()

    def answers(self, cluster: UUID, address: str, port: int) -> bool:
        del cluster, address, port
        self.looked.append(self._turn)
        end = monotonic() + slices.SECONDS
        while monotonic() < end:
            pass
        return False

    async def count(self) -> None:
        while not self.over.is_set():
            self._turn += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def looked_at(place: Path) -> AsyncIterator[tuple[str, _Turns]]:
    """The socket of a relay whose cluster has no BMCs."""
    turns = _Turns()
    relayed = RelayedBmcs(turns.answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relayed.serve(ONE, reader, writer)

    server = await asyncio.start_unix_server(serve, place / "bmcs")
    async with Tasks("test") as tasks:
        tasks.start(turns.count(), name="turns of the loop")
        try:
            yield str(place / "bmcs"), turns
        finally:
            turns.over.set()
            server.close()


async def test_connections_that_come_at_once_are_looked_at_in_slices(tmp_path: Path) -> None:
    """Whose BMCs are at an address and port takes milliseconds where they are ten thousand."""
    async with looked_at(tmp_path) as (path, turns), AsyncExitStack() as stack:
        made = [await stack.enter_async_context(connected(path)) for _ in "12345678"]
        for number, (_, writer) in enumerate(made):
            writer.write(asking(f"10.0.1.{number}"))
        for reader, _ in made:
            assert await ended(reader) == b""
    assert len(set(turns.looked)) == len(made)


async def test_frames_that_come_at_once_are_looked_at_in_slices(tmp_path: Path) -> None:
    async with looked_at(tmp_path) as (path, turns), AsyncExitStack() as stack:
        made = [await stack.enter_async_context(connected(path)) for _ in "12"]
        for _, writer in made:
            writer.write(DATAGRAMS + framed(FLOW, b"x") * 8)
            writer.write_eof()
        for reader, _ in made:
            assert await ended(reader) == b""
    assert len(turns.looked) == len(set(turns.looked)) == 8 * len(made)
