"""Long work on the event loop, cut into slices by time: one slice in each turn of the loop.

However many pieces of work there are at a time, what comes from others waits for one slice of one
of them at most.
"""

from __future__ import annotations

import asyncio
from collections import deque

from nospoon.runtime import clock

SECONDS = 0.004
"""Of a slice."""


class Slices:
    """Hands out slices, in the order in which they were asked for."""

    def __init__(self, *, seconds: float = SECONDS, now: clock.Clock = clock.monotonic) -> None:
        self._seconds, self._now = seconds, now
        self._waiting: deque[asyncio.Future[None]] = deque()

    def begin(self) -> Slice:
        """For one piece of work, which gets its first slice by `rest`."""
        return Slice(self)

    @property
    def end(self) -> float:
        """When a slice that begins now is over."""
        return self._now() + self._seconds

    def is_over(self, end: float) -> bool:
        return self._now() >= end

    async def turn(self) -> None:
        """Wait for one."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            loop.call_soon(self._next)
        await mine

    def _next(self) -> None:
        """Wakes one; those after it are for later turns of the loop."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else it was cancelled
                first.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)


class Slice:
    """The current slice of one piece of work."""

    __slots__ = ("_end", "_of")

    def __init__(self, of: Slices) -> None:
        self._of, self._end = of, float("-inf")

    async def rest(self) -> bool:
        """Go on, or wait for the next slice where this one is over. Returns whether it waited."""
        if not self._of.is_over(self._end):
            return False
        await self._of.turn()
        self._end = self._of.end
        return True
