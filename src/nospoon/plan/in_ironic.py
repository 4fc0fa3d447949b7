"""What a plan's steps mean for nodes that Ironic has deployed, or that somebody else uses there:
what is lost with them, and what `up` will refuse.

A deployed node whose image differs is deployed anew, which rewrites its disk: a replacement
(`blank.deployed_anew`). Here the other steps are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from nospoon.model.ironic import IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Observed, Resource
from nospoon.plan.steps import Action, Step

Found = Mapping[Key, Observed]
UNDEPLOYS = "it is undeployed, and what is on its disks is lost"
REFUSED = "somebody uses it in Ironic: `up` refuses this until it is undeployed there"


def told(steps: Iterable[Step]) -> list[Step]:
    """The same steps; those that undeploy a node, or that will be refused, say so."""
    return [_told(step) if step.key.kind is Kind.IRONIC_STANDING else step for step in steps]


def _told(step: Step) -> Step:
    if step.observed is None:
        return step
    here, there = _shape(step.observed).state, None
    if step.desired is not None:
        there = _shape(step.desired).state
    if step.observed.running:
        refused = step.action is Action.DELETE or (step.changes and here != there)
        return _saying(step, REFUSED) if refused or there == Standing.ACTIVE else step
    return _saying(step, UNDEPLOYS) if here == Standing.ACTIVE != there else step


def _saying(step: Step, what: str) -> Step:
    return replace(step, why=f"{step.why}; {what}" if step.why else what)


def undeployed(steps: Iterable[Step]) -> list[str]:
    """Names of the nodes that leave, and that nospoon deployed: an `up` has to be forced to."""
    return sorted(
        step.node
        for step in steps
        if step.key.kind is Kind.IRONIC_STANDING
        and step.action is Action.DELETE
        and step.observed is not None
        and not step.observed.running
        and _shape(step.observed).state == Standing.ACTIVE
    )


def firmware_changes(steps: Iterable[Step], found: Found) -> Iterator[str]:
    """Notes on deployed nodes that get other firmware, which may not boot what is on them."""
    deployed = {
        each.key.name
        for each in found.values()
        if each.key.kind is Kind.IRONIC_STANDING and _shape(each).state == Standing.ACTIVE
    }
    for step in steps:
        change = next((each for each in step.changes if each.field == "firmware"), None)
        if step.key.kind is Kind.MACHINE and change is not None and step.node in deployed:
            yield (
                f"node {step.node} is deployed, and its firmware changes from {change.observed} to "
                f"{change.desired}: what is on its disk may not boot with it"
            )


def _shape(each: Observed | Resource) -> IronicStanding:
    shape = each.shape
    assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
    return shape
