"""A cluster of the caller's, by name."""

from __future__ import annotations

from nospoon.errors import NotFound
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database


async def owned(database: Database, *, uid: int, name: str) -> ClusterRow:
    """The cluster. Raises `NotFound`, which lists those that this user has."""
    row = await database.read(stored.find, uid=uid, name=name)
    if row is None:
        known = [found for _, found, _ in await database.read(stored.listed, uid=uid)]
        hint = f"Yours: {', '.join(known)}." if known else "You have none."
        raise NotFound(f"no cluster {name!r}", hint=hint)
    return row
