"""Many things asked of others, few of them at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
BEGUN = 32
"""Calls that are begun in one turn of the loop."""


async def few_at_once(
    items: Sequence[T], ask: Callable[[T], Awaitable[R]], *, at_once: int
) -> list[R]:
    """The answer to each in this order, `at_once` asked at a time. As many in each turn of the loop
    at most: an answer that is there at once leaves no turn to others.
    """
    answers: dict[int, R] = {}
    left = iter(enumerate(items))

    async def some() -> None:
        try:
            for number, item in left:
                answers[number] = await ask(item)
                await asyncio.sleep(0)
        except BaseException:
            deque(left, maxlen=0)  # no further ones are asked
            raise

    await asyncio.gather(*(some() for _ in range(min(at_once, len(items)))))
    return [answers[number] for number in range(len(items))]


async def all_begun(items: Iterable[T], ask: Callable[[T], Awaitable[R]]) -> list[R | Exception]:
    """The answer to each in this order, or what it raised: none waits for another, but few begin in
    one turn of the loop. A member's file names a thousand hosts, each of which has ten drivers.
    """

    async def answer(item: T) -> R | Exception:
        try:
            return await ask(item)
        except Exception as error:  # noqa: BLE001  (it is theirs who asked)
            return error

    asked = []
    async with asyncio.TaskGroup() as group:
        for number, item in enumerate(items, 1):
            asked.append(group.create_task(answer(item)))
            if not number % BEGUN:
                await asyncio.sleep(0)
    return [each.result() for each in asked]
