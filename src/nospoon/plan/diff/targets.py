"""A part of a plan: some nodes, what they need, and what a replacement of that disturbs."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.diff.sharing import serves, shared, without_others
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Action, Plan, Step


def only(plan: Plan, desired: Mapping[Key, Resource], nodes: Collection[str]) -> Plan:
    """The plan with the steps for these nodes alone; all of it where there are no nodes."""
    if not nodes:
        return plan
    wanted = _closure(desired, {step.key for step in plan.steps if step.node in nodes})
    wanted |= _closure(desired, {key for key, each in desired.items() if each.node in nodes})
    replaced = {s.key for s in plan.steps if s.action is Action.REPLACE and s.key in wanted}
    while disturbed := set(_disturbed(plan, replaced)) - wanted:
        wanted |= _closure(desired, disturbed)
        replaced |= disturbed
    kept = tuple(_part(plan, wanted, shared(desired, wanted), nodes))
    left = len(plan.steps) - len(kept)
    note = f"{left} other steps are left for an `up` without --target"
    notes = (*plan.notes, note) if left else plan.notes
    later = tuple(step for step in plan.later if step.node in nodes)
    return replace(plan, steps=kept, later=later, notes=notes)


def _part(
    plan: Plan, wanted: Container[Key], common: Container[Key], nodes: Collection[str]
) -> Iterator[Step]:
    whose = {*nodes, *(step.node for step in plan.steps if step.key in wanted)} - {""}
    mine = [
        step
        for step in plan.steps
        if serves(step, whose) or (step.key in common and _comes_along(step, wanted))
    ]
    links = _parts((s for s in mine if s.key.kind is Kind.NETWORK), whose, again=frozenset())
    again = {key for key, step in links.items() if step is not None}
    parts = links | _parts((s for s in mine if s.key not in links), whose, again=again)
    for step in plan.steps:
        part = parts.get(step.key, step if step.key in wanted else None)
        if part is not None:
            yield part


def _parts(
    steps: Iterable[Step], nodes: Collection[str], *, again: Container[Key]
) -> dict[Key, Step | None]:
    return {s.key: without_others(s, nodes, again=_link_of(s.key) in again) for s in steps}


def _comes_along(step: Step, wanted: Container[Key]) -> bool:
    """Whether a step for what targets share belongs to their part; what is to be made on another
    host waits for the nodes there.
    """
    here = _link_of(step.key) in wanted
    return step.action is Action.CHANGE or (here and step.action is not Action.DELETE)


def _link_of(service: Key) -> Key:
    return replace(service, kind=Kind.NETWORK)


def elsewhere(plan: Plan, hosts: Container[str], nodes: Container[str]) -> Plan:
    """The plan without the steps on these hosts, and for these nodes wherever they are."""

    def kept(steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(
            step for step in steps if step.key.place not in hosts and step.node not in nodes
        )

    return replace(plan, steps=kept(plan.steps), later=kept(plan.later))


def touched(plan: Plan) -> set[str]:
    """The nodes of which a plan has steps."""
    return {step.node for step in plan.steps} - {""}


def _closure(desired: Mapping[Key, Resource], keys: Collection[Key]) -> set[Key]:
    """These and all that they need."""
    found: set[Key] = set()
    open_ = list(keys)
    while open_:
        key = open_.pop()
        if key not in found:
            found.add(key)
            open_ += desired[key].needs if key in desired else ()
    return found


def _disturbed(plan: Plan, replaced: Collection[Key]) -> Iterator[Key]:
    """Steps for what needs something that is replaced, and for what was deployed upon it."""
    bare = {whose(key) for key in replaced if key.kind is Kind.VOLUME}
    for step in plan.steps:
        needs = step.desired.needs if step.desired is not None else ()
        deployed = step.action is Action.REPLACE and step.key.kind is Kind.IRONIC_STANDING
        if not set(needs).isdisjoint(replaced) or (deployed and step.node in bare):
            yield step.key
