"""Time. Everything else gets `now` handed in."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]


def unix() -> float:
    """Unix seconds: for what is stored and shown."""
    return time.time()  # noqa: TID251  (the one place)


def monotonic() -> float:
    """Seconds that never go back: for deadlines."""
    return time.monotonic()
