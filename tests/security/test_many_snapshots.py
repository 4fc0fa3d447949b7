"""Snapshots of many nodes leave everyone else their turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, event
from tests.security.asked import OWNER, Asked, a_daemon

from nospoon.control.operations.snapshots import AT_ONCE
from nospoon.runtime.few import few_at_once
from nospoon.runtime.tasks import Tasks

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


FILE = "cluster: c\nhosts: {{sim: simulated}}\nnodes: [{{name: 'n{{n}}', count: {0}}}]\n"
LIST = "/v1/clusters/c/snapshots"
REQUESTS = 5


@asynccontextmanager
async def snapshotted(directory: Path) -> AsyncIterator[Asked]:
    """A daemon with a user's cluster of two nodes and its snapshot."""
    async with a_daemon(directory) as asked:
        await asked.up(OWNER, FILE.format(2))
        begun = await asked.ask(OWNER, "POST", LIST, {"name": "s"})
        await asked.finished(OWNER, begun.json["id"])
        yield asked


@asynccontextmanager
async def held(call: Callable[..., Coroutine[Any, Any, Any]]) -> AsyncIterator[None]:
    """One thread of the store has something to do all the time."""
    begun, over = Event(), Event()

    def wait(_: Connection) -> None:
        begun.set()
        over.wait(60)

    async with Tasks("test") as tasks:
        tasks.start(call(wait), name="busy")
        try:
            await asyncio.to_thread(begun.wait, 60)
            yield
        finally:
            over.set()


async def test_changes_of_others_wait_for_no_look_at_snapshots(tmp_path: Path) -> None:
    """A hundred of 20,000 nodes were read for each list, where changes of BMCs are stored:
    other users' changes took seconds, or failed.
    """
    async with snapshotted(tmp_path) as asked, held(asked.daemon.parts.database.call):
        async with asyncio.timeout(20):
            (row,) = (await asked.ask(OWNER, "GET", LIST)).json
            assert (row["nodes"], row["on"], row["state"]) == (2, 0, "complete")
            assert (await asked.ask(OWNER, "POST", LIST, {"name": "s"})).status == 409
            gone = await asked.ask(OWNER, "DELETE", f"{LIST}/none")
            assert (gone.status, "it has: s" in gone.json["error"]["message"]) == (404, True)


async def test_a_plan_reads_one_snapshot_at_a_time_and_none_where_it_takes_nothing(
    tmp_path: Path,
) -> None:
    """It read all of them, with all their nodes, at once."""
    async with snapshotted(tmp_path) as asked:
        read = list[str]()
        engine = asked.daemon.parts.database._reader
        event.listen(engine, "before_cursor_execute", lambda *given: read.append(given[2]))

        async def notes(nodes: int) -> list[str]:
            read.clear()
            body = {"file": "c.yaml", "text": FILE.format(nodes)}
            answer = await asked.ask(OWNER, "POST", "/v1/plan", body)
            found: list[str] = answer.json["plan"]["notes"]
            return found

        def with_nodes() -> list[str]:
            return [each for each in read if "snapshots.members" in each]

        assert await notes(3) == []
        assert with_nodes() == []
        assert await notes(1) == ["snapshot s is lost: it cannot be restored without n1"]
        (one,) = with_nodes()
        assert "snapshots.name =" in one


@pytest.mark.parametrize(
    ("method", "path", "kind"), [("GET", LIST, "list"), ("POST", f"{LIST}/s/restore", "begin")]
)
async def test_one_look_at_snapshots_of_a_user_is_in_the_store_at_a_time(
    tmp_path: Path, method: str, path: str, kind: str
) -> None:
    """Each has what is known of thousands of nodes in memory."""
    async with snapshotted(tmp_path) as asked, Tasks("test") as tasks:
        database = asked.daemon.parts.database
        async with held(database.read), held(database.call):
            turn = asked.daemon.control.snapshots._turns.of(kind, str(OWNER))
            for number in range(REQUESTS):
                tasks.start(asked.ask(OWNER, method, path), name=f"{number}")
            async with asyncio.timeout(60):
                while len(turn._waiters or ()) < REQUESTS - 1:  # noqa: ASYNC110  (no one says it)
                    await asyncio.sleep(0.01)
            assert database._reads.qsize() + database._calls.qsize() == 1
