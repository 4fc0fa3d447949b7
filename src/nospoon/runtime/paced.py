"""Long loops of the event loop's own that give everyone else a turn every few milliseconds.

What reads or changes the daemon's state cannot go to a thread; what is pure can, and should. All
such loops have one slice of each turn together: a member may have dozens of operations under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar
from weakref import WeakKeyDictionary

from nospoon.runtime.slices import Slices

T = TypeVar("T")
SECONDS = 0.003
_SLICES: WeakKeyDictionary[asyncio.AbstractEventLoop, Slices] = WeakKeyDictionary()


async def paced(items: Iterable[T], *, slices: Slices | None = None) -> AsyncIterator[T]:
    """Each of them. Others run in between: hand over a copy of what they may change. `slices`: None
    for those that all share.
    """
    work = (slices or _shared()).begin(object())
    work.share()
    for item in items:
        if work.is_over:
            await work.rest()
        yield item


def _shared() -> Slices:
    loop = asyncio.get_running_loop()
    if loop not in _SLICES:
        _SLICES[loop] = Slices(seconds=SECONDS)
    return _SLICES[loop]
