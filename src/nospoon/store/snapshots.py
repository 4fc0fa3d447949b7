"""Snapshots of clusters: rows before anything is taken, so that nothing is taken unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, insert, select, update

from nospoon.model.decoders import meet
from nospoon.store import tables

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


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """`created`: Unix seconds."""

    cluster_id: UUID
    name: str
    state: SnapshotState
    created: float
    members: tuple[Member, ...]


def of_cluster(connection: Connection, cluster_id: UUID) -> list[SnapshotRow]:
    """Oldest first."""
    return _found(connection, cluster_id=str(cluster_id))


def all_of(connection: Connection, states: Sequence[SnapshotState]) -> list[SnapshotRow]:
    """Those of all clusters that are in one of these states."""
    return [row for row in _found(connection) if row.state in states]


def put(connection: Connection, row: SnapshotRow) -> None:
    connection.execute(
        insert(snapshots).values(
            cluster_id=str(row.cluster_id),
            name=row.name,
            state=row.state,
            created=row.created,
            members=msgspec.to_builtins(row.members),
        )
    )


def set_state(connection: Connection, row: SnapshotRow, state: SnapshotState) -> None:
    connection.execute(update(snapshots).where(*_is(row)).values(state=state))


def set_members(connection: Connection, row: SnapshotRow) -> None:
    members = msgspec.to_builtins(row.members)
    connection.execute(update(snapshots).where(*_is(row)).values(members=members))


def remove(connection: Connection, row: SnapshotRow) -> None:
    connection.execute(delete(snapshots).where(*_is(row)))


def _is(row: SnapshotRow) -> tuple[ColumnElement[bool], ...]:
    return snapshots.c.cluster_id == str(row.cluster_id), snapshots.c.name == row.name


def _found(connection: Connection, **where: str) -> list[SnapshotRow]:
    query = select(snapshots).filter_by(**where).order_by(snapshots.c.created)
    return [
        SnapshotRow(
            UUID(row.cluster_id),
            row.name,
            SnapshotState(row.state),
            row.created,
            msgspec.convert(row.members, tuple[Member, ...]),
        )
        for row in connection.execute(query)
    ]


meet(Member)
