"""Snapshots of clusters: rows before anything is taken, so that nothing is taken unknown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Connection, Text, cast, delete, func, insert, select, update

from nospoon.model.decoders import meet
from nospoon.store import tables
from nospoon.store.encoded import encoded

snapshots = tables.snapshots


class SnapshotState(StrEnum):
    """TAKING and REMOVING: what is there of it is to be dropped. RESTORING: do it again. PARTLY: it
    is recovered, and may be of more nodes, or not be whole.
    """

    TAKING = "taking"
    PARTLY = "partly"
    COMPLETE = "complete"
    RESTORING = "restoring"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a snapshot. `on`: it had power; while it is taken, it may stand still. `disks`: of
    which it has a state, by their volumes' names, once it is taken.
    """

    node: str
    machine: UUID
    on: bool
    disks: tuple[str, ...] = ()


_ITEMS, _MEMBER = msgspec.json.Decoder(list[msgspec.Raw]), msgspec.json.Decoder(Member)


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """`created`: Unix seconds."""

    cluster_id: UUID
    name: str
    state: SnapshotState
    created: float
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A snapshot without its nodes. A cluster has 100 of 20,000 nodes each: all of them together
    are gigabytes, and take the store's thread for seconds.
    """

    name: str
    state: SnapshotState
    created: float


def headings(connection: Connection, cluster_id: UUID) -> list[Heading]:
    """Oldest first."""
    query = select(snapshots.c.name, snapshots.c.state, snapshots.c.created).where(
        snapshots.c.cluster_id == str(cluster_id)
    )
    found = connection.execute(query.order_by(snapshots.c.created))
    return [Heading(row.name, SnapshotState(row.state), row.created) for row in found]


def find(connection: Connection, cluster_id: UUID, name: str) -> SnapshotRow | None:
    """One with its nodes; None where there is none of that name."""
    return next(iter(_found(connection, *_named(cluster_id, name))), None)


def counted(connection: Connection, cluster_id: UUID, name: str) -> tuple[int, int] | None:
    """How many nodes one has, and how many of them were on; None where there is none of that name.
    The database counts: within a text, JSON has no quote without a backslash (RFC 8259 §7).
    """
    on, members = '"on":true', snapshots.c.members
    text = func.replace(cast(members, Text), " ", "")
    rest = func.length(func.replace(text, on, ""))
    query = select(func.json_array_length(members), func.length(text) - rest)
    row = connection.execute(query.where(*_named(cluster_id, name))).one_or_none()
    return (int(row[0]), int(row[1]) // len(on)) if row is not None else None


def in_states(
    connection: Connection, states: Sequence[SnapshotState], cluster_id: UUID | None = None
) -> list[SnapshotRow]:
    """Those that are in one of these states, of a cluster or of all."""
    of = [] if cluster_id is None else [snapshots.c.cluster_id == str(cluster_id)]
    return _found(connection, snapshots.c.state.in_(states), *of)


def put(connection: Connection, row: SnapshotRow) -> None:
    connection.execute(
        insert(snapshots).values(
            cluster_id=str(row.cluster_id),
            name=row.name,
            state=row.state,
            created=row.created,
            members=_written(row.members),
        )
    )


def set_state(connection: Connection, row: SnapshotRow, state: SnapshotState) -> None:
    connection.execute(update(snapshots).where(*_is(row)).values(state=state))


def set_members(connection: Connection, row: SnapshotRow) -> None:
    members = _written(row.members)
    connection.execute(update(snapshots).where(*_is(row)).values(members=members))


def remove(connection: Connection, row: SnapshotRow) -> None:
    connection.execute(delete(snapshots).where(*_is(row)))


def _is(row: SnapshotRow) -> tuple[ColumnElement[bool], ...]:
    return _named(row.cluster_id, row.name)


def _named(cluster_id: UUID, name: str) -> tuple[ColumnElement[bool], ...]:
    return snapshots.c.cluster_id == str(cluster_id), snapshots.c.name == name


def _found(connection: Connection, *where: ColumnElement[bool]) -> list[SnapshotRow]:
    text = cast(snapshots.c.members, Text).label("text")
    columns = (snapshots.c.cluster_id, snapshots.c.name, snapshots.c.state, snapshots.c.created)
    query = select(*columns, text).where(*where).order_by(snapshots.c.created)
    return [
        SnapshotRow(
            UUID(row.cluster_id),
            row.name,
            SnapshotState(row.state),
            row.created,
            _read(row.text),
        )
        for row in connection.execute(query)
    ]


def _read(text: str) -> tuple[Member, ...]:
    """One node after the other: of 20,000 in one piece, no other thread goes on for 0.1 s."""
    try:
        return tuple(_MEMBER.decode(each) for each in _ITEMS.decode(text))
    except msgspec.DecodeError:  # names of bytes that are no UTF-8 (PEP 383)
        return msgspec.convert(json.loads(text), tuple[Member, ...])


def _written(members: Sequence[Member]) -> object:
    try:
        return encoded(members)
    except UnicodeEncodeError:  # as above
        return msgspec.to_builtins(members)


meet(Member)
