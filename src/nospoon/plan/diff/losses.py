"""What a plan takes from snapshots: what disks kept goes when they go or are made again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nospoon.model.resources.keys import Kind
from nospoon.model.resources.storage import KeptRoot
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Action, Plan

Members = Mapping[str, Collection[str]]
"""Nodes of a snapshot -> the disks of which it has a state, by their volumes' names; none where
that was not noted, by an earlier version.
"""


def lost_snapshots(plan: Plan, snapshots: Mapping[str, Members]) -> Iterator[str]:
    """A note for each that cannot be restored any more."""
    images = {
        (step.observed.shape.snapshot, step.observed.shape.node)
        for step in (*plan.steps, *plan.later)
        if step.observed is not None and isinstance(step.observed.shape, KeptRoot)
    }
    gone = {
        step.removes
        for step in (*plan.steps, *plan.later)
        if step.action is Action.DELETE
        or (step.action is Action.REPLACE and step.removes.kind is Kind.VOLUME)
    }
    nodes = {key.name for key in gone if key.kind is Kind.MACHINE}
    disks = {key.name for key in gone if key.kind is Kind.VOLUME}
    losers = {whose(key) for key in gone if key.kind is Kind.VOLUME}
    for name, members in snapshots.items():
        lost = [
            node
            for node, had in members.items()
            if node in nodes
            or (name, node) in images
            or (not disks.isdisjoint(had) if had else node in losers)
        ]
        if lost:
            yield f"snapshot {name} is lost: it cannot be restored without {', '.join(lost)}"
