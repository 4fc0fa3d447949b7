"""How fast a download has to be: what a slow server does must end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from nospoon.control.content.fetch import Transfer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """`deadline`: seconds in which it must be whole. `rate`: bytes a second, over each `window`
    (seconds).
    """

    deadline: float
    window: float
    rate: int


async def watch(future: asyncio.Future[T], transfer: Transfer, pace: Pace) -> None:
    """Until the thread has ended; a transfer that takes too long is stopped."""
    got, loop = 0, asyncio.get_running_loop()
    end = loop.time() + pace.deadline
    while not future.done():
        await asyncio.wait({future}, timeout=min(pace.window, max(0.0, end - loop.time())))
        if future.done():
            break
        if loop.time() >= end:
            transfer.stop(f"it took longer than {pace.deadline:.0f} s")
            await asyncio.wait({future})
        elif transfer.got - got < pace.rate * pace.window:
            transfer.stop(f"it was slower than {pace.rate} bytes a second for {pace.window:.0f} s")
        got = transfer.got
