"""Nodes that Ironic has deployed and that lose all their disks: nothing is on them any more, which
Ironic cannot know. They are deployed anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nospoon.model.ironic import BLANK, IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Observed, Resource
from nospoon.plan.steps import Action, Step


def deployed_anew(
    steps: Iterable[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """Steps for deployed nodes of which these steps make all disks, and that have no step yet."""
    known = {step.key for step in steps}
    deployed = [
        key
        for key, resource in desired.items()
        if key.kind is Kind.IRONIC_STANDING and key in found and key not in known
        if _standing(resource.shape).state == Standing.ACTIVE
    ]
    if not deployed:
        return []
    blank = _without_disks(steps, desired)
    return [
        Step(Action.REPLACE, key, "its disks are made anew", desired[key], _nothing_on(found[key]))
        for key in deployed
        if desired[key].node in blank
    ]


def _without_disks(steps: Iterable[Step], desired: Mapping[Key, Resource]) -> frozenset[str]:
    """Nodes all of whose disks these steps make."""
    made = {
        step.key
        for step in steps
        if step.key.kind is Kind.VOLUME and step.action in (Action.CREATE, Action.REPLACE)
    }
    disks = {
        each.node: [need for need in each.needs if need.kind is Kind.VOLUME]
        for each in desired.values()
        if each.key.kind is Kind.MACHINE
    }
    return frozenset(node for node, needs in disks.items() if needs and made.issuperset(needs))


def _nothing_on(observed: Observed) -> Observed:
    """As it is from then on, which Ironic is told before (`plan.order`)."""
    return replace(observed, shape=replace(_standing(observed.shape), state=BLANK))


def _standing(shape: object) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
    return shape
