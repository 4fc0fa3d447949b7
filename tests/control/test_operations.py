"""Operations end whatever happens to them: a cluster is never held up by one that is over."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nospoon.control.operations.operations import AT_ONCE, Ended, Operations, Running
from nospoon.errors import Conflict
from nospoon.runtime.tasks import Tasks
from nospoon.store.database import Database
from nospoon.store.operations import OperationState

CLUSTER = uuid4()


class SlowAtTheEnd(Database):
    """Ends of operations are stored when `go` is set."""

    go: threading.Event
    storing: asyncio.Event

    async def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "_save" and args[2] is not None:
            self.storing.set()
            await asyncio.to_thread(self.go.wait, 20)
        return await super().call(function, *args, **kwargs)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SlowAtTheEnd]:
    opened = SlowAtTheEnd.open(f"sqlite:///{tmp_path}/store.db")
    assert isinstance(opened, SlowAtTheEnd)
    opened.go, opened.storing = threading.Event(), asyncio.Event()
    yield opened
    opened.close()


async def nothing(running: Running) -> Ended:
    del running
    return Ended(OperationState.DONE, "it was nothing")


async def test_cancelling_what_is_over_changes_nothing(database: SlowAtTheEnd) -> None:
    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=nothing)
        following = tasks.start(_all(operations.follow(row.id)), name="follow")
        await database.storing.wait()
        cancelling = tasks.start(operations.cancel(row.id), name="cancel")
        for _ in range(10):  # it asks nothing of a thread before it waits
            await asyncio.sleep(0)
        assert not cancelling.done()
        assert operations.current(CLUSTER), "its end is not stored yet"
        database.go.set()
        await cancelling
        assert (await following)[-1]["message"] == "it was nothing"
        operations.require_free(CLUSTER)
        assert (await operations.get(row.id)).state is OperationState.DONE


async def test_what_has_ended_leaves_nothing_for_the_garbage_collector(
    database: SlowAtTheEnd,
) -> None:
    """Ten thousand requests left 600,000 objects, and no BMC answered while they were looked at."""
    tasks_of = list[weakref.ref[asyncio.Task[Any]]]()

    async def work(running: Running) -> Ended:
        assert running.task is not None
        tasks_of.append(weakref.ref(running.task))
        return Ended(OperationState.DONE, "it was nothing")

    database.go.set()
    gc.disable()
    try:
        async with Tasks("test") as tasks:
            over = asyncio.Event()
            operations = Operations(database, tasks, lambda: 0.0, after=over.set)
            await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=work)
            await over.wait()
        await asyncio.sleep(0)  # the loop has called what it had for its end
        assert tasks_of[0]() is None
    finally:
        gc.enable()


async def test_what_is_cancelled_before_its_first_step_holds_up_nobody(
    database: SlowAtTheEnd,
) -> None:
    database.go.set()
    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=nothing)
        await operations.cancel(row.id)
        operations.require_free(CLUSTER)
        assert (await _all(operations.follow(row.id)))[-1]["state"] != OperationState.RUNNING


async def test_another_user_of_the_same_id_is_told_nothing_of_what_is_under_way(
    database: SlowAtTheEnd,
) -> None:
    """Two may bring up clusters of one new id at the same moment."""
    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start(
            "up", cluster_id=CLUSTER, cluster="mine", owner=7, work=nothing
        )
        for uid, shown in ((7, True), (8, False)):
            with pytest.raises(Conflict) as refused:
                await operations.start(
                    "up", cluster_id=CLUSTER, cluster="c", owner=uid, work=nothing
                )
            assert (str(row.id) in str(refused.value), "mine" in str(refused.value)) == (shown,) * 2
        database.go.set()


async def test_events_are_replayed_some_at_a_time(database: SlowAtTheEnd) -> None:
    database.go.set()

    async def talk(running: Running) -> Ended:
        for number in range(2 * AT_ONCE + 1):
            running.note(str(number))
        return Ended(OperationState.DONE, "said")

    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=talk)
        live = [some async for some in operations.follow(row.id)]
        kept = [some async for some in operations.follow(row.id)]
        late = await _all(operations.follow(row.id, after=2 * AT_ONCE))
    assert [len(each) for each in live] == [AT_ONCE, AT_ONCE, 1, 1]
    assert kept == live
    assert [each["message"] for each in late] == [str(2 * AT_ONCE), "said"]


async def test_operations_undo_what_they_do_before_the_daemon_ends(
    database: SlowAtTheEnd,
) -> None:
    database.go.set()
    undone = asyncio.Event()

    async def work(running: Running) -> Ended:
        del running
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(bool)  # it is not over at once
            undone.set()
        raise AssertionError("it was cancelled")

    async def hang(running: Running) -> Ended:
        del running
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()
        raise AssertionError("it was cancelled")

    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=work)
        async with asyncio.timeout(20):
            await operations.end()
        assert undone.is_set()
        assert (await operations.get(row.id)).state is OperationState.CANCELLED
        await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=hang)
        async with asyncio.timeout(20):
            await operations.end(patience=0.1)  # what hangs is cancelled again with all else
    await operations.end()


async def test_calls_to_hosts_that_hang_are_broken_off_when_the_daemon_ends(
    database: SlowAtTheEnd,
) -> None:
    """A cloud that answers no more would keep the daemon for minutes."""
    database.go.set()

    async def hears_out(running: Running) -> Ended:
        call = running.calls.start(asyncio.Event().wait(), name="call")
        try:
            await asyncio.shield(call)
        finally:
            await asyncio.wait([call])
        raise AssertionError("it was cancelled")

    async with Tasks("test") as tasks:
        operations = Operations(database, tasks, lambda: 0.0, after=lambda: None)
        row = await operations.start("up", cluster_id=CLUSTER, cluster="c", owner=0, work=hears_out)
        async with asyncio.timeout(60):
            await operations.end(patience=0.1)
        assert (await operations.get(row.id)).state is OperationState.CANCELLED


async def _all(events: AsyncIterator[list[Any]]) -> list[Any]:
    return [event async for some in events for event in some]
