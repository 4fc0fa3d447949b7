"""Nobody makes others' operations forgotten by having many, nor fills the store by results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import ItemsView
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.control.operations.operations import Ended, Operations, Running
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

    try:
        await database.call(begin)
        assert await database.call(operations.get, victim.id) is not None
        kept = await database.call(operations.all_operations, owner=OTHER)
    finally:
        database.close()
    assert len(kept) <= KEPT_OPERATIONS + 1
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
