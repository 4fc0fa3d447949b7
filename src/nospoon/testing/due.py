"""The event loop's clock, put forward by a test: what is due by then happens at once."""

from __future__ import annotations

import asyncio


def forward(seconds: float) -> None:
    """From now on, the clock of the running loop is that much ahead."""
    loop = asyncio.get_running_loop()
    now, ahead = type(loop).time, vars(loop).get("ahead", 0.0) + seconds
    setattr(loop, "ahead", ahead)  # noqa: B010  (loops have no such attribute)
    setattr(loop, "time", lambda: now(loop) + ahead)  # noqa: B010  (mypy lets no method be replaced)
