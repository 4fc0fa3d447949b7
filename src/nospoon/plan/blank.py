"""Nodes that Ironic has deployed and that lose the disk on which it did: nothing is on them any
more, which Ironic cannot know. They are deployed anew. Of those that somebody else uses (they
`run`) no disk is made anew: Ironic's driver refuses.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from nospoon.model.ironic import BLANK, IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Machine, Observed, Resource, Volume
from nospoon.plan.steps import Action, Step

Found = Mapping[Key, Observed]
Desired = Mapping[Key, Resource]


def deployed_anew(steps: list[Step], desired: Desired, found: Found) -> list[Step]:
    """The same steps, and those of deployed nodes that lose what was deployed, of which Ironic is
    told before (`plan.order`).
    """
    lost = frozenset(step.key for step in steps if _is_lost(step, found))
    if not lost:
        return steps
    at = {step.key: index for index, step in enumerate(steps)}
    disks = _disks(desired, found)
    result = list(steps)
    for key, resource in desired.items():
        if key.kind is not Kind.IRONIC_STANDING or key not in found:
            continue
        seen = found[key]
        if not _concerns(resource, seen, disks.get(resource.node, []), lost):
            continue
        index = at.get(key)
        step = Step(Action.REPLACE, key, "its disk is made anew", resource, _nothing_on(seen))
        if index is None:
            result.append(step)
        elif steps[index].action is Action.CHANGE:
            result[index] = replace(step, changes=steps[index].changes)
    return result


def _is_lost(step: Step, found: Found) -> bool:
    """Whether a disk is made anew. One that is not seen, for its pool is stopped or unknown, is
    there still when that is mended.
    """
    if step.key.kind is not Kind.VOLUME or step.action not in (Action.CREATE, Action.REPLACE):
        return False
    if step.action is Action.REPLACE:
        return True
    assert step.desired is not None, "what is made is desired"
    machine = Key(Kind.MACHINE, step.key.host, step.node)
    shape = step.desired.shape
    assert isinstance(shape, Volume), "volume keys have volume shapes"
    pool = found.get(Key(Kind.POOL, step.key.host, shape.pool))
    return machine not in found or (pool is not None and not pool.fault)


def _disks(desired: Desired, found: Found) -> dict[str, list[Key]]:
    """Node -> the disks that it has; those that it is to have, where it is not there."""
    result = {}
    for each in desired.values():
        if each.key.kind is Kind.MACHINE:
            there = found[each.key].shape if each.key in found else each.shape
            assert isinstance(there, Machine), "machine keys have machine shapes"
            result[each.node] = [
                Key(Kind.VOLUME, each.key.host, disk.volume) for disk in there.disks
            ]
    return result


def _concerns(resource: Resource, seen: Observed, disks: list[Key], lost: Container[Key]) -> bool:
    """Whether what Ironic has on the node may be lost."""
    if not (seen.running or _standing(resource.shape).state == Standing.ACTIVE):
        return False
    roots = None if seen.running else _standing(seen.shape).roots
    return any(key in lost for key in disks if roots is None or key.name in roots)


def _nothing_on(observed: Observed) -> Observed:
    return replace(observed, shape=replace(_standing(observed.shape), state=BLANK))


def _standing(shape: object) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
    return shape
