"""Which node goes to which host, and why: pure, the same for the same input, quick for thousands.

What is placed stays. Every other node goes, in the order of the file (of the largest first, when it
is to be packed), to the host that its strategy likes best among those that fit:

    spread    the host with the fewest nodes
    balance   the host whose scarcest resource is least used
    pack      the host whose scarcest resource is most used

A host fits when it can have such a node at all (`plan.hosts`), has room for it (its CPUs, memory
and disk, times the overcommit ratio), isn't drained, and none of the node's rules forbids it. Nodes
that are alike share one heap of hosts: one that does not fit the first fits none that comes later.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nospoon.model.cluster import Cluster, Host, Node, Strategy
from nospoon.plan.hosts import HostFacts, against_networks, against_node

MENTIONED = 4
"""Hosts that a refusal tells of; more would not be read."""

CALLED = {"cpus": "CPUs", "memory": "memory", "disk": "disk space"}
"""Field of `overcommit` -> what a refusal calls it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is taken, or asked for. `memory` and `disk` in bytes."""

    cpus: float = 0
    memory: float = 0
    disk: float = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpus + other.cpus, self.memory + other.memory, self.disk + other.disk)

    def share(self, room: Usage) -> float:
        """How much of the scarcest resource is taken, from 0; what is unknown is never scarce."""
        pairs = (
            (self.cpus, room.cpus), (self.memory, room.memory), (self.disk, room.disk)
        )  # fmt: skip
        return max((taken / there for taken, there in pairs if there), default=0.0)

    def missing(self, room: Usage) -> str:
        """The first resource of which there is not enough, as `overcommit` calls it, or ""."""
        for name, taken, there in (
            ("cpus", self.cpus, room.cpus),
            ("memory", self.memory, room.memory),
            ("disk", self.disk, room.disk),
        ):
            if there and taken > there:
                return name
        return ""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a node goes, and why there."""

    host: str
    why: str


@dataclass(slots=True)
class _Place:
    """A host while nodes are placed. `machine`: what it shares with hosts of the same identity."""

    host: Host
    order: int
    facts: HostFacts | None
    machine: _Machine
    count: int = 0
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(slots=True)
class _Machine:
    room: Usage
    used: Usage


def place(
    cluster: Cluster,
    earlier: Mapping[str, str],
    facts: Mapping[str, HostFacts],
    used: Mapping[str, Usage],
) -> tuple[dict[str, Placed], list[str]]:
    """Node -> place, in the order of the file, and the reasons why some have none.

    `earlier`: node -> host where it is already; `used`: what other clusters take, by identity.
    """
    placer = _Placer(cluster, facts, used)
    return placer.place(earlier)


