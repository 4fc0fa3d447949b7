"""What servers that others choose send, as `http.client` reads it in threads: what costs more than
it has bytes, such as chunks of one byte or interim answers without end, is read slowly.

Threads take turns with the event loop, each for up to 5 ms (`sys.getswitchinterval`), and dozens at
once would leave it none for a tenth of a second.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable

from typing_extensions import Buffer, override

RATE = 32 << 20
"""Bytes for a second of a processor. A file with a digest takes a third of that time on a slow
machine, chunks of one byte take fifty times as much.
"""
SLICE, REST = 0.002, 0.01
"""Seconds of a processor that an answer may take beyond that, and for which it rests then. One
answer rests at a time; so all that are costly have a fifth or so of a processor together.
"""
PIECE = 2048
"""Bytes of which lines are read: of the costliest kinds they take 3 ms."""
_RESTING = threading.Lock()


def rest() -> None:
    """After all that came before."""
    with _RESTING:
        time.sleep(REST)


class Cost:
    """Of one answer, which one thread reads. `now`: seconds of a processor that it has taken."""

    def __init__(
        self, now: Callable[[], float] = time.thread_time, rest: Callable[[], None] = rest
    ) -> None:
        self._now, self._rest = now, rest
        self._began, self._size = now(), 0

    def pay(self) -> None:
        """Before the next piece, for those that were read."""
        if self._now() - self._began > self._size / RATE + SLICE:
            self._rest()
            self._began, self._size = self._now(), 0

    def add(self, size: int) -> None:
        self._size += size


class Reading(socket.SocketIO):
    def __init__(self, line: socket.socket, cost: Cost | None = None) -> None:
        super().__init__(line, "r")
        self._cost = cost or Cost()

    @override
    def readinto(self, buffer: Buffer) -> int | None:
        self._cost.pay()
        size = super().readinto(buffer)
        self._cost.add(size or 0)
        return size


class Line:
    """What `http.client.HTTPResponse` has of a socket. `read`: what reads from it."""

    def __init__(
        self, line: socket.socket, read: Callable[[socket.socket], Reading] = Reading
    ) -> None:
        self._line, self._read = line, read

    def makefile(self, _mode: str) -> io.BufferedReader:
        """As `socket.makefile`, which counts who still reads."""
        self._line._io_refs += 1  # type: ignore[attr-defined]  # noqa: SLF001
        return io.BufferedReader(self._read(self._line), PIECE)
