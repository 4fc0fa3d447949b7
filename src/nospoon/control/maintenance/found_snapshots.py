"""Snapshots, as the disks of machines tell of them, beside what the store knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from nospoon.model.machine import KeptState
from nospoon.store import snapshots
from nospoon.store.nodes import NodeRow
from nospoon.store.snapshots import SnapshotRow, SnapshotState

Kept = Sequence[tuple[NodeRow, Mapping[str, Mapping[str, KeptState]]]]
"""Nodes, with their disks -> name -> the state that it keeps so called."""


def snapshots_of(cluster: UUID, kept: Kept) -> list[SnapshotRow]:
    """Snapshots by what the disks of its nodes keep: those who have it were there. One that some
    disk of theirs lacks was half taken or deleted, or a disk is newer; no one can tell.
    """
    names = {name for _, disks in kept for states in disks.values() for name in states}
    return [_snapshot(cluster, name, kept) for name in sorted(names)]


def joined(before: SnapshotRow | None, found: SnapshotRow, *, whole: bool) -> SnapshotRow:
    """A snapshot that is known, with members that are found besides. `whole`: all nodes that the
    cluster may have were asked.
    """
    if before is None:
        return found if whole else replace(found, state=SnapshotState.PARTLY)
    half = found.state is SnapshotState.PARTLY
    members = {member.machine for member in before.members}
    more = tuple(member for member in found.members if member.machine not in members)
    match before.state:
        case SnapshotState.COMPLETE if more and (half or not whole):
            state = SnapshotState.PARTLY
        case SnapshotState.PARTLY if whole:
            state = found.state
        case _:
            state = before.state
    return replace(before, state=state, members=(*before.members, *more))


def _snapshot(cluster: UUID, name: str, kept: Kept) -> SnapshotRow:
    found = [
        (node, {disk: of[name] for disk, of in disks.items() if name in of}, len(disks))
        for node, disks in kept
    ]
    there = [(node, states) for node, states, _ in found if states]
    half = any(0 < len(states) < disks for _, states, disks in found)
    return SnapshotRow(
        cluster,
        name,
        SnapshotState.PARTLY if half else SnapshotState.COMPLETE,
        created=min(state.at for _, states in there for state in states.values()),
        members=tuple(
            snapshots.Member(
                node.name, node.uuid, any(state.on for state in states.values()), tuple(states)
            )
            for node, states in there
        ),
    )
