"""A plan for programs, as the REST API answers it."""

from __future__ import annotations

from nospoon.model.rest.plans import PlanDocument, PlannedStep
from nospoon.plan.order.steps import Plan, Step


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
        returns=plan.returns,
        steps=[_step(step) for step in plan.steps],
        later=[_step(step) for step in plan.later],
    )


def _step(step: Step) -> PlannedStep:
    return PlannedStep(
        action=step.verb,
        kind=str(step.key.kind),
        host=step.key.place,
        name=step.key.name,
        node=step.node,
        moves_from=step.moves_from,
        why=step.why,
        at_power_off=step.at_power_off,
        changes=step.changes,
    )
