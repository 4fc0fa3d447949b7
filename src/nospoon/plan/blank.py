"""Nodes that Ironic has deployed and that lose the disk on which it did: nothing is on them any
more, which Ironic cannot know. They are deployed anew. Of those that somebody else uses (they
`run`) no disk is removed or made anew: Ironic's driver refuses. Those without a machine are let go.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from nospoon.model.ironic import BLANK, ORPHANED, IronicStanding, Standing
from nospoon.model.resources import Key, Kind, Machine, Observed, Resource, Volume
from nospoon.plan.steps import Action, Step
from nospoon.plan.whose import whose

Found = Mapping[Key, Observed]
Desired = Mapping[Key, Resource]


def deployed_anew(steps: list[Step], desired: Desired, found: Found) -> list[Step]:
    """The same steps, and those of deployed nodes that lose what was deployed, of which Ironic is
    told before (`plan.order`).
    """
    lost = _lost(steps, desired, found)
    if not lost:
        return steps
    machines = {key.name for key in found if key.kind is Kind.MACHINE}
    at = {step.key: index for index, step in enumerate(steps)}
    result = list(steps)
    for key, resource in desired.items():
        if key.kind is not Kind.IRONIC_STANDING or key not in found:
            continue
        seen = found[key]
        bare = resource.node not in machines
        if not _concerns(resource, seen, lost[resource.node], bare=bare):
            continue
        index = at.get(key)
        step = Step(Action.REPLACE, key, "its disk goes", resource, _nothing_on(seen))
        if index is None:
            result.append(step)
        elif steps[index].action is Action.CHANGE:
            result[index] = replace(step, changes=steps[index].changes)
    return result


def orphaned(observed: Observed) -> Observed:
    """A node in Ironic without a machine, whose BMC nobody serves: it is let go of as it is."""
    if not isinstance(observed.shape, IronicStanding):
        return observed
    return replace(observed, shape=replace(observed.shape, state=ORPHANED))


def _lost(steps: Iterable[Step], desired: Desired, found: Found) -> Mapping[str, set[str]]:
    """Node -> its disks that are removed, or made anew. What an interrupted move left on a host
    where its machine is no more is nothing that it has.
    """
    disks = [step for step in steps if step.key.kind is Kind.VOLUME]
    had = _disks(desired, found) if disks else {}
    home = {key.name: key.host for key in found if key.kind is Kind.MACHINE}
    result: defaultdict[str, set[str]] = defaultdict(set)
    for step in disks:
        node, name = whose(step.key), step.key.name
        if step.action is Action.CREATE:
            lost = name in had.get(node, ()) and _is_gone(step, found)
        else:
            lost = step.action is not Action.CHANGE and home.get(node) in (None, step.removes.host)
        if lost:
            result[node].add(name)
    return result


def _disks(desired: Desired, found: Found) -> dict[str, list[str]]:
    """Node -> the disks that it has; those that it is to have, where it is not there."""
    result = {}
    for each in desired.values():
        if each.key.kind is Kind.MACHINE:
            there = found[each.key].shape if each.key in found else each.shape
            assert isinstance(there, Machine), "machine keys have machine shapes"
            result[each.node] = [disk.volume for disk in there.disks]
    return result


def _is_gone(step: Step, found: Found) -> bool:
    """Whether a disk that is to be made is there no more. One that is not seen, for its pool is
    stopped or unknown, is there still when that is mended.
    """
    assert step.desired is not None, "what is made is desired"
    machine = Key(Kind.MACHINE, step.key.host, step.node)
    shape = step.desired.shape
    assert isinstance(shape, Volume), "volume keys have volume shapes"
    pool = found.get(Key(Kind.POOL, step.key.host, shape.pool))
    return machine not in found or (pool is not None and not pool.fault)


def _concerns(resource: Resource, seen: Observed, lost: AbstractSet[str], *, bare: bool) -> bool:
    """Whether what Ironic has on the node may be lost. `bare`: it has no machine, and the disks of
    the one that it had may be gone without a step.
    """
    if not (seen.running or _standing(resource.shape).state == Standing.ACTIVE):
        return False
    roots = None if seen.running or bare else _standing(seen.shape).roots
    return bool(lost) if roots is None else not lost.isdisjoint(roots)


def _nothing_on(observed: Observed) -> Observed:
    return replace(observed, shape=replace(_standing(observed.shape), state=BLANK))


def _standing(shape: object) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "standing keys have standing shapes"
    return shape
