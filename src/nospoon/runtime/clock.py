"""Time. Everything else gets `now` handed in."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def unix() -> float:
    """Unix seconds: for what is stored and shown."""
    return time.time()  # noqa: TID251  (the one place)


def steady() -> float:
    """Seconds that never go back, nor stand still while the machine sleeps (clock_gettime(2))."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def monotonic() -> float:
    """Seconds that never go back: for deadlines."""
    return time.monotonic()
