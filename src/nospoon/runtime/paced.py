"""Long loops of the event loop's own that give everyone else a turn every few milliseconds.

What reads or changes the daemon's state cannot go to a thread; what is pure can, and should.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from nospoon.runtime import clock

T = TypeVar("T")
SECONDS = 0.003


async def paced(items: Iterable[T], *, now: clock.Clock = clock.monotonic) -> AsyncIterator[T]:
    """Each of them. Others run in between: hand over a copy of what they may change."""
    end = now() + SECONDS
    for item in items:
        if now() >= end:
            await asyncio.sleep(0)
            end = now() + SECONDS
        yield item
