"""Handshakes of TLS: each takes a processor for a millisecond or more, and strangers may begin
hundreds at a time. Those of one turn of the loop have `SECONDS` together; the others wait.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from nospoon.runtime import clock
from nospoon.runtime.received import PIECE, Received

SECONDS = 0.004
"""Of handshakes in one turn of the loop; the last one that begins in it may take longer."""


def forget(transport: Any) -> None:
    """Of a connection that is lost. asyncio's transport has a method of its own as an attribute:
    it would be garbage that only a collection finds, and clients may leave thousands a second.
    """
    if getattr(transport, "_read_ready_cb", None) is not None:
        transport._read_ready_cb = None  # noqa: SLF001


AsAsyncio: Any = sslproto.SSLProtocol
"""typeshed's is that of Python 3.10."""
SHAKING = sslproto.SSLProtocolState.DO_HANDSHAKE
_OPEN = sslproto.SSLProtocolState.WRAPPED


class Handshakes:
    """Steps of handshakes: sources take turns, each in the order in which its bytes came."""

    def __init__(self, *, now: clock.Clock = clock.monotonic) -> None:
        self._now = now
        self._waiting: dict[Hashable, deque[Callable[[], None]]] = {}
        self._has_turn = False

    def put(self, source: Hashable, step: Callable[[], None]) -> None:
        """To be called in a later turn."""
        self._waiting.setdefault(source, deque()).append(step)
        if not self._has_turn:
            self._has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        end = self._now() + SECONDS
        try:
            while self._waiting:
                source = next(iter(self._waiting))
                queue = self._waiting.pop(source)
                step = queue.popleft()
                if queue:
                    self._waiting[source] = queue  # behind all others
                step()
                if self._now() >= end:
                    break
        finally:  # as of what is received
            self._has_turn = bool(self._waiting)
            if self._has_turn:
                asyncio.get_running_loop().call_soon(self._turn)


class Tls(AsAsyncio):  # type: ignore[misc]  # a base without a type
    """asyncio's own takes 256 KiB for each connection before its handshake begins: 256 MiB for as
    many strangers as a listener admits. And it works on bytes as soon as they come, with all that
    came in one turn: steps of handshakes, records of one byte, and changes of keys (RFC 8446
    §4.6.3), of which OpenSSL takes any number if data stands between.
    """

    max_size = PIECE

    def __init__(
        self,
        handshakes: Handshakes,
        received: Received,
        source: Hashable,
        *args: object,
        **more: object,
    ) -> None:
        super().__init__(*args, **more)
        self._handshakes, self._received, self._source = handshakes, received, source
        self._waits = False
        # while its application reads nothing, no more may come together than one step takes
        self._set_read_buffer_limits(PIECE, 0)

    def connection_lost(self, exc: Exception | None) -> None:
        transport = self._transport
        super().connection_lost(exc)
        forget(transport)

    def _do_handshake(self) -> None:
        if not self._waits:
            self._wait()
            self._handshakes.put(self._source, self._shake)

    def _shake(self) -> None:
        if self._goes_on(SHAKING):
            super()._do_handshake()

    def _do_read(self) -> None:
        if self._waits:
            return
        if self._state is not _OPEN or self._received.may_begin():
            super()._do_read()
            return
        self._wait()
        self._received.put(self._source, self._read)

    def _read(self) -> bool:
        if self._goes_on(_OPEN):
            super()._do_read()
        return False

    def _wait(self) -> None:
        self._waits = True
        self._transport.pause_reading()  # what comes meanwhile stays in the socket

    def _goes_on(self, state: object) -> bool:
        """It need not wait any more; whether its state is still this one."""
        self._waits = False
        ended = self._transport is None or self._transport.is_closing()
        if ended or self._state is not state:
            return False
        if not self._ssl_reading_paused:
            self._transport.resume_reading()
        return True
