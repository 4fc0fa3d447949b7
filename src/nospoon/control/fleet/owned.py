"""Clusters of the store: one of the caller's by name, and all of them one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator

from nospoon.errors import NotFound
from nospoon.model.principal import OwnerId
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database


async def owned(database: Database, *, owner: OwnerId, name: str) -> ClusterRow:
    """The cluster. Raises `NotFound`, which lists those that this user has."""
    row = await database.read(stored.find, owner=owner, name=name)
    if row is None:
        known = [found for _, found, _ in await database.read(stored.listed, owner=owner)]
        hint = f"Yours: {', '.join(known)}." if known else "You have none."
        raise NotFound(f"no cluster {name!r}", hint=hint)
    return row


async def each_cluster(
    database: Database, *, owner: OwnerId | None = None
) -> AsyncIterator[ClusterRow]:
    """All clusters, or those of one user, by name. One is read when it is asked for: a hundred of
    one user may have gigabytes. What is removed meanwhile is left out.
    """
    for outline in await database.read(stored.outlines, owner=owner):
        row = await database.read(stored.get, outline.id)
        if row is not None:
            yield row
