"""Nodes that Ironic has deployed and that lose the disk on which it did: nothing is on them any
more, which Ironic cannot know. They are deployed again. Of those that another user has (they
`run`) no disk is removed or made again: Ironic's driver refuses. Those without a machine are
released.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from nospoon.model.ironic import BLANK, ORPHANED, IronicStanding, Standing
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Action, Step

Found = Mapping[Key, Observed]
Desired = Mapping[Key, Resource]


def redeployed(
    steps: list[Step], later: Iterable[Step], desired: Desired, found: Found
) -> list[Step]:
    """The same steps, and those of deployed nodes that lose what was deployed, of which Ironic is
    informed first (`plan.order.order`). `later`: what waits for a power-off. Someone else's
    instance is not to lose a disk then, either; ours are deployed again when it goes.
    """
    standings = [
        each
        for key, each in desired.items()
        if key.kind is Kind.IRONIC_STANDING and key in found and _may_lose(each, found[key])
    ]
    if not standings:
        return steps
    machines = {key.name: each for key, each in found.items() if key.kind is Kind.MACHINE}
    looked_at = _looked_at(found)
    lost = _lost(steps, desired, found, machines, looked_at)
    leaving = {step.node for step in later if step.key.kind is Kind.VOLUME}
    at = {step.key: index for index, step in enumerate(steps)}
    result = list(steps)
    for each in standings:
        seen, index = found[each.key], at.get(each.key)
        leaves = seen.running and each.node in leaving
        loses = leaves or _loses(seen, lost[each.node], machines.get(each.node), found, looked_at)
        if not (loses or _is_rewritten(seen, each)):
            continue
        why = "its disk goes" if loses else "something else is deployed, and its disk is rewritten"
        step = Step(Action.REPLACE, each.key, why, each, _nothing_on(seen))
        if index is None:
            result.append(step)
        elif steps[index].action is Action.CHANGE:
            changes = [replace(change, rule="replace") for change in steps[index].changes]
            result[index] = replace(step, changes=tuple(changes))
    return result


def orphaned(observed: Observed) -> Observed:
    """A node in Ironic without a machine, whose BMC no one serves: it is let go of as it is."""
    if not isinstance(observed.shape, IronicStanding):
        return observed
    return replace(observed, shape=replace(observed.shape, state=ORPHANED))


def _lost(
    steps: Iterable[Step],
    desired: Desired,
    found: Found,
    machines: Mapping[str, Observed],
    looked_at: AbstractSet[str],
) -> Mapping[str, set[str]]:
    """Node -> its disks that are removed, or made again. What an interrupted move left on a host
    where its machine is no more is nothing that it has.
    """
    disks = [step for step in steps if step.key.kind is Kind.VOLUME]
    had = _disks(desired, found) if disks else {}
    result: defaultdict[str, set[str]] = defaultdict(set)
    for step in disks:
        node, name = whose(step.key), step.key.name
        home = machines[node].key.place if node in machines else step.removes.place
        if step.action is Action.CREATE:
            lost = name in had.get(node, ()) and _is_recreated(step, found, looked_at)
        else:
            lost = step.action is not Action.CHANGE and home == step.removes.place
        if lost:
            result[node].add(name)
    for step in steps:
        if step.key.kind is Kind.MACHINE and step.action is Action.REPLACE:
            result[step.node] |= set(_own_disks(step.observed))
    return result


def _own_disks(observed: Observed | None) -> Iterable[str]:
    """Those that come and go with a machine, as a cloud's do."""
    match observed:
        case Observed(shape=Machine(disks=disks)):
            return (disk.volume for disk in disks if disk.size)
        case _:
            return ()


def _disks(desired: Desired, found: Found) -> dict[str, list[str]]:
    """Node -> the disks that it has; those that it is to have, where it is not there."""
    result = {}
    for each in desired.values():
        if each.key.kind is Kind.MACHINE:
            there = found[each.key].shape if each.key in found else each.shape
            assert isinstance(there, Machine), "machine keys have machine shapes"
            result[each.node] = [disk.volume for disk in there.disks]
    return result


def _is_recreated(step: Step, found: Found, looked_at: AbstractSet[str]) -> bool:
    """Whether a disk that is to be made is there no more."""
    machine = Key(Kind.MACHINE, step.key.place, step.node)
    return machine not in found or step.key.place in looked_at


def _looked_at(found: Found) -> AbstractSet[str]:
    """Hosts on which disks that are not seen are gone. While the cluster's pool there is stopped or
    unknown, they are there still when that is repaired.
    """
    pools = [(key.place, each.fault) for key, each in found.items() if key.kind is Kind.POOL]
    return {host for host, _ in pools} - {host for host, fault in pools if fault}


def _may_lose(resource: Resource, seen: Observed) -> bool:
    """Whether anything is deployed on a node that is to stay."""
    return seen.running or _standing(resource.shape).state == Standing.ACTIVE


def _is_rewritten(seen: Observed, resource: Resource) -> bool:
    """Whether Ironic has to deploy something else on a node that we deployed."""
    here, there = _standing(seen.shape), _standing(resource.shape)
    both = here.state == there.state == Standing.ACTIVE
    return both and not seen.running and here.settings != there.settings


def _loses(
    seen: Observed,
    lost: AbstractSet[str],
    machine: Observed | None,
    found: Found,
    looked_at: AbstractSet[str],
) -> bool:
    """Whether what Ironic has on the node may be lost, or is. Without a machine, the disks of the
    one that it had may be gone without a step.
    """
    roots = _standing(seen.shape).roots
    if seen.running or machine is None or roots is None:
        return bool(lost)
    return any(each in lost or _is_gone(each, machine, found, looked_at) for each in roots)


def _is_gone(name: str, machine: Observed, found: Found, looked_at: AbstractSet[str]) -> bool:
    """Whether a disk that a node had is there no more. Those of others are not looked at."""
    key = Key(Kind.VOLUME, machine.key.place, name)
    is_own = whose(key) == machine.key.name
    return is_own and key not in found and key.place in looked_at


def _nothing_on(observed: Observed) -> Observed:
    return replace(observed, shape=replace(_standing(observed.shape), state=BLANK))


def _standing(shape: object) -> IronicStanding:
    assert isinstance(shape, IronicStanding), "keys of this kind have shapes of it"
    return shape
