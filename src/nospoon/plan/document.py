"""A plan as the REST API answers it, for programs: the daemon makes these, and its clients read
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.rest.operations import OperationDetails
from nospoon.plan.order.remembered import Remembered
from nospoon.plan.order.steps import FieldChange, Plan, Step


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """`action`: create, change, replace, delete, or what that is for a machine of others."""

    action: str
    kind: str
    host: str
    name: str
    node: str
    moves_from: str
    why: str
    at_power_off: bool
    changes: Sequence[FieldChange]


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """`later`: what is deleted once machines are off; `remembered`: what changes in the store."""

    cluster: str
    cluster_id: str
    fingerprint: str
    counts: Mapping[str, int]
    unchanged: int
    notes: Sequence[str]
    remembers: bool
    remembered: Sequence[Remembered]
    steps: Sequence[PlannedStep]
    later: Sequence[PlannedStep]


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """`text`: for people."""

    plan: PlanDocument
    text: str


@dataclass(frozen=True, slots=True)
class BegunPlan(ShownPlan):
    """`operation` is None where there is nothing to do."""

    operation: OperationDetails | None


def document(plan: Plan) -> PlanDocument:
    return PlanDocument(
        cluster=plan.cluster,
        cluster_id=str(plan.cluster_id),
        fingerprint=plan.fingerprint,
        counts=plan.counts,
        unchanged=plan.unchanged,
        notes=plan.notes,
        remembers=plan.remembers or bool(plan.starts),
        remembered=plan.remembered,
        steps=[_step(step) for step in plan.steps],
        later=[_step(step) for step in plan.later],
    )


def _step(step: Step) -> PlannedStep:
    return PlannedStep(
        action=step.verb,
        kind=str(step.key.kind),
        host=step.key.host,
        name=step.key.name,
        node=step.node,
        moves_from=step.moves_from,
        why=step.why,
        at_power_off=step.at_power_off,
        changes=step.changes,
    )
