"""What a plan takes from snapshots: what disks kept goes when they go or are made again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nospoon.model.images import is_former_root
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.storage import KeptRoot
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Action, Plan

Members = Mapping[str, Collection[str]]
"""Nodes of a snapshot -> the disks of which it has a state, by their volumes' names; none where
that was not noted, by an earlier version.
"""


@dataclass(frozen=True, slots=True)
class Losses:
    """What a plan takes away: `nodes` by their names, `disks` by their volumes', `losers`: whose
    those are, `images`: what clouds keep, by snapshot and node.
    """

    nodes: frozenset[str]
    disks: frozenset[str]
    losers: frozenset[str]
    images: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, plan: Plan) -> Losses:
        steps = (*plan.steps, *plan.later)
        gone = {
            step.removes
            for step in steps
            if step.action is Action.DELETE
            or (step.action is Action.REPLACE and step.removes.kind is Kind.VOLUME)
        }
        volumes = [key for key in gone if key.kind is Kind.VOLUME]
        return cls(
            nodes=frozenset(key.name for key in gone if key.kind is Kind.MACHINE),
            disks=frozenset(key.name for key in volumes),
            losers=frozenset(map(whose, volumes)),
            images=frozenset(
                (step.observed.shape.snapshot, step.observed.shape.node)
                for step in steps
                if step.observed is not None and isinstance(step.observed.shape, KeptRoot)
                if not is_former_root(step.observed.shape.snapshot)
            ),
        )

    @property
    def are_none(self) -> bool:
        """Whether no snapshot can be lost, whatever it has."""
        return not (self.nodes or self.disks or self.images)

    def note(self, name: str, members: Members) -> str:
        """That a snapshot cannot be restored any more, "" where it can."""
        lost = [
            node
            for node, had in members.items()
            if node in self.nodes
            or (name, node) in self.images
            or (not self.disks.isdisjoint(had) if had else node in self.losers)
        ]
        if not lost:
            return ""
        return f"snapshot {name} is lost: it cannot be restored without {', '.join(lost)}"
