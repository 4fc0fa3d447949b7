"""BMCs that were made: what `observe` of the BMC driver reads."""

from __future__ import annotations

from uuid import UUID

import msgspec
from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from nospoon.model.resources import Bmc, Key, Kind, OwnerTag
from nospoon.model.sharing import Shared
from nospoon.store import tables

bmcs = tables.bmcs


def records(connection: Connection, cluster: UUID | None = None) -> list[tuple[Key, Bmc, OwnerTag]]:
    """The BMCs of one cluster, or of all."""
    query = select(bmcs)
    if cluster is not None:
        query = query.where(bmcs.c.cluster_id == str(cluster))
    words = Shared()
    return [_record(row, words) for row in connection.execute(query)]


def of_others(connection: Connection, cluster: UUID) -> list[tuple[Key, Bmc, OwnerTag]]:
    """The BMCs of all clusters but one."""
    query = select(bmcs).where(bmcs.c.cluster_id != str(cluster))
    words = Shared()
    return [_record(row, words) for row in connection.execute(query)]


def find(connection: Connection, uuid: UUID) -> Bmc | None:
    """One BMC."""
    row = connection.execute(_FIND, {"wanted": str(uuid)}).first()
    return _record(row, Shared())[1] if row is not None else None


def put(connection: Connection, key: Key, bmc: Bmc, tag: OwnerTag) -> None:
    """Insert or replace."""
    remove(connection, bmc.uuid)
    row = {
        "uuid": str(bmc.uuid),
        "cluster_id": str(tag.cluster),
        "host": key.host,
        "name": key.name,
        "record": {"bmc": msgspec.to_builtins(bmc), "tag": msgspec.to_builtins(tag)},
    }
    connection.execute(_INSERT, row)


def remove(connection: Connection, uuid: UUID) -> None:
    connection.execute(_DELETE, {"wanted": str(uuid)})


_FIND = select(bmcs).where(bmcs.c.uuid == bindparam("wanted"))
_INSERT = insert(bmcs)
_DELETE = delete(bmcs).where(bmcs.c.uuid == bindparam("wanted"))


def _record(row: Row[tuple[object, ...]], words: Shared) -> tuple[Key, Bmc, OwnerTag]:
    record = words.text(row.record)
    bmc = msgspec.convert(record["bmc"], Bmc)
    tag = words.one(msgspec.convert(record["tag"], OwnerTag))
    return Key(Kind.BMC, words.one(row.host), row.name), bmc, tag
