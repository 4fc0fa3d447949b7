"""Free networks are found in one pass over what is taken."""

from __future__ import annotations

import sys
from ipaddress import IPv4Network

from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.networks import PRIVATE, SECOND_PRIVATE
from nospoon.plan.addresses.taken import Taken

networks = st.builds(
    lambda third, fourth, length: IPv4Network((f"172.{third}.{fourth}.0", length), strict=False),
    st.integers(29, 31),
    st.integers(0, 8),
    st.integers(8, 30),
)


@given(st.lists(networks), st.lists(networks))
def test_what_is_free_is_what_overlaps_nothing(
    taken: list[IPv4Network], asked: list[IPv4Network]
) -> None:
    known, held = Taken(taken), list(taken)
    for each in asked:
        free = not any(each.overlaps(other) for other in held)
        assert known.frees(each) is free
        if free:
            known.add(each)
            held.append(each)


def chosen(count: int, taken: list[IPv4Network], first: int = 0) -> tuple[dict[str, str], int]:
    """Networks of a cluster that chooses so many, and calls of functions meanwhile."""
    names = ", ".join(f"n{number}: {{netboot: builtin}}" for number in range(count))
    cluster = load(f"{{cluster: c, networks: {{{names}}}, nodes: [{{}}]}}", file="f")
    calls = 0

    def called(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        del frame, arg
        calls += event == "call"

    sys.setprofile(called)
    try:
        decided, reasons = allocate(
            cluster, Allocations(), Occupied(tuple(taken)), first_choice=first
        )
    finally:
        sys.setprofile(None)
    assert not reasons
    return dict(decided.cidrs), calls


def test_each_network_gets_the_next_free_one_from_the_first_choice_on() -> None:
    given = [IPv4Network("172.30.254.0/24"), IPv4Network("172.30.0.16/28")]
    found, _ = chosen(3, given, first=253)
    assert list(found.values()) == ["172.30.253.0/24", "172.30.255.0/24", "172.30.1.0/24"]
    found, _ = chosen(2, [PRIVATE])
    assert list(found.values()) == [str(each) for each in list(SECOND_PRIVATE.subnets(8))[:2]]


def test_many_networks_are_chosen_without_a_scan_of_all_that_is_taken_for_each() -> None:
    """As many calls of Python functions for each network that is taken as for few that choose."""
    few = [IPv4Network((0x0B000000 + (number << 8), 24)) for number in range(100)]
    many = [IPv4Network((0x0B000000 + (number << 8), 24)) for number in range(2100)]
    more = chosen(200, many)[1] - chosen(200, few)[1]
    assert more < 2000 * 20


def test_a_network_keeps_what_it_had_while_that_is_free() -> None:
    cluster = load(
        "{cluster: c, networks: {a: {netboot: builtin}, b: {netboot: builtin}}, nodes: [{}]}",
        file="f",
    )
    before = Allocations(cidrs={"a": "172.30.9.0/24", "b": "10.0.0.0/22"})
    kept, _ = allocate(cluster, before, Occupied())
    assert kept.cidrs == before.cidrs
    moved, _ = allocate(cluster, before, Occupied((IPv4Network("10.0.1.0/24"),)))
    assert moved.cidrs == {"a": "172.30.9.0/24", "b": "172.30.0.0/24"}


def test_a_network_keeps_what_it_had_whatever_stands_before_it_or_is_elsewhere() -> None:
    """A new one that the file has first takes the next one; a cluster on other hosts takes none."""
    one, two = IPv4Network("172.30.9.0/24"), IPv4Network("172.30.9.128/25")
    cluster = load(
        "{cluster: c, networks: {new: {nat: true}, old: {nat: true}}, nodes: [{}]}", file="f"
    )
    before = Allocations(cidrs={"old": str(one)})
    for others in ((), (one,), (two,)):
        kept, _ = allocate(cluster, before, Occupied(others=others), first_choice=9)
        assert kept.cidrs == {"new": "172.30.10.0/24", "old": str(one)}
    disputed = Occupied(others=(two,), disputed={"old"})
    moved, _ = allocate(cluster, before, disputed, first_choice=9)
    assert moved.cidrs == {"new": "172.30.10.0/24", "old": "172.30.11.0/24"}
