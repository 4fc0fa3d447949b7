"""Nobody makes others' operations forgotten by having many, nor fills the store by results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import ItemsView
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, event, func, select
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.control.operations.operations import Ended, Operations, Running
from nospoon.model.resources.keys import Key, Kind
from nospoon.runtime import paced
from nospoon.runtime.clock import unix
from nospoon.runtime.tasks import Tasks
from nospoon.store import operations
from nospoon.store.database import Database
from nospoon.store.encoded import Encoded
from nospoon.store.operations import KEPT_OPERATIONS, OperationRow, OperationState


def of(uid: int, created: float) -> OperationRow:
    return OperationRow(uuid4(), "up", uuid4(), "c", uid, OperationState.DONE, created)


def ended(connection: Connection, row: OperationRow) -> None:
    operations.begin(connection, row)
    operations.finish(connection, row.id, state=OperationState.DONE, message="", now=row.created)


async def test_a_user_s_operations_are_forgotten_by_that_user_s_own_only(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    victim = of(OWNER, 0.0)
    flood = [of(OTHER, float(number)) for number in range(1, KEPT_OPERATIONS + 5)]

    def begin(connection: Connection) -> None:
        for row in (victim, *flood):
            ended(connection, row)
            while operations.forget_some(connection, row.owner):
                pass

    try:
        await database.call(begin)
        assert await database.call(operations.get, victim.id) is not None
        kept = await database.call(operations.all_operations, owner=OTHER)
    finally:
        database.close()
    assert len(kept) == KEPT_OPERATIONS
    assert kept[0].id == flood[-1].id


async def test_results_of_a_user_are_bounded_and_in_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of `verify` of 20,000 nodes one has 50 MB, and a user has 200."""
    monkeypatch.setattr(operations, "KEPT_RESULTS", 2500)
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    rows = [of(OWNER, float(number)) for number in range(4)]
    other = of(OTHER, 0.0)

    def end(connection: Connection, row: OperationRow) -> None:
        operations.begin(connection, row)
        operations.finish(
            connection, row.id, state=OperationState.DONE, message="m",
            result=Encoded(json.dumps({"nodes": "x" * 1000})), now=row.created,
        )  # fmt: skip

    async def length(id_: UUID) -> int:
        found = await database.call(operations.get, id_)
        assert found is not None
        return len(str(found.result.get("nodes", "")))

    try:
        for each in (other, *rows):
            await database.call(end, each)
        assert [await length(each.id) for each in (other, *rows)] == [1000, 0, 0, 1000, 1000]
        listed = await database.call(operations.all_operations, owner=OWNER)
        assert [(each.message, each.result) for each in listed] == [("m", {})] * 4
        monkeypatch.setattr(operations, "KEPT_RESULTS", 10)
        last = of(OWNER, 5.0)
        await database.call(end, last)
        assert [await length(each.id) for each in (*rows, last)] == [0, 0, 0, 0, 1000]
    finally:
        database.close()


async def test_a_result_is_sent_as_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 50 MB, decoded and encoded, stopped all BMCs for a second, as often as it was read."""
    row, result = of(OWNER, 1.0), {"nodes": [{"node": f"n-{n}\n"} for n in range(20_000)]}
    text = Encoded(json.dumps(result))

    def end(connection: Connection) -> None:
        operations.begin(connection, row)
        operations.finish(
            connection, row.id, state=OperationState.DONE, message="m", result=text, now=1.0
        )

    async with a_daemon(tmp_path) as asked:
        await asked.daemon.parts.database.call(end)
        monkeypatch.delattr(operations, "get")  # which decodes it
        shown = await asked.ask(OWNER, "GET", f"/v1/operations/{row.id}")
        followed = await asked.ask(OWNER, "GET", f"/v1/operations/{row.id}/events")
        assert (await asked.ask(OTHER, "GET", f"/v1/operations/{row.id}")).status == 404
    assert shown.json["id"] == str(row.id)
    assert shown.json["result"] == result
    last = json.loads(followed.body.decode().strip().rpartition("data: ")[2])
    assert last == {"state": "done", "message": "m", "result": result}


async def test_a_result_is_encoded_while_others_have_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of `verify` of 20,000 nodes stopped all BMCs for half a second when it was stored."""
    monkeypatch.setattr(paced, "SECONDS", 0.0)  # a turn for each piece
    turn, seen, rows = 0, list[int](), 300

    class Row(dict[str, object]):
        """Notes the turn of the loop in which it is encoded."""

        def items(self) -> ItemsView[str, object]:  # type: ignore[override]
            seen.append(turn)
            return super().items()

    async def verify(_: Running) -> Ended:
        found = {"nodes": [Row(node=f"n-{n}") for n in range(rows)], "other": {"a": 1}}
        return Ended(OperationState.DONE, "m", found)

    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    ended = asyncio.Event()
    try:
        async with Tasks("test") as tasks:
            all_operations = Operations(database, tasks, unix, after=ended.set)
            row = await all_operations.start(
                "verify", cluster_id=uuid4(), cluster="c", owner=OWNER, work=verify
            )
            while not ended.is_set():
                turn += 1
                await asyncio.sleep(0)
            kept = await all_operations.get(row.id)
    finally:
        database.close()
    assert kept.result == {"nodes": [{"node": f"n-{n}"} for n in range(rows)], "other": {"a": 1}}
    assert len(set(seen)) == len(seen) == rows


