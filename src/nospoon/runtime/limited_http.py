"""uvicorn's HTTP/1.1 with deadlines and limits (RFC 9112; RFC 6585 §5 for 431).

    waiting ──first byte──▶ head ──headers complete──▶ body ──▶ (answering) ──▶ waiting

Timers run only while something of a request is missing: one that came in one piece costs none.
An application calls `logged_in` as soon as it knows who asks; until then its client is a stranger,
whose body has less time and whose connection gives way to new ones.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Hashable, MutableMapping
from enum import Enum, auto
from functools import partial
from http import HTTPStatus

import httptools
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from nospoon.model.addresses import source_key
from nospoon.runtime.handshakes import forget
from nospoon.runtime.http_limits import Connection, HttpLimits
from nospoon.runtime.limited_websocket import LimitedWebSocket
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.received import PIECE
from nospoon.runtime.server_state import LimitedState

FRAMING = 16
"""Bytes of chunk headers for one byte of body that are borne (RFC 9112 §7.1)."""
LONGEST_LENGTH = 19
"""Digits: of 2**63 bytes. Python refuses to read numbers of thousands of digits."""
INVALID = "Invalid HTTP request received."
_LOGGED_IN = "nospoon.logged_in"


log = RateLimitedLog()


def logged_in(scope: MutableMapping[str, object], account: Hashable) -> None:
    """The client of this request (ASGI's scope of it) is known, by this account."""
    scope[_LOGGED_IN] = account


class _Phase(Enum):
    """What is expected next of the client."""

    WAITING = auto()
    HEAD = auto()
    BODY = auto()


class LimitedHttp(HttpToolsProtocol):
    """One connection. `place`, `handshake` and `raw` are set by what accepted it: asyncio's own
    transport, where there is no TLS.
    """

    server_state: LimitedState
    place: Connection | None = None
    handshake: asyncio.Task[None] | None = None
    raw: asyncio.BaseTransport | None = None
    _running: RequestResponseCycle | None = None
    """What is answered now; `cycle` is what came last."""
    _deadline: asyncio.TimerHandle | None = None
    _deadline_of = _Phase.WAITING
    _stalled: asyncio.TimerHandle | None = None
    _phase = _Phase.WAITING
    _refusal: tuple[int, str] | None = None
    _refused = False
    _unread = b""
    """What came and was not worked on yet."""
    _waits = False
    """Whether that is for a later turn of the loop."""
    _received = _head = _body = _seen = 0
    """Bytes: of this phase as they came; of headers; of the body, and at the last look at it."""

    @property
    def limits(self) -> HttpLimits:
        return self.server_state.limits

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered, nor its body received."""
        return self._phase is not _Phase.BODY and not self.is_answering

    @property
    def is_known(self) -> bool:
        """Whether who sent the latest request has logged in by it."""
        return self.cycle is not None and _LOGGED_IN in self.cycle.scope

    @property
    def account(self) -> Hashable:
        """Who sent the request that is answered, or whose body comes; None: is not known."""
        if self.cycle is None or self.is_waiting:
            return None
        return self.cycle.scope.get(_LOGGED_IN)

    @property
    def is_stranger(self) -> bool:
        """Whether a request is not answered yet, or its body still comes, of who is not known."""
        if self.is_waiting or self.is_known:
            return False
        return not self.is_answering or not self.cycle.response_started

    @property
    def is_connected(self) -> bool:
        """Whether a transport reports to it, or did."""
        return self.flow is not None

    def drop(self) -> None:
        """The end, at once."""
        if self.handshake is not None:
            self.handshake.cancel()
        if self.transport is not None:
            self.transport.abort()

    def discard(self) -> None:
        """It never gets a transport. It and its parser know each other: that cycle ends."""
        self.parser = None  # type: ignore[assignment]  # as uvicorn does it when one is lost

    # what the transport reports

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        forget(self.raw)
        self._unread = b""
        self._end_requests()
        self._unset_keepalive_if_required()
        self._stop()
        if self._stalled is not None:
            self._stalled.cancel()
        if self.place is not None:
            self.place.release()
            self.place = None

    def _end_requests(self) -> None:
        """uvicorn reports the end to the request that came last: one that is answered while others
        wait behind it would go on without a client, and nothing bounds how many do. Those that wait
        know the connection: cycles, with all that belongs to them.
        """
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        while self.pipeline:
            waiting, _ = self.pipeline.pop()
            waiting.on_response = _nothing

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, partial(_answered, cycle, app))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def data_received(self, data: bytes) -> None:
        """Its parser gets it in pieces, and a piece that would be too much for this turn of the
        loop in a later one.
        """
        if self._refused:
            return  # it still sends what was refused
        self._unset_keepalive_if_required()
        self._unread += data
        while self._unread and not self._waits:
            if self.place is None or self.place.of.received.may_begin():
                self._take_piece()
            else:
                self._waits = True
                self.place.of.received.put(source_key(self.place.peer), self._go_on)
        if self._waits:
            self.transport.pause_reading()

    def _go_on(self) -> bool:
        """In a later turn. Returns whether it has more for further ones."""
        if self._unread:
            self._unset_keepalive_if_required()
            self._take_piece()
        if self._unread:
            return True
        self._waits = False
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()
        return False

    def _take_piece(self) -> None:
        piece, self._unread = self._unread[:PIECE], self._unread[PIECE:]
        self._feed(piece)
        if self._refused:
            self._unread = b""

    def _feed(self, data: bytes) -> None:
        phase = self._phase
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._unread = b""  # nothing may come before it is agreed on (RFC 9110 §7.8)
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._watch()
            return
        except httptools.HttpParserError:
            self.refuse(*(self._refusal or (400, INVALID)))
            return
        self._received = self._received + len(data) if self._phase is phase else 0
        most = self.limits.header_bytes
        if self._phase is _Phase.HEAD and self._received > most + self.limits.url:
            self.refuse(431, _too_large(most))
        elif self._phase is _Phase.BODY and self._received > most + FRAMING * self._body:
            self.refuse(431, "Too much of the body is framing or trailers.")
        else:
            self._watch()

    def handle_websocket_upgrade(self) -> None:
        self._stop()
        if self._stalled is not None:
            self._stalled.cancel()
        self._end_requests()  # this protocol hears no more of the connection
        super().handle_websocket_upgrade()
        self._phase = _Phase.BODY  # which has no end: it waits for no request, and is not dropped
        successor = self.transport.get_protocol()
        if isinstance(successor, LimitedWebSocket):
            successor.place = self.place

    # what the parser reports

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase, self._head = _Phase.HEAD, 0

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.limits.url:
            self._stop_parsing(414, f"The URL is longer than {self.limits.url} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        limits = self.limits
        self._head += len(name) + len(value)
        if self._head > limits.header_bytes:
            self._stop_parsing(431, _too_large(limits.header_bytes))
        if name.lower() == b"content-length" and len(value) > LONGEST_LENGTH:
            self._stop_parsing(400, "The Content-Length is not a possible number of bytes.")
        if len(self.headers) >= limits.headers:
            self._stop_parsing(431, f"There are more than {limits.headers} headers.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            self._stop_parsing(400, f"Expected one Host header, got {hosts} (RFC 9112, 3.2).")
        if len(self.pipeline) >= self.limits.pipelined:
            self._stop_parsing(400, "Too many requests wait on this connection.")
        self._phase, self._body, self._seen = _Phase.BODY, 0, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._phase = _Phase.WAITING
        super().on_message_complete()

    def _stop_parsing(self, status: int, why: str) -> None:
        self._refusal = status, why
        raise ValueError(why)  # which the parser turns into its own error

    # answers

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # which waits for a client that reads nothing
            self._arm(_Phase.BODY, self.limits.stalled, self.transport.abort)
        elif self._phase is _Phase.BODY:  # of a request that is answered: it has an end too
            self._arm(_Phase.BODY, self.limits.head, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.get_write_buffer_size():  # closing would wait for who reads nothing
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def refuse(self, status: int, why: str) -> None:
        """Answer, and close: later requests on this connection cannot be found any more."""
        peer = self.client[0] if self.client else ""
        log.warning("HTTP request refused", status=status, why=why, peer=peer)
        self._refused = True
        if self.transport.is_closing():
            return
        if self.pipeline or (self.is_answering and self.cycle.response_started):
            self.transport.abort()  # an answer stands half written, or before this one
            return
        if self.is_answering:
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False  # uvicorn would write it behind the refusal
            self.cycle.message_event.set()
        self.transport.write(self.refusal(status, why))
        self._arm(_Phase.WAITING, self.limits.linger, self.transport.abort)
        if self.transport.can_write_eof():
            try:
                self.transport.write_eof()  # a reset for unread bytes would destroy the answer
            except OSError:  # who is asked from here, and has closed, resets it at once
                self.transport.abort()
        else:
            self.transport.close()

    @property
    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def refusal(self, status: int, why: str) -> bytes:
        """The whole answer."""
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(why)}\r\nconnection: close\r\n\r\n"
        )
        return (head + why).encode("ascii")

    # deadlines

    def _watch(self) -> None:
        """The deadline of what is missing now."""
        if self._phase is _Phase.BODY:
            if self._deadline is None or self._deadline_of is not _Phase.BODY:
                self._watch_body(self.limits.stranger_body)
        elif self._phase is _Phase.WAITING and self.is_answering:
            self._stop()
        elif self._deadline is None or self._deadline_of is not _Phase.HEAD:
            self._arm(_Phase.HEAD, self.limits.head, self._head_is_late)

    def _arm(self, phase: _Phase, seconds: float, then: Callable[[], None]) -> None:
        self._stop()
        self._deadline, self._deadline_of = self.loop.call_later(seconds, then), phase

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _head_is_late(self) -> None:
        self._deadline = None
        if self._waits:  # for other clients
            self._arm(_Phase.HEAD, self.limits.head, self._head_is_late)
        elif self._phase is _Phase.HEAD:
            self.refuse(408, "The headers did not arrive in time.")
        else:
            self.transport.abort()

    def _watch_body(self, seconds: float) -> None:
        self._arm(_Phase.BODY, seconds, lambda: self._look_at_body(seconds))

    def _look_at_body(self, seconds: float) -> None:
        """`seconds`: since the last look, or since it began to come."""
        self._deadline = None
        cycle = self.cycle
        wanted = self.limits.body_rate * seconds if self.is_known else math.inf
        ours = self._waits or self.flow.read_paused
        theirs = not (ours or cycle.body or cycle.waiting_for_100_continue)
        if theirs and self._body - self._seen < wanted:
            self.refuse(408, "The body did not arrive in time.")
            return
        self._seen = self._body
        self._watch_body(self.limits.body_window)


async def _answered(
    cycle: RequestResponseCycle,
    app: ASGI3Application,
    scope: Scope,
    receive: ASGIReceiveCallable,
    send: ASGISendCallable,
) -> None:
    """What is cut off because its listener ends is no fault of the server (500, with a traceback
    in the log): it may be asked again soon (RFC 9110 §15.6.4). Half an answer ends here.
    """
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        if cycle.response_started:
            cycle.transport.close()
            cycle.disconnected = True
            return
        headers = [(b"retry-after", b"1"), (b"connection", b"close"), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _nothing() -> None:
    """Nothing is done after an answer that is never given."""


def _too_large(most: int) -> str:
    return f"The headers are longer than {most} bytes."
