"""Snapshots of many nodes leave everyone else their turns."""

from __future__ import annotations

import asyncio

import pytest

from nospoon.control.operations.snapshots import AT_ONCE
from nospoon.runtime.few import few_at_once

NODES = 400


async def test_what_answers_at_once_is_asked_of_few_in_each_turn_of_the_loop() -> None:
    """Eight thousand simulated nodes were paused, kept and looked at in one turn each: 0.5 s."""
    turns, asked = 0, list[int]()

    async def count() -> None:
        nonlocal turns
        while len(asked) < NODES:
            turns += 1
            await asyncio.sleep(0)

    async def ask(item: int) -> int:
        asked.append(turns)
        return -item

    counted = asyncio.create_task(count())  # noqa: TID251  (it ends with the test)
    assert await few_at_once(range(NODES), ask, at_once=AT_ONCE) == [-n for n in range(NODES)]
    await counted
    assert max(asked.count(turn) for turn in set(asked)) <= AT_ONCE


async def test_after_an_error_no_further_ones_are_asked() -> None:
    asked = list[int]()

    async def ask(item: int) -> int:
        asked.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match="0"):
        await few_at_once(range(NODES), ask, at_once=AT_ONCE)
    await asyncio.sleep(0)
    assert len(asked) <= AT_ONCE
    assert await few_at_once((), ask, at_once=AT_ONCE) == []
