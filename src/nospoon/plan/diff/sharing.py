"""What targets share with nodes that are none: DHCP of their networks, and tunnels to other hosts.

Their steps come along, with what the others have there kept as it is found.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource, Shape
from nospoon.plan.diff.diff import field_changes
from nospoon.plan.order.steps import Action, Step


def shared(desired: Mapping[Key, Resource], wanted: Collection[Key]) -> set[Key]:
    """DHCP on the networks among these, and their far ends, with the DHCP there."""
    found = {key for key in wanted if key.kind is Kind.NETWORK}
    joined = {key.name for key in found if key in desired and _is_joined(desired[key].shape)}
    found |= {key for key in desired if key.kind is Kind.NETWORK and key.name in joined}
    return {key for link in found for key in (link, replace(link, kind=Kind.NETBOOT))}


def serves(step: Step, nodes: Collection[str]) -> bool:
    """Whether this changes DHCP that gives one of these nodes an address, which may have left."""
    match step:
        case Step(action=Action.CHANGE, observed=Observed(shape=NetbootService() as service)):
            return any(each.hostname in nodes for each in service.reservations)
        case _:
            return False


def _is_joined(shape: Shape) -> bool:
    return isinstance(shape, Link) and shape.tunnel is not None


def without_others(step: Step, nodes: Collection[str], *, again: bool) -> Step | None:
    """A shared step that leaves the others than these nodes as they are; None: nothing is left.

    `again`: the bridge below is made again, and a service on it with it.
    """
    if step.desired is None or step.observed is None or step.action is not Action.CHANGE:
        return step
    shape = _merged(step.observed.shape, step.desired.shape, nodes)
    if shape == step.desired.shape != step.observed.shape:
        return step
    if _alike(shape, step.observed.shape) and not (step.observed.fault or again):
        return None
    rules = {change.field: change.rule for change in step.changes}
    changes = tuple(field_changes(step.observed.shape, shape, rules))
    why = step.why if changes else step.observed.fault or "network changes"
    return replace(step, desired=replace(step.desired, shape=shape), changes=changes, why=why)


def _alike(one: Shape, other: Shape) -> bool:
    """Equal, but for the order in which nodes are in the file."""
    if isinstance(one, NetbootService) and isinstance(other, NetbootService):
        same = set(one.reservations) == set(other.reservations)
        return same and replace(one, reservations=other.reservations) == other
    return one == other


def _merged(observed: Shape, desired: Shape, nodes: Collection[str]) -> Shape:
    match observed, desired:
        case NetbootService(), NetbootService() if observed.address == desired.address:
            given = tuple(_reservations(observed, desired, nodes))
            return replace(desired, reservations=given)
        case Link(), Link() if observed.tunnel is not None and desired.tunnel is not None:
            known = observed.tunnel.peers
            added = tuple(each for each in desired.tunnel.peers if each not in known)
            return replace(desired, tunnel=replace(desired.tunnel, peers=(*known, *added)))
        case _:
            return desired


def _reservations(
    observed: NetbootService, desired: NetbootService, nodes: Collection[str]
) -> Iterator[Reservation]:
    """In the order of the file; then those of nodes that are in it no more. Of the others, what is
    found holds, but for an address that a target has now.
    """
    taken = {
        address
        for each in desired.reservations
        if each.hostname in nodes
        for address in (each.address, each.address6)
    } - {""}
    kept = {
        each.mac: each
        for each in observed.reservations
        if each.hostname not in nodes and taken.isdisjoint((each.address, each.address6))
    }
    for each in desired.reservations:
        if each.hostname in nodes:
            yield each
        elif each.mac in kept:
            yield kept.pop(each.mac)
    yield from kept.values()
