"""A call whose answer all have who asked before it began."""

from __future__ import annotations

import asyncio

import pytest

from nospoon.runtime.shared import Shared


class Counting:
    """Answers with the number of the call, once it may."""

    def __init__(self) -> None:
        self.calls, self.may, self.began = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self) -> int:
        self.calls += 1
        number = self.calls
        self.began.set()
        await self.may.wait()
        return number


async def test_who_asks_at_one_moment_has_one_answer() -> None:
    call = Counting()
    call.may.set()
    shared = Shared(call)
    assert await asyncio.gather(*(shared() for _ in range(5))) == [1] * 5
    assert await shared() == 2, "another moment"


async def test_who_asks_while_a_call_is_made_has_the_next_one() -> None:
    call = Counting()
    shared = Shared(call)
    first = asyncio.create_task(shared())  # noqa: TID251  (the test's own)
    await call.began.wait()
    later = [asyncio.create_task(shared()) for _ in range(3)]  # noqa: TID251
    await asyncio.sleep(0)
    call.may.set()
    assert (await first, *await asyncio.gather(*later)) == (1, 2, 2, 2)
    assert shared._made is None, "no answer is kept for nobody"


async def test_who_leaves_takes_no_answer_from_others() -> None:
    call = Counting()
    shared = Shared(call)
    first = asyncio.create_task(shared())  # noqa: TID251
    await call.began.wait()
    second = asyncio.create_task(shared())  # noqa: TID251
    await asyncio.sleep(0)
    first.cancel()
    call.may.set()
    assert await second == 2


async def test_all_have_the_error_and_the_next_one_asks_again() -> None:
    async def fails() -> int:
        raise OSError("away")

    shared = Shared(fails)
    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [str(each) for each in found] == ["away", "away"]
    with pytest.raises(OSError, match="away"):
        await shared()
