"""Many things asked of others, few of them at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


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
