"""BMCs that were made: what `observe` of the BMC driver reads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, insert

from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.tags import OwnerTag
from nospoon.store import bmc_sockets, tables
from nospoon.store.decoded import Decoder, texts

bmcs = tables.bmcs


def records(connection: Connection, cluster: UUID | None = None) -> list[tuple[Key, Bmc, OwnerTag]]:
    """The BMCs of one cluster, or of all."""
    query = _TEXTS
    if cluster is not None:
        query = query.where(bmcs.c.cluster_id == str(cluster))
    return [_record(row) for row in connection.execute(query)]


def find(connection: Connection, uuid: UUID) -> Bmc | None:
    """One BMC."""
    row = connection.execute(_FIND, {"wanted": str(uuid)}).first()
    return _record(row)[1] if row is not None else None


def put(connection: Connection, made: Sequence[tuple[Key, Bmc, OwnerTag]]) -> None:
    """Insert or replace."""
    remove(connection, [bmc.uuid for _, bmc, _ in made])
    rows = [
        {
            "uuid": str(bmc.uuid),
            "cluster_id": str(tag.cluster),
            "host": key.place,
            "name": key.name,
            "record": msgspec.to_builtins(_Kept(bmc, tag)),
        }
        for key, bmc, tag in made
    ]
    connection.execute(_INSERT, rows)
    bmc_sockets.put(connection, [(bmc, tag) for _, bmc, tag in made])


def remove(connection: Connection, uuids: Sequence[UUID]) -> Sequence[None]:
    connection.execute(_DELETE, [{"wanted": str(uuid)} for uuid in uuids])
    return [None] * len(uuids)


_TEXTS = texts(bmcs)
_FIND = _TEXTS.where(bmcs.c.uuid == bindparam("wanted"))
_INSERT = insert(bmcs)
_DELETE = delete(bmcs).where(bmcs.c.uuid == bindparam("wanted"))


@dataclass(frozen=True, slots=True)
class _Kept:
    bmc: Bmc
    tag: OwnerTag


_KEPT = Decoder(_Kept)


def _record(row: Row[tuple[object, ...]]) -> tuple[Key, Bmc, OwnerTag]:
    kept = _KEPT(row.record)
    return Key(Kind.BMC, sys.intern(row.host), row.name), kept.bmc, kept.tag
