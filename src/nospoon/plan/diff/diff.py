"""Desired against observed: the steps that make one into the other.

A field that differs asks the connection's rules how it may change. What a replaced resource is
needed by and is running is replaced with it, for one cannot change a disk under a guest's feet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, replace
from types import MappingProxyType
from uuid import UUID

from nospoon.model.ironic import Settings
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.resource import Deviation, Observed, Resource, Shape
from nospoon.model.resources.storage import Volume
from nospoon.model.rest.plans import FieldChange
from nospoon.plan.addresses.notes import described, read
from nospoon.plan.diff.blank import orphaned, redeployed
from nospoon.plan.diff.held import held, with_addresses
from nospoon.plan.diff.in_ironic import KEPT, firmware_changes, told, undeployed
from nospoon.plan.diff.relocate import deletions, moved, reading_order
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.steps import Action, Plan, Step
from nospoon.plan.words import HIDDEN, both_texts, brief, listed

Rules = Mapping[str, Mapping[Kind, Mapping[str, str]]]
"""Host -> kind -> field -> "live", "at power-off" or "replace" (the default)."""

NO_RULES: Mapping[str, str] = MappingProxyType({})


def diff(
    *,
    cluster: str,
    cluster_id: UUID,
    desired: Mapping[Key, Resource],
    observed: Iterable[Observed],
    rules: Rules,
    notes: tuple[str, ...] = (),
    why: Mapping[Key, str] | None = None,
) -> Plan:
    """The plan. Observed resources that no one desires any more are deleted.

    `why`: of things that are to be made, why where they are.
    """
    reasons = why or {}
    found = {each.key: each for each in observed}
    steps = _steps(desired, found, rules, reasons)
    ends = {step.key for step in steps if step.action is Action.REPLACE}
    renewed = with_addresses(desired, found, ends)
    if renewed:
        desired = {**desired, **renewed}
        steps = _steps(desired, found, rules, reasons)
    machines = {key.name for key in found if key.kind is Kind.MACHINE}
    gone = [
        each if key.name in machines else orphaned(each)
        for key, each in found.items()
        if key not in desired
    ]
    steps, gone = moved(steps, gone, reasons)
    ends = {step.removes for step in steps if step.action is Action.REPLACE}
    now, later = held(deletions(gone, desired), found.values(), ends)
    steps = told(redeployed([*steps, *now], later, desired, found))
    return Plan(
        cluster=cluster,
        cluster_id=cluster_id,
        steps=tuple(steps),
        later=tuple(later),
        holding=tuple(renewed),
        unchanged=len(desired) - sum(1 for step in steps if step.desired is not None),
        notes=(
            *notes,
            *_waiting(desired, found, ends, rules),
            *firmware_changes(steps, found),
            *_forced(steps),
        ),
    )


def _forced(steps: Iterable[Step]) -> Iterable[str]:
    names = undeployed(steps)
    if names:
        yield f"deployed, and no longer in the file: {listed(names)}. `up` needs --force for this"


def _steps(
    desired: Mapping[Key, Resource],
    found: Mapping[Key, Observed],
    rules: Rules,
    reasons: Mapping[Key, str],
) -> list[Step]:
    """For what is desired."""
    steps = []
    for key, resource in desired.items():
        there = found.get(key)
        if there is None or there.shape != resource.shape or there.deviations:
            by = rules.get(key.place, {}).get(key.kind, NO_RULES)
            steps.append(_step(resource, there, by))
        elif (step := _alike(resource, there)) is not None:
            steps.append(step)
    steps = [_explained(step, reasons.get(step.key, "")) for step in steps]
    steps += _unplugged(steps, desired, found)
    steps = _with_ports(steps, desired, found)
    steps = _with_disturbed(_with_trunks(steps, desired, found), desired, found)
    return steps + _plugged_again(steps, desired, found)


def _waiting(
    desired: Mapping[Key, Resource],
    found: Mapping[Key, Observed],
    ends: AbstractSet[Key],
    rules: Rules,
) -> Iterable[str]:
    """Notes on machines that run on with what they had, in the order of the file."""
    late = {key for key, each in found.items() if each.waits} - ends
    told = (
        waiting(found[key], desired[key].shape, rules.get(key.place, {}).get(key.kind, {}))
        for key in desired
        if late and key in late
    )
    return filter(None, told)


def waiting(
    observed: Observed | None,
    desired: Shape | None = None,
    rules: Mapping[str, str] = NO_RULES,
) -> str:
    """What a running machine gets at its next power-off, "" when it has everything. `desired`: what
    it is to be, where that is not what it is defined as now; what changes live by `rules` is none.
    """
    if observed is None or not observed.waits:
        return ""
    will, has = desired or observed.shape, observed.live or observed.shape
    at_once = {
        each.field for each in field_changes(observed.shape, will, rules) if each.rule == "live"
    }
    listed = ", ".join(
        f"{each.field} (changed)"
        if each.desired == HIDDEN
        else f"{each.field} {each.observed} -> {each.desired}"
        for each in (*field_changes(has, will, {}), *_deviating(observed.late, {}))
        if each.field not in at_once
    )
    return f"{observed.key.name} has to be powered off for {listed}" if listed else ""


def removal(
    *, cluster: str, cluster_id: UUID, observed: Iterable[Observed], why: str = "down"
) -> Plan:
    """The plan that removes everything observed."""
    steps = (
        Step(Action.DELETE, each.key, why, observed=each)
        for each in sorted(observed, key=lambda each: reading_order(each.key))
    )
    return Plan(cluster=cluster, cluster_id=cluster_id, steps=tuple(told(steps, refused=KEPT)))


def _alike(resource: Resource, found: Observed) -> Step | None:
    """For what has the shape that it is to have."""
    if found.fault and KINDS[resource.key.kind].repaired:
        return Step(Action.CHANGE, resource.key, found.fault, resource, found)
    return _noted_again(resource, found)


def _step(resource: Resource, found: Observed | None, rules: Mapping[str, str]) -> Step:
    """For what is missing, or has another shape."""
    if found is None:
        return Step(Action.CREATE, resource.key, "missing", desired=resource)
    changes = (
        *field_changes(found.shape, resource.shape, rules),
        *_deviating(found.deviations, rules),
    )
    names = ", ".join(change.field for change in changes)
    differ = f"{names} {'differs' if len(changes) == 1 and _is_one(names) else 'differ'}"
    if any(change.rule == "replace" for change in changes):
        return Step(Action.REPLACE, resource.key, differ, resource, found, changes)
    late = found.running and any(change.rule == "at power-off" for change in changes)
    return Step(Action.CHANGE, resource.key, differ, resource, found, changes, late)


def _is_one(name: str) -> bool:
    """Whether a field's name is a singular."""
    return not name.endswith("s") or name.endswith("ss")


