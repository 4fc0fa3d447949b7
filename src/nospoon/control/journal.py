"""The engine's journal, kept in the store: intent before each driver call, outcome after it."""

from __future__ import annotations

from uuid import UUID

from nospoon.model.resources import Key
from nospoon.plan.order import Half
from nospoon.runtime.clock import Clock
from nospoon.store import operations as stored
from nospoon.store.database import Database


class Journal:
    """Of one operation on one cluster."""

    def __init__(self, database: Database, operation: UUID, cluster_id: UUID, clock: Clock) -> None:
        self._database, self._operation = database, operation
        self._cluster_id, self._clock = cluster_id, clock

    async def intend(self, key: Key, half: Half, token: str) -> int:
        return await self._database.call(
            stored.intend,
            operation=self._operation,
            cluster_id=self._cluster_id,
            key=key,
            half=half,
            token=token,
            now=self._clock(),
        )

    async def conclude(self, entry: int, error: str) -> None:
        await self._database.call(stored.conclude, entry, error=error, now=self._clock())
