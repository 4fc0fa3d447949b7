"""Accepting connections of an HTTP listener: counted, and refused, before anything is read.

asyncio's own accepting makes a protocol only after the handshake of TLS, takes thousands of
connections in one turn of the loop, and logs a line for each that it cannot accept.

The kernel's queue of connections has no turns: who opens thousands a second would have all others
wait there. So they are accepted at once, which is cheap, and begin in turns of sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from traceback import clear_frames

from nospoon.model.addresses import peer_key, source_key
from nospoon.runtime import clock
from nospoon.runtime.handshakes import Tls
from nospoon.runtime.http_limits import Connection, Connections, HttpLimits
from nospoon.runtime.limited_http import LimitedHttp
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.received import READ
from nospoon.runtime.tasks import Tasks

AT_ONCE, SECONDS = 64, 0.002
"""Connections that are accepted in one turn of the loop, and for how long, but one of them."""
SOURCES, OF_ONE = 4, 2
"""Sources whose connections begin in one turn of the loop, and connections of each."""
PAUSE = 0.5
"""Seconds for which nothing is accepted once descriptors or memory have run out."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

log = RateLimitedLog()


class RefusedPeer(Exception):
    """Who connected may not use this listener. `answer`: what it is sent before the end."""

    def __init__(self, peer: str, answer: bytes) -> None:
        super().__init__(peer)
        self.peer, self.answer = peer, answer


Identify = Callable[[socket.socket], str]
"""The peer that a connection is counted for. Raises `RefusedPeer` where that is known at once."""
Authorize = Callable[[str], Awaitable[None]]
"""May take a while, for it is done after the counting. Raises `RefusedPeer` with that one."""


def by_address(connection: socket.socket) -> str:
    """The address that it comes from."""
    found = connection.getpeername()
    return peer_key(found[0]) if isinstance(found, tuple) else "local"


@dataclass(slots=True, eq=False)
class _Waiting:
    """A connection that was accepted and has not begun. `beside`: those of its source."""

    socket: socket.socket
    peer: str
    beside: dict[_Waiting, None]
    place: Connection | None = None
    is_waiting, is_stranger, is_known, account = True, False, False, None

    def drop(self) -> None:
        """It gives way."""
        self.beside.pop(self, None)
        self.socket.close()


