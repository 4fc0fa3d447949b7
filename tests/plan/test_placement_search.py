"""Placement against brute force: what fits somehow is placed, and nothing breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from hypothesis import example, given
from hypothesis import strategies as st

from nospoon.model.cluster import Arch, Cluster, Firmware, Host, Node, Overcommit, Strategy
from nospoon.model.cluster import Placement as Rules
from nospoon.model.host_facts import HostFacts
from nospoon.plan.placement.placement import place
from nospoon.plan.placement.room import Usage, demand

GIB = 1 << 30
EXACT = Overcommit(1, 1, 1)


@dataclass(frozen=True, slots=True)
class Rack:
    """A small cluster; hosts have as many CPUs as GiB of memory. `earlier`: what is there."""

    hosts: tuple[int, ...]
    nodes: tuple[Node, ...]
    earlier: Mapping[str, str]

    @property
    def cluster(self) -> Cluster:
        hosts = tuple(Host(f"h{n}", overcommit=EXACT) for n in range(len(self.hosts)))
        return Cluster("rack", hosts, (), (), self.nodes)

    @property
    def facts(self) -> dict[str, HostFacts]:
        return {f"h{n}": facts(size) for n, size in enumerate(self.hosts)}

    @property
    def staying(self) -> dict[str, str]:
        pins = {node.name: node.host for node in self.nodes}
        return {n: h for n, h in self.earlier.items() if pins.get(n, h) in ("", h)}


def facts(size: int) -> HostFacts:
    return HostFacts(
        frozenset(Firmware), frozenset(Arch), tpm=True,
        cpus=size, memory=size * GIB,
    )  # fmt: skip


def node(name: str, size: int, *, host: str = "", rules: Rules, **labels: str) -> Node:
    memory = size * GIB
    given = tuple(labels.items())
    return Node(name, host=host, cpus=size, memory=memory, labels=given, placement=rules)


KEYS = st.lists(st.sampled_from(["role", "zone"]), unique=True, max_size=2).map(tuple)
VALUES = st.sampled_from(["a", "b", "c"])


@st.composite
def racks(draw: st.DrawFn) -> Rack:
    hosts = tuple(draw(st.lists(st.integers(2, 8), min_size=1, max_size=4)))
    names = st.sampled_from([f"h{n}" for n in range(len(hosts))])
    strategy = draw(st.sampled_from(Strategy))
    alike = draw(st.booleans())
    rules = Rules(strategy, draw(KEYS), draw(KEYS))
    nodes = tuple(
        node(
            f"n{index}", draw(st.integers(1, 6)), host=draw(st.sampled_from([""] * 6) | names),
            rules=rules if alike else Rules(strategy, draw(KEYS), draw(KEYS)), role=draw(VALUES),
            zone=draw(VALUES),
        )
        for index in range(draw(st.integers(1, 6)))
    )  # fmt: skip
    return Rack(hosts, nodes, draw(st.dictionaries(st.just("n0"), names, max_size=1)))


def tokens(node: Node, kind: str) -> tuple[tuple[str, str], ...]:
    rules = node.placement
    return rules.together_with(node) if kind == "affinity" else rules.apart_from(node)


def wrong(rack: Rack, homes: Mapping[str, str]) -> Iterator[str]:
    """Every rule that some nodes, placed so, break."""
    placed = [node for node in rack.nodes if node.name in homes]
    for name, size in rack.facts.items():
        there = [node for node in placed if homes[node.name] == name]
        taken = sum((demand(node) for node in there), Usage())
        if taken.missing(Usage(size.cpus, size.memory)):
            yield f"{name} has too much"
    for one in placed:
        if one.host not in ("", homes[one.name]):
            yield f"{one.name} is not where it is pinned"
        for other in placed:
            share = homes[one.name] == homes[other.name]
            if one is not other and share and {*tokens(one, "apart")} & {*tokens(other, "apart")}:
                yield f"{one.name} and {other.name} share a host"
            both = {*tokens(one, "affinity")} & {*tokens(other, "affinity")}
            if both and not share:
                yield f"{one.name} and {other.name} do not share a host"


def possible(rack: Rack) -> bool:
    hosts = list(rack.facts)
    choices = [
        [rack.staying[node.name]] if node.name in rack.staying else hosts for node in rack.nodes
    ]
    names = [node.name for node in rack.nodes]
    return any(
        not any(wrong(rack, dict(zip(names, homes, strict=True)))) for homes in product(*choices)
    )


SMALL = Rules(Strategy.SPREAD)


@given(racks())
@example(Rack((4, 4), (*(node(f"n{n}", 1, rules=SMALL) for n in range(4)),
                       node("big", 4, rules=SMALL)), {}))  # fmt: skip
def test_what_brute_force_finds_a_place_for_is_placed_and_no_rule_is_broken(rack: Rack) -> None:
    placed, reasons = place(rack.cluster, rack.earlier, rack.facts, {})
    homes = {name: each.host for name, each in placed.items()}
    crowded = any(wrong(rack, rack.staying))  # what is there stays there, though it does not fit
    assert crowded or not list(wrong(rack, homes))
    assert (len(homes) == len(rack.nodes)) is (not reasons)
    if possible(rack):
        assert not reasons
    assert place(rack.cluster, rack.earlier, rack.facts, {}) == (placed, reasons)


@given(racks())
def test_what_was_placed_stays_where_it_is(rack: Rack) -> None:
    placed, reasons = place(rack.cluster, {}, rack.facts, {})
    homes = {name: each.host for name, each in placed.items()}
    kept, again = place(rack.cluster, homes, rack.facts, {})
    assert reasons or ({name: each.host for name, each in kept.items()} == homes and not again)
