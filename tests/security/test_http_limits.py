"""Listeners of HTTP: strangers who say nothing, too much or too slowly keep no one else out."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import struct
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from nospoon.api.client import connected
from nospoon.api.peer import Members, PeerHttp
from nospoon.model.addresses import peer_key
from nospoon.model.principal import Administrators
from nospoon.runtime import accepting
from nospoon.runtime.accepting import RefusedPeer
from nospoon.runtime.handshakes import SECONDS, Handshakes
from nospoon.runtime.http_limits import CONTROL, LIMITS, Connections, HttpLimits
from nospoon.runtime.limited_http import LimitedHttp, logged_in
from nospoon.runtime.log_rate import Rate
from nospoon.runtime.serve import Contexts, HttpServer
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.tls import self_signed
from nospoon.services.netboot import serving as boot
from nospoon.services.netboot.serving import BootHttp
from nospoon.testing.bench import bench
from nospoon.testing.due import forward
from nospoon.testing.redfish import SYSTEMS, client

SOON = HttpLimits(
    handshake=0.2, head=0.2, keep_alive=0.2, body_window=0.2, stranger_body=0.2, stalled=0.2,
    linger=0.2,
)  # fmt: skip
"""Deadlines that are over soon; sizes and numbers as they are."""
GET = b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")


@dataclass
class Told:
    """An application: `/stream` sends without an end, `/body` answers with the size of the body; so
    does `/member`, which knows its client.
    """

    gone: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    """Released once for each request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.release()
        data = b"ok"
        if scope["path"] == "/member":
            logged_in(scope, b"member")
        if scope["path"] in {"/body", "/member"}:
            data, more = b"", True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.gone.set()
                    return
                data, more = data + message["body"], message["more_body"]
            data = str(len(data)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/stream" and not self.gone.is_set():
            if await self._is_gone(scope, receive, send):
                self.gone.set()
        await send({"type": "http.response.body", "body": data})

    async def _is_gone(self, scope: Scope, receive: Receive, send: Send) -> bool:
        size = int(scope["query_string"] or b"4")
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        try:
            async with asyncio.timeout(0.01):
                return bool((await receive())["type"] == "http.disconnect")
        except TimeoutError:
            return False


@dataclass
class Served:
    port: int
    app: Told
    connections: Connections

    async def connect(self, **more: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, **more)

    async def emptied(self) -> None:
        """When no connection is counted any more."""
        async with asyncio.timeout(20):
            while len(self.connections):  # noqa: ASYNC110  (the server knows no event of it)
                await asyncio.sleep(0.01)

    async def ask(self, request: bytes) -> bytes:
        """All that comes until the connection is closed."""
        reader, writer = await self.connect()
        writer.write(request)
        try:
            return await ended(reader)
        finally:
            writer.close()


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What is received until the server ends the connection, in good order or not."""
    async with asyncio.timeout(20):
        return await received(reader)


async def received(reader: asyncio.StreamReader) -> bytes:
    """The same, however far the clock is put forward meanwhile."""
    found = b""
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            found += data
    return found


@asynccontextmanager
async def served(limits: HttpLimits = SOON, **config: Any) -> AsyncIterator[Served]:
    app, connections = Told(), Connections(limits)
    bound = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(app, [bound], limits=limits, connections=connections, ws="none", **config)
    await server.start()
    try:
        yield Served(bound.getsockname()[1], app, connections)
    finally:
        await server.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1]) if answer else 0


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", 0),
        (b"\r\n", 0),
        (b"GET /small HT", 408),
        (b"GET /small HTTP/1.1\r\nHost: x\r\nA: b", 408),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234", 408),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 408),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"0" * 4400 + b"\r\n\r\n", 400),
        (GET, 200),
        (GET + b"\r\n", 200),
        (b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1234", 200),
    ],
    ids=["nothing", "an empty line", "half a line", "half a header", "half a body", "no chunk",
         "a length of thousands of digits",
         "nothing more", "an empty line more", "half a body of an answered request"],
)  # fmt: skip
async def test_a_connection_that_says_no_more_is_closed(said: bytes, answer: int) -> None:
    async with served() as server:
        assert status(await server.ask(said)) == answer
        await server.emptied()


async def test_a_head_that_comes_a_byte_at_a_time_is_not_waited_for() -> None:
    async with served() as server, Tasks("test") as tasks:
        reader, writer = await server.connect()
        writer.write(b"GET /small HTTP/1.1\r\nHost: x\r\nA: ")
        ending = tasks.start(ended(reader), name="read")
        while not ending.done():
            writer.write(b"b")
            await asyncio.sleep(0.01)
        assert status(ending.result()) == 408
        writer.close()


async def test_a_body_below_the_least_rate_is_given_up_and_one_above_is_not() -> None:
    limits = HttpLimits(body_rate=1, body_window=60.0, stranger_body=60.0, head=600.0)
    async with served(limits) as server, Tasks("test") as tasks:
        closing = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n"
        for path, size, answer in (
            (b"member", 1, 408),
            (b"member", 20, 200),  # at eight times the least rate, in two minutes
            (b"body", 20, 408),  # a stranger has a minute in all
        ):
            reader, writer = await server.connect()
            writer.write(b"POST /" + path + closing)
            ending = tasks.start(received(reader), name="read")
            while not ending.done():
                writer.write(b"x" * size)
                assert status(await server.ask(LAST)) == 200  # what came before it was read
                forward(2.4)
                await asyncio.sleep(0)  # what is due by now comes before more of the body
            assert status(ending.result()) == answer
            writer.close()
        assert server.app.gone.is_set()


async def test_an_answer_may_last_as_long_as_its_client_reads_it() -> None:
    async with served() as server:
        reader, writer = await server.connect()
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(20):
            for _ in range(100):  # far beyond every deadline of a request
                await reader.readuntil(b"xxxx\r\n")
        writer.close()
        await server.app.gone.wait()


async def test_a_client_that_reads_nothing_of_its_answer_is_dropped() -> None:
    async with served() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(b"GET /stream?1000000 HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(20):
                await server.app.gone.wait()


def with_headers(*headers: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"%s\r\n" % each for each in headers)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (with_headers(*[b"a: b"] * 98, b"Connection: close", b""), 200),
        (with_headers(*[b"a: b"] * 100, b""), 431),
        (with_headers(*[b"a: " + b"b" * 8000] * 9, b""), 431),
        (with_headers(b"a: " + b"b" * 70_000, b""), 431),
        (with_headers(b"a: " + b"b" * 400_000), 431),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /" + b"a" * 900_000, 414),
        (b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: "
         + b"b" * 900_000, 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\n\r\n", 200),
        (b"no request\r\n\r\n", 400),
        (GET * 1000, 0),
    ],
    ids=["100 headers", "101 headers", "headers too long", "a header too long",
         "a header without an end", "a URL too long", "a URL without an end",
         "trailers without an end", "no Host", "two Hosts", "no Host in HTTP/1.0", "no HTTP",
         "1000 requests at once"],
)  # fmt: skip
async def test_what_is_too_large_or_malformed_is_refused(request_: bytes, answer: int) -> None:
    async with served() as server:
        assert status(await server.ask(request_)) == answer
        await server.emptied()


async def test_a_refused_request_is_not_asked_for_its_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for 100 Continue (RFC 9110 §10.1.1), and its first chunk is none: after the refusal
    nothing may be written, and what a stranger sends is no fault of the server's to be logged.
    """
    head = b"POST /body HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
    async with served() as server:
        answer = await server.ask(head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n")
        await server.emptied()
        async with asyncio.timeout(20):
            await server.app.asked.acquire()
            await server.app.gone.wait()
    assert status(answer) == 400
    assert b"Continue" not in answer
    assert "Exception in ASGI application" not in caplog.text


async def test_boot_files_have_limits_too() -> None:
    async with served(http=BootHttp) as server:
        assert status(await server.ask(with_headers(*[b"a: b"] * 100, b""))) == 431
        assert b"\r\nTransfer-Encoding: chunked\r\n" in await server.ask(GET)


async def test_who_may_not_use_the_daemons_socket_is_told_so_and_holds_nothing(
    tmp_path: Path,
) -> None:
    """Before anything is read. Root may always; the caller here is another user."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "sock"))
    connections = Connections(SOON)

    members = Members("no-such-group", Administrators())

    def stranger(connection: socket.socket) -> str:
        return members.identify(AnotherUsers(connection))  # type: ignore[arg-type]

    server = HttpServer(
        Told(),
        [listener],
        connections=connections,
        identify=stranger,
        authorize=members.authorize,
        http=PeerHttp,
    )
    await server.start()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sock"))
    answer = await ended(reader)
    assert status(answer) == 403
    assert b"user 65534 may not use this daemon" in answer
    assert len(connections) == 0
    writer.close()
    await server.close()
    members.close()


async def test_a_slow_directory_of_users_stops_nobody_else_and_is_asked_once() -> None:
    """As LDAP by nsswitch.conf(5) may be."""
    asked, known = list[int](), threading.Event()

    def is_member(uid: int, group: str) -> bool:
        asked.append(uid)
        known.wait(60)
        return group == "lab"

    members = Members("lab", Administrators(), is_member=is_member, patience=0.01)
    scope = {"client": (f"uid={os.geteuid()}", 1)}
    with pytest.raises(RefusedPeer):
        await members.authorize("uid=65534")
    assert (await members.caller(scope)).admin
    several = [members.authorize("uid=65534") for _ in range(100)]
    assert all(await asyncio.gather(*several, return_exceptions=True))
    known.set()
    patient = Members("lab", Administrators(), is_member=is_member)
    await patient.authorize("uid=65534")
    await patient.authorize("uid=65534")
    assert asked == [65534, 65534]  # of each once
    members.close()
    patient.close()


async def test_who_was_refused_is_refused_at_once_and_forgotten() -> None:
    """A user may have thousands of ids (subuid(5)): each was compared with all others."""
    now = [100.0]
    members = Members(
        "lab", Administrators(), is_member=lambda _, group: group == "x", clock=lambda: now[0]
    )
    for uid in range(200_000, 203_000):
        with pytest.raises(RefusedPeer):
            await members.authorize(f"uid={uid}")
        now[0] += 0.01
    assert members.known <= 1001  # those of ten seconds
    with pytest.raises(RefusedPeer, match="65534"):
        await members.authorize("uid=65534")
    with pytest.raises(RefusedPeer) as caught:
        members.identify(AnotherUsers(None))  # type: ignore[arg-type]
    assert b"user 65534 may not use this daemon" in caught.value.answer
    now[0] += 10.1
    assert members.identify(AnotherUsers(None)) == "uid=65534"  # type: ignore[arg-type]
    members.close()


def test_a_client_waits_where_many_others_connect(tmp_path: Path) -> None:
    """The kernel refuses those who would not wait."""
    path = tmp_path / "sock"

    def accept() -> None:
        listener.accept()[0].close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(0)
        with connected(str(path), 60.0):
            with pytest.raises(BlockingIOError):
                connected(str(path), 0.01)
            accepting = threading.Timer(0.3, accept)
            accepting.start()
            with connected(str(path), 60.0) as later:
                assert later.gettimeout() == 60.0
            accepting.join()


class AnotherUsers:
    """A connection of user 65534."""

    def __init__(self, connection: socket.socket) -> None:
        del connection

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("3i", 1, 65534, 65534)[:size]


async def test_redfish_says_what_is_too_large_as_its_errors_are() -> None:
    async with bench(1) as b:
        reader, writer = await asyncio.open_connection(
            b.first.bmc.address, b.first.bmc.redfish_port
        )
        writer.write(with_headers(*[b"a: b"] * 100, b""))
        head, _, body = (await ended(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 431 ")
        assert b"@Message.ExtendedInfo" in body
        writer.close()


async def test_a_client_that_says_nothing_gives_way_to_one_that_asks() -> None:
    few = replace(SOON, head=60.0, per_peer=4)
    async with served(few) as server:
        idle = [await server.connect() for _ in range(12)]
        assert status(await server.ask(GET)) == 200
        assert len(server.connections) <= few.per_peer
        for _, writer in idle:
            writer.close()


@pytest.mark.parametrize("path", [b"/body", b"/member"])
async def test_bodies_that_trickle_keep_nobody_out_of_a_full_listener(path: bytes) -> None:
    """They come from several addresses, and keep above the least rate."""
    patient = replace(SOON, body_window=60.0, stranger_body=60.0, per_peer=4, per_listener=8)
    async with served(patient) as server:
        slow = []
        for number in range(8):
            _, writer = await server.connect(local_addr=(f"127.0.0.{2 + number // 4}", 0))
            writer.write(b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n12")
            slow.append(writer)
        for _ in slow:
            await server.app.asked.acquire()
        assert len(server.connections) == 8
        assert status(await server.ask(GET)) == 200
        for writer in slow:
            writer.close()


async def test_a_redfish_client_is_answered_beside_strangers_whose_bodies_trickle() -> None:
    """As many as a listener has places for, from five addresses."""
    async with bench(1) as b:
        lines = await asyncio.to_thread(trickling, b.first.bmc.redfish_port, LIMITS.per_listener)
        found = await client(b.first).get(f"{SYSTEMS}/{b.first.bmc.uuid}")
        assert found.status == 200
        for line in lines:
            line.close()


def trickling(port: int, count: int) -> list[socket.socket]:
    """Connections on which a login began to be sent."""
    head = b"POST /redfish/v1/SessionService/Sessions HTTP/1.1\r\nHost: x\r\n"
    lines = []
    for number in range(count):
        peer = f"127.0.1.{1 + number // 220}", 0
        line = socket.create_connection(("127.0.0.1", port), source_address=peer)
        line.sendall(head + b"Content-Length: 9999\r\n\r\n{")
        lines.append(line)
    return lines


async def test_requests_under_way_are_not_given_up_for_new_ones() -> None:
    async with served(replace(SOON, per_listener=2)) as server:
        busy = [await server.connect() for _ in range(2)]
        for reader, writer in busy:
            writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"xxxx")
        assert await server.ask(GET) == b""
        for reader, _ in busy:
            await reader.readuntil(b"xxxx")
        for _, writer in busy:
            writer.close()


async def test_descriptors_are_left_for_the_daemons_own_socket() -> None:
    """A listener for strangers whose descriptors are used up, and one that may use the rest."""
    everything = replace(SOON, reserve=1 << 40)
    assert everything.highest_descriptor > replace(SOON, reserve=0).highest_descriptor // 2
    group = Connections(replace(SOON, reserve=0))
    limit = replace(SOON, reserve=0).highest_descriptor
    assert group.admit("a", 1, Idle(waiting=False), descriptor=limit) is not None
    assert group.admit("b", 1, Idle(waiting=False), descriptor=limit + 1) is None


@dataclass(eq=False)
class Idle:
    waiting: bool = True
    dropped: bool = False
    account: str | None = None

    @property
    def is_waiting(self) -> bool:
        return self.waiting

    @property
    def is_known(self) -> bool:
        return self.account is not None

    @property
    def is_stranger(self) -> bool:
        return False

    def drop(self) -> None:
        self.dropped = True


def test_where_descriptors_run_out_who_holds_most_gives_way() -> None:
    group = Connections(SOON)
    few, many = Idle(), [Idle() for _ in range(3)]
    group.admit("few", 1, few)
    for each in many:
        group.admit("many", 2, each)
    assert group.admit("new", 1, Idle(), descriptor=1 << 40) is not None
    assert [each.dropped for each in many] == [True, False, False]
    assert not few.dropped
    assert len(group) == 4


def test_on_a_full_listener_the_account_that_holds_most_gives_way() -> None:
    group = Connections(replace(SOON, per_listener=4))
    few = Idle(waiting=False, account="few")
    many = [Idle(waiting=False, account="many") for _ in range(3)]
    for number, each in enumerate([few, *many]):
        group.admit(f"source {number}", 1, each)
    assert group.admit("new", 1, Idle()) is not None
    assert [each.dropped for each in [few, *many]] == [False, True, False, False]


def test_guests_that_take_their_files_slowly_keep_no_other_machine_from_its_own() -> None:
    """Of boot files no one has an account. Four guests had all connections of a listener."""
    group = Connections(boot.LIMITS)
    taken = [Idle(waiting=False) for _ in range(4 * boot.LIMITS.per_peer)]
    for number, each in enumerate(taken):
        assert group.admit(f"guest {number % 4}", 1, each) is not None
    few = [group.admit("another", 1, Idle(waiting=False)) for _ in range(8)]
    assert None not in few
    assert len(group) == boot.LIMITS.per_listener
    assert [each.dropped for each in taken[:8]] == [True] * 8, "the oldest, guests in turn"
    assert sum(each.dropped for each in taken) == 8


def test_where_all_have_as_many_none_takes_the_place_of_another() -> None:
    group = Connections(replace(boot.LIMITS, per_listener=4))
    for number in range(4):
        assert group.admit(f"guest {number % 2}", 1, Idle(waiting=False)) is not None
    assert group.admit("guest 0", 1, Idle(waiting=False)) is None
    assert group.admit("new", 1, Idle(waiting=False)) is not None
    assert group.admit("new", 1, Idle(waiting=False)) is None


def test_members_who_act_together_do_not_keep_administrators_from_the_socket() -> None:
    group = Connections(CONTROL)
    for number in range(4 * CONTROL.per_peer):
        group.admit(f"uid={1001 + number % 4}", 1, Idle(waiting=False))
    assert group.admit("uid=1005", 1, Idle()) is None
    roots = [group.admit("uid=0", 1, Idle(waiting=False)) for _ in range(CONTROL.kept)]
    assert None not in roots
    assert len(group) == CONTROL.per_listener


async def test_on_the_full_socket_the_user_with_most_requests_gives_way(tmp_path: Path) -> None:
    path = str(tmp_path / "sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    users = iter(["uid=1", "uid=1", "uid=2"])
    server = HttpServer(
        Told(),
        [listener],
        limits=replace(SOON, per_listener=2),
        identify=lambda _: next(users),
        http=PeerHttp,
    )
    await server.start()
    busy = [await asyncio.open_unix_connection(path) for _ in range(2)]
    for reader, writer in busy:
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"xxxx")
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(GET)
    assert status(await ended(reader)) == 200
    for _, each in [*busy, (reader, writer)]:
        each.close()
    await server.close()


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1:2::3", "2001:db8:0:1::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("uid=5", "uid=5"),
    ],
)
def test_connections_are_counted_by_site_where_addresses_are_many(address: str, key: str) -> None:
    assert peer_key(address) == key


async def test_a_handshake_of_tls_has_a_deadline_and_a_place(tmp_path: Path) -> None:
    key, certificate = self_signed("127.0.0.1", name="x")
    file = tmp_path / "pem"
    file.write_bytes(key + certificate)
    secured = {"contexts": Contexts(file)}
    async with served(replace(SOON, per_peer=4), **secured) as server:
        silent = [await server.connect() for _ in range(12)]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await server.connect(ssl=context)
        writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert status(await ended(reader)) == 200
        writer.close()
        for other, line in silent:
            assert await ended(other) == b""
            line.close()
        await server.emptied()


async def test_a_connection_of_tls_takes_little_before_its_handshake(tmp_path: Path) -> None:
    key, certificate = self_signed("127.0.0.1", name="x")
    file = tmp_path / "pem"
    file.write_bytes(key + certificate)
    secured = {"contexts": Contexts(file)}
    patient = replace(SOON, handshake=60.0)
    async with served(patient, **secured) as server:
        tracemalloc.start()
        try:
            silent = [await server.connect() for _ in range(20)]
            for _, writer in silent:
                writer.write(b"\x16\x03\x01\x02\x00\x01")
            async with asyncio.timeout(20):
                while len(server.connections) < len(silent):  # noqa: ASYNC110  (no event)
                    await asyncio.sleep(0.01)
            assert tracemalloc.get_traced_memory()[0] < len(silent) * 128 << 10
        finally:
            tracemalloc.stop()
        for _, writer in silent:
            writer.close()
        await server.emptied()


async def test_handshakes_of_one_moment_are_spread_over_turns_of_the_loop() -> None:
    told, time = list[int](), [0.0]

    def shake(number: int) -> None:
        told.append(number)
        time[0] += SECONDS / 2

    handshakes, seen = Handshakes(now=lambda: time[0]), list[int]()
    for number in range(6):
        handshakes.put("peer", partial(shake, number))
    while not seen or seen[-1] < 6:
        await asyncio.sleep(0)
        seen.append(len(told))
    assert (seen, told) == ([2, 4, 6], [0, 1, 2, 3, 4, 5])


async def test_sources_take_turns_to_shake_hands() -> None:
    handshakes, told = Handshakes(), list[str]()
    for name in ("a1", "a2", "a3", "b1"):
        handshakes.put(name[0], partial(told.append, name))
    async with asyncio.timeout(20):
        while len(told) < 4:  # noqa: ASYNC110  (no event)
            await asyncio.sleep(0)
    assert told == ["a1", "b1", "a2", "a3"]


async def test_who_opens_many_connections_has_no_other_source_wait_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, peers = list[str](), iter([*["192.0.2.1"] * 60, "192.0.2.2"])

    class Noted(LimitedHttp):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            assert self.place is not None
            begun.append(self.place.peer)
            super().connection_made(transport)

    monkeypatch.setattr(accepting, "SECONDS", 60.0)
    async with served(LIMITS, http=Noted, identify=lambda _: next(peers)) as server:
        # nothing is accepted meanwhile
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(61)]
        async with asyncio.timeout(20):
            while len(begun) < 61:  # noqa: ASYNC110  (no event)
                await asyncio.sleep(0)
        for each in clients:
            each.close()
    assert begun.index("192.0.2.2") <= 3


def test_who_has_some_addresses_has_no_other_source_lose_its_connection() -> None:
    """On a full listener the source with most that have not logged in loses one."""

    connections = Connections(HttpLimits(per_listener=8))
    member, fresh = [Idle(account="member") for _ in range(3)], Idle()
    for each in (*member, fresh):
        assert connections.admit(f"192.0.2.{8 + bool(each.account)}", 1, each)
    for number in range(40):
        assert connections.admit(f"192.0.2.{number % 2}", 1, Idle())
    assert len(connections) == 8
    assert not any(each.dropped for each in (*member, fresh))


async def test_connections_that_have_not_begun_end_with_their_listener() -> None:
    async with served(LIMITS) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
        async with asyncio.timeout(20):
            while not len(server.connections):  # noqa: ASYNC110  (no event)
                await asyncio.sleep(0)
    assert not len(server.connections)
    for each in clients:
        each.settimeout(20)
        with suppress(ConnectionResetError):
            assert each.recv(1) == b""
        each.close()


async def test_clients_that_shake_hands_at_once_are_all_answered(tmp_path: Path) -> None:
    key, certificate = self_signed("127.0.0.1", name="x")
    file = tmp_path / "pem"
    file.write_bytes(key + certificate)
    secured = {"contexts": Contexts(file)}
    trusting = ssl.create_default_context(cadata=certificate.decode())
    patient = replace(SOON, handshake=60.0, head=60.0)  # the first one waits for the last
    async with served(patient, **secured) as server:
        opened = await asyncio.gather(*(server.connect(ssl=trusting) for _ in range(30)))
        for reader, writer in opened:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
        await server.emptied()


async def test_an_answer_ends_with_its_client_though_other_requests_wait_behind_it() -> None:
    """It went on for ever, without a connection that is counted."""
    async with served() as server:
        reader, writer = await server.connect()
        writer.write(GET.replace(b"/small", b"/stream") + GET)
        assert await reader.read(1)
        writer.transport.abort()
        async with asyncio.timeout(20):
            await server.app.gone.wait()


def test_lines_that_strangers_cause_are_few() -> None:
    rate = Rate(lines=2, seconds=10.0)
    assert [rate.allow("a", 0.0) for _ in range(4)] == [0, 0, None, None]
    assert rate.allow("b", 0.0) == 0
    assert rate.allow("a", 10.0) == 2
    assert [rate.allow(f"k{number}", 11.0) for number in range(1000)] == [0] * 1000
    assert len(rate._kinds) <= 256


async def test_a_connection_that_is_reset_at_once_leaves_nothing() -> None:
    async with served() as server:
        for _ in range(50):
            line = socket.create_connection(("127.0.0.1", server.port))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            line.close()
        closing = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        assert status(await server.ask(closing)) == 200
        await server.emptied()


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    """This process may have so many more than it has, whatever earlier tests have left open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    has = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (has + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_strangers_do_not_use_up_the_descriptors_of_the_daemons_socket(
    tmp_path: Path,
) -> None:
    """They come from many addresses, and each asks for what has no end."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "sock"))
    own = HttpServer(Told(), [listener], limits=replace(SOON, reserve=0), ws="none")
    await own.start()
    strangers = replace(SOON, head=60.0, per_peer=10_000, per_listener=10_000, reserve=40)
    async with served(strangers) as server:
        lines = []
        with few_descriptors(160):
            for _ in range(150):
                reader, writer = await server.connect()
                writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
                lines.append(writer)
                if await reader.read(1) == b"":
                    break  # refused: descriptors are left
            assert len(lines) < 150
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "sock"))
            writer.write(GET)
            assert status(await ended(reader)) == 200
            writer.close()
        for each in lines:
            each.close()
    await own.close()