class Acceptor:
    """One listening socket. In the place of `asyncio.Server`, which uvicorn closes."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], LimitedHttp],
        *,
        limits: HttpLimits,
        connections: Connections,
        identify: Identify = by_address,
        authorize: Authorize | None = None,
        context: Callable[[], ssl.SSLContext] | None = None,
        backlog: int = 2048,
    ) -> None:
        self._listener, self._make, self._context = listener, make, context
        self._limits, self._connections, self._identify = limits, connections, identify
        self._authorize = authorize
        self._loop, self._tasks = asyncio.get_running_loop(), Tasks("accept")
        self._waiting: dict[str, dict[_Waiting, None]] = {}
        """By source, the oldest first; a source that is here has its turn."""
        self._unbegun: set[socket.socket] = set()
        self._number = listener.fileno()
        self._resume: asyncio.TimerHandle | None = None
        listener.setblocking(False)  # noqa: FBT003  (socket's own signature)
        listener.listen(backlog)
        self._loop.add_reader(self._number, self._readable)

    def close(self) -> None:
        """Nothing more is accepted. Again is harmless."""
        if self._resume is not None:
            self._resume.cancel()
        if self._number >= 0:
            self._loop.remove_reader(self._number)
            self._number = -1
        for waiting in self._waiting.values():
            for each in list(waiting):
                if each.place is not None:
                    each.place.release()
                each.drop()

    async def wait_closed(self) -> None:
        """Handshakes that are under way are given up."""
        await self._tasks.close()

    def _readable(self) -> None:
        end = clock.monotonic() + SECONDS
        for _ in range(AT_ONCE):
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._rest(error)
                return  # as ECONNABORTED: it was gone before it was accepted (accept(2))
            self._accepted(connection)
            if clock.monotonic() >= end:
                return

    def _rest(self, error: OSError) -> None:
        log.warning("connections are not accepted for a while", why=str(error))
        self._loop.remove_reader(self._number)
        self._resume = self._loop.call_later(
            PAUSE, self._loop.add_reader, self._number, self._readable
        )

    def _accepted(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003  (socket's own signature)
        try:
            peer = self._identify(connection)
        except RefusedPeer as refused:
            _refuse(connection, refused)
            connection.close()
            return
        except OSError:  # it has gone already
            connection.close()
            return
        source = source_key(peer)
        beside = self._waiting.get(source)
        waiting = _Waiting(connection, peer, {} if beside is None else beside)
        waiting.place = self._connections.admit(
            peer, self._number, waiting, descriptor=connection.fileno()
        )
        if waiting.place is None:
            log.warning("connection refused", peer=peer, why="too many connections")
            connection.close()
            return
        waiting.beside[waiting] = None
        if beside is None:
            if not self._waiting:
                self._loop.call_soon(self._turn)
            self._waiting[source] = waiting.beside

    def _turn(self) -> None:
        """The oldest of some sources that have not given way begin; those of others in turn."""
        for source in list(self._waiting)[:SOURCES]:
            waiting = self._waiting.pop(source)
            for each in list(waiting)[:OF_ONE]:
                del waiting[each]
                self._begin(each)
            if waiting:
                self._waiting[source] = waiting  # behind all others
        if self._waiting:
            self._loop.call_soon(self._turn)

    def _begin(self, found: _Waiting) -> None:
        connection, place = found.socket, found.place
        assert place is not None, "it was admitted"
        place.subject = protocol = self._make()
        protocol.place = place
        self._unbegun.add(connection)
        task = self._tasks.start(self._connect(connection, protocol, found.peer), name="connection")
        task.add_done_callback(lambda _: self._connected(connection, protocol, place))
        protocol.handshake = task

    async def _connect(self, connection: socket.socket, protocol: LimitedHttp, peer: str) -> None:
        """From here on the transport closes the socket; of one that is refused, `_connected`."""
        if self._authorize is not None:
            try:
                await self._authorize(peer)
            except RefusedPeer as refused:
                _refuse(connection, refused)
                return
        self._unbegun.discard(connection)
        with contextlib.suppress(OSError):  # TLS's errors are such, too
            if self._context is None:
                protocol.raw, _ = await self._loop.connect_accepted_socket(
                    lambda: protocol, connection
                )
                protocol.raw.max_size = READ  # type: ignore[attr-defined]  # of a recv(2)
            else:
                await self._secure(connection, protocol, peer, self._context())

    async def _secure(
        self,
        connection: socket.socket,
        protocol: LimitedHttp,
        peer: str,
        context: ssl.SSLContext,
    ) -> None:
        """As asyncio does it (`_make_ssl_transport`), but for what `Tls` is about."""
        shaken: asyncio.Future[None] = self._loop.create_future()
        tls = Tls(
            self._connections.handshakes,
            self._connections.received,
            source_key(peer),
            self._loop,
            protocol,
            context,
            shaken,
            server_side=True,
            ssl_handshake_timeout=self._limits.handshake,
            ssl_shutdown_timeout=self._limits.linger,
        )
        raw, _ = await self._loop.connect_accepted_socket(lambda: tls, connection)
        try:
            await shaken
        except BaseException as error:
            raw.abort()
            # The error's traceback has frames that have the error: cycles, and with them all that
            # TLS took, until the garbage collector looks through everything.
            clear_frames(error.__traceback__)
            raise
        finally:
            del shaken

    def _connected(
        self, connection: socket.socket, protocol: LimitedHttp, place: Connection
    ) -> None:
        """Or not: then nothing else gives back what was taken."""
        protocol.handshake = None
        if not protocol.is_connected:
            place.release()
            protocol.discard()
        if connection in self._unbegun:
            self._unbegun.discard(connection)
            connection.close()


def _refuse(connection: socket.socket, refused: RefusedPeer) -> None:
    log.warning("connection refused", peer=refused.peer, why="may not use this listener")
    with contextlib.suppress(OSError):
        connection.send(refused.answer)