def _noted_again(resource: Resource, found: Observed) -> Step | None:
    """A tag that notes something else is written again; those of earlier versions noted nothing."""
    if found.tag.note in ("", resource.note):
        return None
    was, will = (described(read(note)) for note in (found.tag.note, resource.note))
    changes = (FieldChange("note in its tag", was, will, "live"),)
    return Step(Action.CHANGE, resource.key, "its tag differs", resource, found, changes)


def _gets_root(step: Step) -> bool:
    """Whether it is of a VM or container that runs, of which the first disk is its root."""
    match step.observed, step.desired:
        case Observed(running=True, shape=Machine() as found), Resource(shape=Machine() as wanted):
            had, gets = ([disk.volume for disk in each.disks[:1]] for each in (found, wanted))
            return wanted.kind is not NodeKind.BAREMETAL and had != gets
        case _:
            return False


def _begun_again(step: Step) -> Step:
    """Its guest cannot go on upon another root."""
    changes = tuple(
        replace(each, rule="replace") if each.field == "disks" else each for each in step.changes
    )
    return replace(step, action=Action.REPLACE, changes=changes, at_power_off=False)


def _explained(step: Step, reason: str) -> Step:
    made = step.action is Action.CREATE
    return replace(step, why=f"{step.why}; {reason}") if made and reason else step


def field_changes(
    observed: Shape, desired: Shape, rules: Mapping[str, str]
) -> Iterable[FieldChange]:
    """The fields in which two shapes of one kind differ."""
    if type(observed) is not type(desired):
        yield FieldChange("kind", type(observed).__name__, type(desired).__name__, "replace")
        return
    for field in (each for each in fields(desired) if each.compare):
        before, after = getattr(observed, field.name), getattr(desired, field.name)
        if before != after and field.name == "settings":
            yield from _settings(before, after, rules.get(field.name, "replace"))
        elif before != after:
            shrinks = _shrinks(before, after, desired)
            rule = "replace" if shrinks else rules.get(field.name, "replace")
            name, secret = field.name, not field.repr
            told = (HIDDEN, HIDDEN) if secret else both_texts(name, before, after)
            yield FieldChange(name, *told, rule)


def _deviating(found: Iterable[Deviation], rules: Mapping[str, str]) -> Iterator[FieldChange]:
    """Changes that bring back what deviates."""
    for each in found:
        texts = both_texts(each.field, each.found, each.wanted)
        yield FieldChange(each.field, *texts, rules.get(each.field, "replace"))


