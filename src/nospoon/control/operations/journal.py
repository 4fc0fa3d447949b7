"""The engine's journal, kept in the store: intent before each driver call, outcome after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from sqlalchemy import Connection

from nospoon.model.resources.keys import Key
from nospoon.plan.order.order import Half, MoveId
from nospoon.runtime.clock import Clock
from nospoon.store import nodes as node_rows
from nospoon.store import operations as stored
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.store.operations import Conclusion, Intent

NOBODY: Mapping[MoveId, NodeRow] = {}


class Journal:
    """Of one operation on one cluster. `moving`: calls with the intent of which a node is known to
    be elsewhere, in the same transaction; `moved` is told of it.
    """

    def __init__(
        self,
        database: Database,
        operation: UUID,
        cluster_id: UUID,
        clock: Clock,
        *,
        moving: Mapping[MoveId, NodeRow] = NOBODY,
        moved: Callable[[NodeRow], None] | None = None,
    ) -> None:
        self._database, self._operation = database, operation
        self._cluster_id, self._clock = cluster_id, clock
        self._moving, self._moved = moving, moved

    async def intend(self, key: Key, half: Half, token: str) -> int:
        mover = self._moving.get((key, half))
        intent = Intent(self._operation, self._cluster_id, key, half, token, self._clock())
        entry = await self._database.call_each(_intended, (intent, mover))
        if mover is not None and self._moved is not None:
            self._moved(mover)
        return entry

    async def conclude(self, entry: int, error: str) -> None:
        ended = Conclusion(entry, error, self._clock())
        await self._database.call_each(stored.conclude, ended)


def _intended(
    connection: Connection, intents: Sequence[tuple[Intent, NodeRow | None]]
) -> list[int]:
    for _, mover in intents:
        if mover is not None:
            node_rows.settle(connection, mover.uuid, mover.host)
    return stored.intend(connection, [intent for intent, _ in intents])
