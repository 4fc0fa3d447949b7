"""What clients sent, worked on a few milliseconds in each turn of the loop.

What takes most work for each byte, such as chunks of one byte or TLS's changes of keys, costs the
daemon more than who sends it, and anyone may send it on hundreds of connections at one moment.
A step is what one connection may have worked on without a pause. Steps of one turn of the loop have
`SECONDS` together; further ones wait, sources take turns, and so do the connections of each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable

from nospoon.runtime import clock

SECONDS = 0.004
"""Of steps in one turn of the loop; the last one that begins in it may take longer."""
PIECE = 4096
"""Bytes of one step: of the costliest kinds they take 2 ms."""
READ = 16 << 10
"""Bytes that are taken from a socket at a time. They may wait, for every connection."""

Step = Callable[[], bool]
"""Returns whether there is more to do."""


class Received:
    """Steps of the connections of some listeners."""

    def __init__(self, *, now: clock.Clock = clock.monotonic) -> None:
        self._now = now
        self._waiting: dict[Hashable, deque[Step]] = {}
        self._end: float | None = None
        """Of the steps of this turn; None: none has begun in it."""

    def may_begin(self) -> bool:
        """Whether a step may be taken now: something is left of this turn, and no one waits."""
        if self._waiting:
            return False
        if self._end is None:
            self._begin()
            return True
        return self._now() < self._end

    def put(self, source: Hashable, step: Step) -> None:
        """To be called in a later turn, again and again until it has no more to do."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)
        self._waiting.setdefault(source, deque()).append(step)

    def _begin(self) -> float:
        self._end = end = self._now() + SECONDS
        asyncio.get_running_loop().call_soon(self._over)
        return end

    def _over(self) -> None:
        self._end = None

    def _turn(self) -> None:
        end = self._begin()
        try:
            while self._waiting:
                source = next(iter(self._waiting))
                queue = self._waiting.pop(source)
                step = queue.popleft()
                if queue:
                    self._waiting[source] = queue  # behind all others
                if step():
                    self._waiting.setdefault(source, deque()).append(step)
                if self._now() >= end:
                    break
        finally:  # whatever one step raises, which the loop logs, the others go on
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._turn)
