"""uvicorn's websockets (RFC 6455) with limits: what comes is decoded in turn, and not unbounded."""

from __future__ import annotations

import asyncio

from uvicorn import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nospoon.model.addresses import source_key
from nospoon.runtime.http_limits import Connection
from nospoon.runtime.server_state import LimitedState

WEBSOCKET = {"ws_max_size": 64 << 10, "ws_per_message_deflate": False}
"""Settings of uvicorn: bytes of a message, which a client could make of a thousandth as many."""
READ_AT_ONCE = 1024
"""Bytes that a websocket takes of its client at a time: as empty frames they take 2 ms."""
MOST_UNREAD = 1 << 20
"""Bytes that wait for a client who sends and does not read."""
MOST_FRAMES = 1024
"""Fragments of a message (RFC 6455 §5.4), which may be empty."""


class LimitedWebSocket(WebSocketsSansIOProtocol):
    """A connection that became a websocket; pings end it when its client is gone.

    Little is read at a time, for a frame may have 6 bytes, and decoded in turn with what came on
    other connections of the listener.
    """

    place: Connection | None = None
    transport: asyncio.Transport
    _stalled: asyncio.TimerHandle | None = None
    _unread = b""
    """What came and waits for a later turn of the loop."""

    def __init__(
        self,
        config: Config,
        server_state: LimitedState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = server_state.limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]  # asyncio's, for recv(2)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unread = b""
        self._go_on()
        if self.place is not None:
            self.place.release()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        waits, self._unread = bool(self._unread), self._unread + data
        if not waits and (self.place is None or self.place.of.received.may_begin()):
            self._take()
            return
        self.transport.pause_reading()  # also again: who takes a message resumes it
        if not waits and self.place is not None:
            self.place.of.received.put(source_key(self.place.peer), self._take_later)

    def _take_later(self) -> bool:
        if self._unread:
            self._take()
            if not self.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()
        return False

    def _take(self) -> None:
        data, self._unread = self._unread, b""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_UNREAD or len(self.frames) > MOST_FRAMES:
            self.transport.abort()  # of answers to pings, and of a message in fragments
