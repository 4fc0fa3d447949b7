"""Clusters of the store: one of the caller's by name, and all of them one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NoReturn

from nospoon.errors import NotFound
from nospoon.model.principal import OwnerId
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database


async def owned(database: Database, *, owner: OwnerId, name: str) -> ClusterRow:
    """The cluster, whose file may have megabytes: hold one of a user at a time. Raises `NotFound`,
    which lists those that this user has.
    """
    row = await database.read(stored.find, owner=owner, name=name)
    return row if row is not None else await _unknown(database, owner, name)


async def require_owned(database: Database, *, owner: OwnerId, name: str) -> None:
    """Raises `NotFound` as `owned` does."""
    if await database.read(stored.outline, owner=owner, name=name) is None:
        await _unknown(database, owner, name)


async def _unknown(database: Database, owner: OwnerId, name: str) -> NoReturn:
    known = [found for _, found, _ in await database.read(stored.listed, owner=owner)]
    hint = f"Yours: {', '.join(known)}." if known else "You have none."
    raise NotFound(f"no cluster {name!r}", hint=hint)


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
