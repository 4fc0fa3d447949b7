"""Long work on the event loop, cut into slices by time: one slice in each turn of the loop.

However many pieces of work there are at a time, what comes from others waits for one slice of one
of them at most. Work that has just begun shares what is left of this turn's slice, while no one
waits: of short work, much fits into one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from nospoon.runtime import clock

SECONDS = 0.004
"""Of a slice."""


class Slices:
    """Hands out slices: to whom they are for in turn, to each in the order of asking."""

    def __init__(self, *, seconds: float = SECONDS, now: clock.Clock = clock.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._end: float | None = None
        """Of the slice of this turn of the loop; None: no one has begun it."""

    def begin(self, key: Hashable = None) -> Slice:
        """For one piece of work, which gets its first slice by `rest`. `key`: whom it is for."""
        return Slice(self, key)

    def is_over(self, end: float) -> bool:
        return self._now() >= end

    def shared(self) -> float | None:
        """The end of this turn's slice, where something is left of it and no one waits."""
        if self._waiting:
            return None
        end = self._begun() if self._end is None else self._end
        return None if self.is_over(end) else end

    async def turn(self, key: Hashable) -> float:
        """Wait for a slice. Returns its end."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._next)
        self._waiting.setdefault(key, deque()).append(mine)
        await mine
        return self._begun()

    def _begun(self) -> float:
        """The slice of this turn begins; it is over when the next turn begins, too."""
        self._end = end = self._now() + self._seconds
        asyncio.get_running_loop().call_soon(self._turned)
        return end

    def _turned(self) -> None:
        self._end = None

    def _next(self) -> None:
        """Wakes one; those after it are for later turns of the loop."""
        while self._waiting:
            key = next(iter(self._waiting))
            queue = self._waiting.pop(key)
            first = queue.popleft()
            if queue:
                self._waiting[key] = queue  # behind all others
            if not first.done():  # else it was cancelled
                first.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


class Slice:
    """The current slice of one piece of work."""

    __slots__ = ("_end", "_key", "_of")

    def __init__(self, of: Slices, key: Hashable) -> None:
        self._of, self._key, self._end = of, key, float("-inf")

    def share(self) -> bool:
        """Begin in what is left of this turn's slice. Returns whether that can be."""
        end = self._of.shared()
        if end is None:
            return False
        self._end = end
        return True

    @property
    def is_over(self) -> bool:
        return self._of.is_over(self._end)

    async def rest(self) -> bool:
        """Go on, or wait for the next slice where this one is over. Returns whether it waited."""
        if not self.is_over:
            return False
        self._end = await self._of.turn(self._key)
        return True