def busy(connection: Connection, row: OperationRow, events: int) -> None:
    """An operation of many moves, which ended."""
    operations.begin(connection, row)
    told = [{"seq": number, "message": "done"} for number in range(1, events + 1)]
    operations.add_events(connection, row.id, at=1.0, added=told)
    for number in range(events):
        key = Key(Kind.MACHINE, "here", f"n{number}")
        intent = operations.Intent(row.id, row.cluster_id, key, "make", "t", 1.0)
        operations.intend(connection, [intent])
    operations.finish(connection, row.id, state=row.state, message="m", now=1.0)


def rows(connection: Connection, row: OperationRow) -> tuple[int, int]:
    """How many events of an operation, and entries of the journal, are kept."""
    of = (operations.events.c.operation_id, operations.journal.c.operation_id)
    found = [connection.scalar(select(func.count()).where(each == str(row.id))) for each in of]
    return found[0] or 0, found[1] or 0


async def test_events_of_a_user_are_bounded_and_forgotten_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 operations of 20,000 nodes had four gigabytes, and each further one waited, with changes
    of all users' BMCs, until all of one was removed.
    """
    monkeypatch.setattr(operations, "KEPT_EVENTS", 25)
    monkeypatch.setattr(operations, "FORGOTTEN", 3)
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    well = [of(OWNER, float(number)) for number in range(4)]
    failed = replace(of(OWNER, 4.0), state=OperationState.FAILED)
    other = of(OTHER, 0.0)
    steps = 0
    try:
        for each in (other, *well, failed):
            await database.call(busy, each, 10)
        before = [await database.read(rows, each) for each in (other, *well, failed)]
        assert before == [(10, 10)] * 6
        while await database.call(operations.forget_some, OWNER):
            after = [await database.read(rows, each) for each in (other, *well, failed)]
            assert 1 <= sum(map(sum, before)) - sum(map(sum, after)) <= operations.FORGOTTEN
            before, steps = after, steps + 1
        assert before == [(10, 10), (0, 0), (0, 0), (0, 0), (10, 0), (10, 10)]
        assert len(await database.read(operations.all_operations, owner=OWNER)) == len(well) + 1
    finally:
        database.close()
    assert steps == 4 * 4 + 3 * 4


async def test_what_is_too_much_is_forgotten_when_an_operation_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "KEPT_OPERATIONS", 2)
    async with a_daemon(tmp_path) as asked, asyncio.timeout(60):
        database = asked.daemon.parts.database
        for number in range(5):
            await database.call(busy, of(OWNER, float(number)), 3)
        begun = await asked.ask(OWNER, "POST", "/v1/clusters/none/down", {})
        await asked.finished(OWNER, begun.json["id"])
        kept = operations.all_operations
        while len(await database.read(kept, owner=OWNER)) > 2:  # noqa: ASYNC110  (none tells)
            await asyncio.sleep(0.01)


def plan_of(connection: Connection, query: str) -> str:
    return str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}", (OWNER,)).all())


async def test_sizes_of_results_are_asked_of_an_index_alone(tmp_path: Path) -> None:
    """An end of any operation of a user with 250 MB of results had all BMCs' changes wait for a
    second: SQLite read them all.
    """
    said = list[str]()
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    event.listen(database._engine, "before_cursor_execute", lambda *given: said.append(given[2]))
    try:
        await database.call(ended, of(OWNER, 1.0))
        asked = [each for each in said if each.startswith("SELECT") and "size" in each]
        plans = [await database.read(plan_of, each) for each in asked]
    finally:
        database.close()
    assert asked
    assert all("USING COVERING INDEX operations_of_user" in each for each in plans)
    assert not any("length(" in each for each in said)
