"""Decisions that can be seen: what is on the hosts tells where nodes are, and with which numbers.

A lost store is made again from them. A store that knows a part of a cluster only takes in the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_interface

from nospoon.model.resources.keys import Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed
from nospoon.plan.addresses import notes
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.plan.addresses.found_numbers import found_hosts, found_nics, rebased
from nospoon.plan.addresses.notes import Noted
from nospoon.plan.addresses.numbers import HostNumbers, network_of, node_of


def found_allocations(things: Sequence[Observed], *, low: int = 0) -> Allocations:
    """Of an endpoint that two nodes note, the first has it. `low`: see `found_hosts`."""
    noted = {each.key.name: notes.read(each.tag.note) for each in _machines(things)}
    links = {e.key.name: e.shape for e in things if isinstance(e.shape, Link)}
    outlets = {node: told.outlet for node, told in noted.items() if told.outlet is not None}
    ends = found_hosts(things, low=low)
    return Allocations(
        cidrs={
            name: str(ip_interface(link.address).network)
            for name, link in links.items()
            if link.address
        },
        hosts={each.key.name: each.key.place for each in _machines(things)},
        endpoints={node: told.bmc for node, told in _first_of(noted) if told.bmc is not None},
        outlets=outlets if len(set(outlets.values())) == len(outlets) else {},
        numbers=found_nics(things, ends),
        ends=ends,
    )


def completed(
    decided: Allocations, things: Sequence[Observed], known: Collection[str]
) -> Allocations:
    """With the nodes that are there and not `known`, by name: they stay where they are, and as far
    as that is no one else's by now, with what they have.
    """
    new = {each.key.name for each in _machines(things)} - {*known}
    if not new:
        return decided
    found = found_allocations(things, low=decided.ends.low)
    ends, numbers = decided.ends, decided.numbers
    if found.ends.low:
        ends, numbers = rebased(ends, numbers, things, low=found.ends.low)
    given = {(network_of(key), number) for key, number in numbers.items()}
    places = {_place(each) for each in decided.endpoints.values()} - {None}
    outlets = set(decided.outlets.values())
    return replace(
        decided,
        cidrs={**found.cidrs, **decided.cidrs},
        hosts={**decided.hosts, **{name: found.hosts[name] for name in new}},
        endpoints={
            **{
                name: each
                for name, each in found.endpoints.items()
                if name in new and _place(each) not in places
            },
            **decided.endpoints,
        },
        outlets={
            **{n: each for n, each in found.outlets.items() if n in new and each not in outlets},
            **decided.outlets,
        },
        numbers={
            **{
                key: number
                for key, number in found.numbers.items()
                if node_of(key) in new and (network_of(key), number) not in given
            },
            **numbers,
        },
        ends=HostNumbers(found.ends.low or ends.low, _each_once(found.ends.of, ends.of)),
    )


def _each_once(found: Mapping[str, int], decided: Mapping[str, int]) -> dict[str, int]:
    """What was decided, with hosts that are found with a number of their own."""
    taken = {*decided.values()}
    return {host: n for host, n in found.items() if n not in taken} | dict(decided)


def _machines(things: Iterable[Observed]) -> list[Observed]:
    """Of two of one name the one that runs is told of last."""
    machines = (each for each in things if each.key.kind is Kind.MACHINE)
    return sorted(machines, key=lambda each: each.running)


def _place(end: Endpoint) -> tuple[str, int] | None:
    """None: it shares its port with others."""
    return (end.address, end.ipmi_port) if end.ipmi_port else None


def _first_of(noted: Mapping[str, Noted]) -> Iterator[tuple[str, Noted]]:
    taken: set[object] = set()
    for node, told in noted.items():
        place = _place(told.bmc) if told.bmc is not None else None
        if place not in taken:
            yield node, told
        if place is not None:
            taken.add(place)
