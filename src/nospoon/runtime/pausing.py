"""Long work in a thread that lets go of the interpreter often, as encryption and files do.

A thread that wants the interpreter asks for it once it has waited `sys.getswitchinterval` in vain,
and begins to wait again whenever the other has let go of it (CPython, Python/ceval_gil.h,
`take_gil`). Where that one takes it back within microseconds, the event loop wakes too late each
time and never gets to ask: 10,000 passwords that were encrypted kept it for a tenth of a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
SLICE, PAUSE = 0.001, 0.0001
"""Seconds of work, and of the pause after it: twice what it takes a thread to wake."""


def pausing(
    items: Iterable[T],
    now: Callable[[], float] = time.perf_counter,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[T]:
    """The items, with a pause between two of them after each slice of work."""
    end = now() + SLICE
    for item in items:
        if now() > end:
            pause(PAUSE)
            end = now() + SLICE
        yield item
