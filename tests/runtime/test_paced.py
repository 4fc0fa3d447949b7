"""Long loops give the event loop back when their time is over, and keep their order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from itertools import count

import pytest

from nospoon.runtime.paced import SECONDS, paced
from nospoon.runtime.slices import Slice, Slices


async def test_others_have_their_turn_whenever_the_time_is_over() -> None:
    ticks = count()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())  # noqa: TID251  (ends with this test)
    slices = Slices(seconds=SECONDS, now=lambda: next(ticks) * SECONDS / 10)
    found = [each async for each in paced(range(100), slices=slices)]
    beside.cancel()
    assert found == list(range(100))
    assert turns >= 100 // 10 - 1


async def test_what_is_short_takes_one_turn() -> None:
    before = asyncio.get_running_loop()
    came: list[str] = []
    before.call_soon(came.append, "other")
    assert [each async for each in paced("abc", slices=Slices(now=lambda: 0.0))] == list("abc")
    assert came == []


async def test_all_have_one_slice_of_a_turn_together() -> None:
    """A member may have dozens of operations, each with a loop of its own."""
    clock, loop, turns, done = [0.0], asyncio.get_running_loop(), [0], Counter[int]()

    def next_turn() -> None:
        turns[0] += 1
        loop.call_soon(next_turn)

    async def work() -> int:
        found = 0
        async for _ in paced(range(20), slices=slices):
            clock[0] += SECONDS / 4
            done[turns[0]] += 1
            found += 1
        return found

    slices = Slices(seconds=SECONDS, now=lambda: clock[0])
    next_turn()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work()) for _ in range(12)]
    assert [each.result() for each in tasks] == [20] * 12
    assert max(done.values()) <= 5


async def test_loops_share_unless_they_say_otherwise() -> None:
    begun = list[Slice]()
    with pytest.MonkeyPatch.context() as patched:
        made = Slices.begin

        def noted(self: Slices, key: Hashable = None) -> Slice:
            begun.append(made(self, key))
            return begun[-1]

        patched.setattr(Slices, "begin", noted)
        for _ in range(2):
            assert [each async for each in paced("ab")] == ["a", "b"]
    assert begun[0]._of is begun[1]._of
