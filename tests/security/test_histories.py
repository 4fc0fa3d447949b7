"""Nobody makes others' operations forgotten by having many."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection
from tests.security.asked import OTHER, OWNER

from nospoon.store import operations
from nospoon.store.database import Database
from nospoon.store.operations import KEPT_OPERATIONS, OperationRow, OperationState


def of(uid: int, created: float) -> OperationRow:
    return OperationRow(uuid4(), "up", uuid4(), "c", uid, OperationState.DONE, created)


def ended(connection: Connection, row: OperationRow) -> None:
    operations.begin(connection, row)
    operations.finish(
        connection, row.id, state=OperationState.DONE, message="", result={}, now=row.created
    )


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
        kept = await database.call(operations.all_operations, uid=OTHER)
    finally:
        database.close()
    assert len(kept) <= KEPT_OPERATIONS + 1
    assert kept[0].id == flood[-1].id
