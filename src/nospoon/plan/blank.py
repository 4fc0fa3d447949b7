"""Nodes that Ironic has deployed and that lose the disk on which it did, which is their first one:
nothing is on them any more, which Ironic cannot know. They are deployed anew. One that somebody
else uses (it `runs`) keeps its disk: Ironic's driver refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nospoon.model.ironic import BLANK, IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Machine, Observed, Resource
from nospoon.plan.steps import Action, Step


def deployed_anew(
    steps: Iterable[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """Steps for deployed nodes whose first disk these steps make, and that have no step yet."""
    known = {step.key for step in steps}
    deployed = [
        key
        for key, resource in desired.items()
        if key.kind is Kind.IRONIC_STANDING and key in found and key not in known
        if _standing(resource.shape).state == Standing.ACTIVE or found[key].running
    ]
    if not deployed:
        return []
    blank = _without_disk(steps, desired)
    return [
        Step(Action.REPLACE, key, "its disk is made anew", desired[key], _nothing_on(found[key]))
        for key in deployed
        if desired[key].node in blank
    ]


def _without_disk(steps: Iterable[Step], desired: Mapping[Key, Resource]) -> frozenset[str]:
    """Nodes whose first disk these steps make."""
    made = {
        step.key
        for step in steps
        if step.key.kind is Kind.VOLUME and step.action in (Action.CREATE, Action.REPLACE)
    }
    return frozenset(
        each.node
        for each in desired.values()
        if isinstance(each.shape, Machine)
        for disk in each.shape.disks[:1]
        if Key(Kind.VOLUME, each.key.host, disk.volume) in made
    )


def _nothing_on(observed: Observed) -> Observed:
    """As it is from then on, which Ironic is told before (`plan.order`)."""
    return replace(observed, shape=replace(_standing(observed.shape), state=BLANK))


def _standing(shape: object) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
    return shape
