"""What a plan takes from snapshots: disks that are made anew keep nothing of what they kept."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from nospoon.model.resources import Kind
from nospoon.plan.steps import Action, Plan, Step
from nospoon.plan.targets import whose


def lost_snapshots(plan: Plan, snapshots: Mapping[str, Collection[str]]) -> Iterator[str]:
    """A note for each that cannot be restored any more. `snapshots`: name -> its nodes."""
    gone = {whose(step.removes) for step in plan.steps if _loses(step)}
    for name, nodes in snapshots.items():
        lost = [node for node in nodes if node in gone]
        if lost:
            yield f"snapshot {name} is lost: it cannot be restored without {', '.join(lost)}"


def _loses(step: Step) -> bool:
    match step.action, step.removes.kind:
        case (Action.REPLACE, Kind.VOLUME) | (Action.DELETE, Kind.MACHINE):
            return True
        case _:
            return False
