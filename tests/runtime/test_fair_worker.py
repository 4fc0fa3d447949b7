"""Work of strangers in turns: of groups, and of sources in each group."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nospoon.errors import Conflict
from nospoon.runtime.fair_worker import MOST_OF_GROUP, MOST_OF_SOURCE, FairWorker


class Held:
    """A worker whose thread is busy until `gate` is set; `done`: calls as they ended."""

    def __init__(self) -> None:
        self.worker, self.gate, self.done = FairWorker("test"), threading.Event(), list[str]()
        self.tasks = [
            asyncio.get_running_loop().create_task(self._run("", "first", "x", self.gate.wait))
        ]

    async def _run(self, group: str, source: str, key: str, work: object = None) -> None:
        call = work if callable(work) else lambda: None
        await self.worker.run(call, group=group, source=source, key=key)
        self.done.append(key)

    async def ask(self, group: str, source: str, key: str) -> asyncio.Task[None]:
        """It waits, or was refused, when this returns."""
        task = asyncio.get_running_loop().create_task(self._run(group, source, key))
        self.tasks.append(task)
        await asyncio.sleep(0)
        return task


@asynccontextmanager
async def held() -> AsyncIterator[Held]:
    one = Held()
    await asyncio.sleep(0)
    try:
        yield one
    finally:
        one.gate.set()
        await asyncio.gather(*one.tasks, return_exceptions=True)
        one.worker.close()


async def test_groups_take_turns_and_sources_in_each() -> None:
    async with held() as one:
        for group, source, key in (
            ("a", "s", "a1"), ("a", "s", "a2"), ("a", "s", "a3"), ("a", "t", "a4"),
            ("b", "s", "b1"), ("b", "s", "b2"),
        ):  # fmt: skip
            await one.ask(group, source, key)
        one.gate.set()
        await asyncio.gather(*one.tasks)
        assert one.done == ["x", "a1", "b1", "a4", "b2", "a2", "a3"]


async def test_who_comes_while_a_group_is_worked_on_is_next() -> None:
    async with held() as one:
        await one.ask("", "first", "y")
        await one.ask("other", "s", "z")
        one.gate.set()
        await asyncio.gather(*one.tasks)
        assert one.done == ["x", "z", "y"]


async def test_calls_with_one_key_are_one() -> None:
    async with held() as one:
        calls = list[int]()
        for source in "ab":
            one.tasks.append(
                asyncio.get_running_loop().create_task(
                    one._run("a", source, "k", lambda: calls.append(1))
                )
            )
        one.gate.set()
        await asyncio.gather(*one.tasks)
        assert calls == [1]
        assert one.done == ["x", "k", "k"]


async def test_a_source_has_a_bounded_number_of_calls_waiting() -> None:
    async with held() as one:
        for number in range(MOST_OF_SOURCE):
            await one.ask("a", "s", f"{number}")
        with pytest.raises(Conflict, match="other requests are under way"):
            await (await one.ask("a", "s", "more"))
        other = await one.ask("a", "t", "other")
        one.gate.set()
        await other


async def test_in_a_full_group_the_source_with_most_calls_gives_way() -> None:
    async with held() as one:
        for number in range(MOST_OF_GROUP):
            await one.ask("a", f"s{number // MOST_OF_SOURCE}", f"{number}")
        fresh = await one.ask("a", "fresh", "fresh")
        with pytest.raises(Conflict):
            await one.tasks[MOST_OF_SOURCE]  # the last of the first source
        assert not any(each.done() for each in one.tasks[1:MOST_OF_SOURCE])
        one.gate.set()
        await fresh


async def test_a_worker_that_is_closed_refuses_what_waits() -> None:
    async with held() as one:
        waiting = await one.ask("a", "s", "1")
        one.worker.close()
        with pytest.raises(Conflict):
            await waiting


async def test_what_a_call_raises_its_callers_get() -> None:
    async with held() as one:
        one.gate.set()

        def broken() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await one.worker.run(broken, group="a", source="s", key="k")
