"""Long loops give the event loop back when their time is over, and keep their order."""

from __future__ import annotations

import asyncio
from itertools import count

from nospoon.runtime.paced import SECONDS, paced


async def test_others_have_their_turn_whenever_the_time_is_over() -> None:
    ticks = count()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())  # noqa: TID251  (ends with this test)
    found = [each async for each in paced(range(100), now=lambda: next(ticks) * SECONDS / 10)]
    beside.cancel()
    assert found == list(range(100))
    assert turns >= 100 // 10 - 1


async def test_what_is_short_takes_one_turn() -> None:
    before = asyncio.get_running_loop()
    came: list[str] = []
    before.call_soon(came.append, "other")
    assert [each async for each in paced("abc", now=lambda: 0.0)] == list("abc")
    assert came == []