def _settings(before: Settings, after: Settings, rule: str) -> Iterable[FieldChange]:
    was, will = ({each.name: each.value for each in some} for some in (before, after))
    for name in sorted(was.keys() | will.keys()):
        if was.get(name) != will.get(name):
            had, gets = (brief(each.get(name, "none")) for each in (was, will))
            yield FieldChange(brief(name), had, gets, rule)


def _shrinks(before: object, after: object, desired: Shape) -> bool:
    """No one can take the end of a disk away and leave the rest whole."""
    sizes = isinstance(before, int) and isinstance(after, int)
    return isinstance(desired, Volume) and sizes and after < before  # type: ignore[operator]


def _unplugged(
    steps: Iterable[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """Services on networks of which a change makes the bridge again: they begin again on it."""
    known = {step.key for step in steps}
    again = {step.key for step in steps if step.key.kind is Kind.NETWORK and step.changes}
    if not again:
        return []
    return [
        Step(Action.CHANGE, key, f"{need} changes", resource, found[key])
        for key, resource in desired.items()
        if isinstance(resource.shape, NetbootService) and not resource.shape.router  # a relay's
        if key in found and key not in known
        for need in resource.needs
        if need in again
    ]


def _with_ports(
    steps: Sequence[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """A cloud removes no network that has ports: they are replaced with it, those of routers by
    replacing the router.
    """
    known = {step.key: step for step in steps}
    replaced = {
        step.key
        for step in steps
        if step.key.kind is Kind.NETWORK and step.action is Action.REPLACE
    }
    for key, resource in desired.items() if replaced else ():
        lost = [need for need in resource.needs if need in replaced]
        if key.kind in {Kind.PORT, Kind.ROUTER} and key in found and lost:
            known[key] = Step(Action.REPLACE, key, f"{lost[0]} is replaced", resource, found[key])
    return list(known.values())


def _with_trunks(
    steps: Sequence[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """A cloud removes no port that is part of a trunk: trunks are replaced with their ports."""
    known = {step.key: step for step in steps}
    replaced = _replaced_ports(steps)
    for key, resource in desired.items() if replaced else ():
        if key.kind is Kind.TRUNK and key in found:
            lost = [need for need in resource.needs if need in replaced]
            if lost:
                why = f"{lost[0]} is replaced"
                known[key] = Step(Action.REPLACE, key, why, resource, found[key])
    return list(known.values())


def _plugged_again(
    steps: Sequence[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """Machines that are off, and that lose a port with which they were found; and floating IPs."""
    replaced = _replaced_ports(steps)
    if not replaced:
        return []
    known = {step.key for step in steps}
    return [
        Step(Action.CHANGE, key, f"{lost[0]} is replaced", resource, found[key])
        for key, resource in desired.items()
        if key.kind in {Kind.MACHINE, Kind.FLOATING_IP} and key in found and key not in known
        if (lost := [need for need in resource.needs if need in replaced])
    ]


def _replaced_ports(steps: Iterable[Step]) -> set[Key]:
    return {
        step.key for step in steps if step.key.kind is Kind.PORT and step.action is Action.REPLACE
    }


def _with_disturbed(
    steps: list[Step], desired: Mapping[Key, Resource], found: Mapping[Key, Observed]
) -> list[Step]:
    """Running machines whose needs are replaced are replaced too, and all whose disks come to lie
    somewhere else. So are those that get another root.
    """
    steps = [_begun_again(step) if _gets_root(step) else step for step in steps]
    replaced = {step.key for step in steps if step.action is Action.REPLACE}
    if not replaced:
        return steps
    at = {step.key: index for index, step in enumerate(steps)}
    moved = {step.key for step in steps if _moves(step)}
    result = list(steps)
    for key, resource in desired.items():
        observed = found.get(key)
        lost = [need for need in resource.needs if need in replaced]
        moves = not moved.isdisjoint(lost)
        if observed is None or not lost or not (observed.running or moves):
            continue
        if moves and key.kind is Kind.VOLUME:
            moved.add(key)
        why = f"{lost[0]} is replaced"
        step = Step(Action.REPLACE, key, why, resource, observed)
        replaced.add(key)
        if key in at:
            result[at[key]] = step
        else:
            result.append(step)
    return result


def _moves(step: Step) -> bool:
    """Whether disks come to lie somewhere else: a pool does, or they are in another one."""
    if step.action is not Action.REPLACE:
        return False
    of_volume = step.key.kind is Kind.VOLUME and any(each.field == "pool" for each in step.changes)
    return step.key.kind is Kind.POOL or of_volume