class _Placer:
    def __init__(
        self, cluster: Cluster, facts: Mapping[str, HostFacts], used: Mapping[str, Usage]
    ) -> None:
        self._cluster = cluster
        self._places: dict[str, _Place] = {}
        machines: dict[str, _Machine] = {}
        for order, host in enumerate(cluster.hosts):
            known = facts.get(host.name)
            identity = (known.identity if known else "") or host.name
            if identity not in machines:
                machines[identity] = _Machine(_room(host, known), used.get(identity, Usage()))
            self._places[host.name] = _Place(host, order, known, machines[identity])
        self._heaps: dict[tuple[Strategy, object], list[tuple[float, int, str]]] = {}
        self._homes: dict[tuple[str, str], str] = {}
        self._fits: dict[object, dict[str, str]] = {}

    def place(self, earlier: Mapping[str, str]) -> tuple[dict[str, Placed], list[str]]:
        done: dict[str, Placed] = {}
        homeless: dict[object, list[Node]] = defaultdict(list)
        for node in self._cluster.nodes:
            before = earlier.get(node.name, "")
            if before in self._places and node.host in ("", before):
                done[node.name] = Placed(before, "is there")
                self._settle(node, before)
        for node in self._by_turn(done):
            found = self._pinned(node) if node.host else self._best(node)
            if found is None:
                homeless[_alike(node)].append(node)
                continue
            done[node.name] = found
            self._settle(node, found.host)
        ordered = {n.name: done[n.name] for n in self._cluster.nodes if n.name in done}
        return ordered, [self._refusal(nodes) for nodes in homeless.values()]

    def _by_turn(self, done: Mapping[str, Placed]) -> Iterable[Node]:
        """Those that are pinned, then those to be packed, largest first, then the others."""
        rest = [node for node in self._cluster.nodes if node.name not in done]
        room = max((p.machine.room for p in self._places.values()), key=lambda r: r.memory)
        return sorted(rest, key=lambda node: _turn(node, room))

    def _pinned(self, node: Node) -> Placed | None:
        place = self._places[node.host]  # the file's references were checked
        return None if self._against(node, place) else Placed(node.host, "pinned")

    def _best(self, node: Node) -> Placed | None:
        for token in node.placement.together_with(node):
            home = self._homes.get(token)
            if home is not None:
                fits = not self._against(node, self._places[home])
                return Placed(home, f"together with its {token[0]}") if fits else None
        strategy = node.placement.strategy
        heap = self._heap(node)
        while heap:
            score, _, name = heap[0]
            place = self._places[name]
            now = self._score(strategy, place)
            if now != score:
                heapq.heapreplace(heap, (now, place.order, name))
            elif self._against(node, place):
                heapq.heappop(heap)
            else:
                return Placed(name, self._explained(strategy, place, len(heap)))
        return None

    def _heap(self, node: Node) -> list[tuple[float, int, str]]:
        key = (node.placement.strategy, _alike(node))
        if key not in self._heaps:
            scored = [
                (self._score(node.placement.strategy, place), place.order, name)
                for name, place in self._places.items()
                if not self._against(node, place)
            ]
            heapq.heapify(scored)
            self._heaps[key] = scored
        return self._heaps[key]

    def _score(self, strategy: Strategy, place: _Place) -> float:
        """The lowest is liked best. Only packing likes a host better the fuller it is."""
        match strategy:
            case Strategy.SPREAD:
                return place.count
            case Strategy.BALANCE:
                return place.machine.used.share(place.machine.room) or place.count * 1e-9
            case Strategy.PACK:
                return -place.machine.used.share(place.machine.room) or -place.count * 1e-9

    def _explained(self, strategy: Strategy, place: _Place, candidates: int) -> str:
        percent = f"{place.machine.used.share(place.machine.room):.0%}"
        why = {
            Strategy.SPREAD: f"fewest nodes ({place.count})",
            Strategy.BALANCE: f"least used ({percent})",
            Strategy.PACK: f"most used with room ({percent})",
        }[strategy]
        return f"{strategy}: {why} of {candidates} hosts that fit"

    def _against(self, node: Node, place: _Place) -> str:
        """Why this host cannot have this node now, "" when it can."""
        static = self._unfit(node, place)
        if static:
            return static
        short = (place.machine.used + demand(node)).missing(place.machine.room)
        if short:
            ratio = getattr(place.host.overcommit, short)
            return f"not enough {CALLED[short]} left (`overcommit.{short}` is {ratio:g})"
        for token in node.placement.apart_from(node):
            if place.tokens[token]:
                return f"has one of the same {token[0]}"
        return ""

    def _unfit(self, node: Node, place: _Place) -> str:
        """What does not change while nodes are placed; worked out once for nodes that are alike."""
        known = self._fits.setdefault(_alike(node), {})
        if place.host.name not in known:
            known[place.host.name] = " ".join(self._statically_against(node, place))
        return known[place.host.name]

    def _statically_against(self, node: Node, place: _Place) -> Iterator[str]:
        if place.host.drained:
            yield "it is drained."
        if place.facts is not None:
            yield from against_node(node, place.facts)
            for network, why in against_networks(node, self._cluster, place.host, place.facts):
                yield f"network {network}: {why}"

    def _settle(self, node: Node, name: str) -> None:
        place = self._places[name]
        place.count += 1
        place.machine.used = place.machine.used + demand(node)
        for token in (*node.placement.apart_from(node), *node.placement.together_with(node)):
            place.tokens[token] += 1
            self._homes.setdefault(token, name)
        for (strategy, _), heap in self._heaps.items():
            if strategy is Strategy.PACK:
                heapq.heappush(heap, (self._score(strategy, place), place.order, name))

    def _refusal(self, nodes: list[Node]) -> str:
        first = nodes[0]
        pinned = [first.host] if first.host else list(self._places)
        by_reason: dict[str, list[str]] = defaultdict(list)
        for name in pinned:
            by_reason[self._against(first, self._places[name]) or self._apart(first)].append(name)
        whys = [f"{_listed(hosts)}: {why}" for why, hosts in by_reason.items()]
        names = first.name if len(nodes) == 1 else f"{first.name} and {len(nodes) - 1} like it"
        return f"node {names} fit{'s' if len(nodes) == 1 else ''} on no host. {'; '.join(whys)}"

    def _apart(self, node: Node) -> str:
        token = next(iter(node.placement.together_with(node)), ("group", ""))
        return f"its {token[0]} is elsewhere, where there is no room"


def demand(node: Node) -> Usage:
    """What a node takes of its host."""
    return Usage(node.cpus, node.memory, sum(disk.size for disk in node.disks))


def _room(host: Host, facts: HostFacts | None) -> Usage:
    if facts is None:
        return Usage()
    over = host.overcommit
    return Usage(facts.cpus * over.cpus, facts.memory * over.memory, facts.disk * over.disk)


def _turn(node: Node, room: Usage) -> tuple[int, float]:
    if node.host:
        return 0, 0.0
    if node.placement.strategy is Strategy.PACK:
        return 1, -demand(node).share(room)
    return 2, 0.0


def _alike(node: Node) -> object:
    """Nodes of which a host fits all or none."""
    return (
        node.host, node.cpus, node.memory, tuple(disk.size for disk in node.disks), node.arch,
        node.firmware, node.tpm, frozenset(nic.network for nic in node.nics),
        node.placement.together_with(node), node.placement.apart_from(node),
    )  # fmt: skip


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MENTIONED])
    return shown if len(names) <= MENTIONED else f"{shown} and {len(names) - MENTIONED} more"


__all__ = ["Placed", "Usage", "demand", "place"]
