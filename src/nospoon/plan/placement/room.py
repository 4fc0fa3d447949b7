"""What hosts have room for: what is taken, what a demand asks, and why a host cannot have it.

A host can have a demand when it can have each of its nodes at all (`hosts`), isn't drained,
has room for all of them (its CPUs, memory and disk, times the overcommit ratio), and has no one
from whom a rule keeps them apart. Hosts of one identity are one machine, which is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from nospoon.model.cluster import Cluster, Host, Node, Strategy
from nospoon.model.host_facts import HostFacts
from nospoon.model.sizes import size
from nospoon.plan.placement.hosts import (
    against_filters,
    against_floating_ips,
    against_host,
    against_images,
    against_networks,
    against_node,
)
from nospoon.plan.trunks import Trunks

CALLED = {"cpus": "CPUs", "memory": "memory", "disk": "disk space"}
"""Field of `overcommit` -> what a refusal calls it."""
Token = tuple[str, str]
"""What a rule goes by: "flavor" or the key of a label, and its value."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is taken, or asked for. `memory` and `disk` in bytes."""

    cpus: float = 0
    memory: float = 0
    disk: float = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpus + other.cpus, self.memory + other.memory, self.disk + other.disk)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.cpus - other.cpus, self.memory - other.memory, self.disk - other.disk)

    def least(self, other: Usage) -> Usage:
        """The smaller of both, by each resource."""
        return Usage(
            min(self.cpus, other.cpus), min(self.memory, other.memory), min(self.disk, other.disk)
        )

    def share(self, room: Usage) -> float:
        """How much of the scarcest resource is taken, from 0; what is unknown is never scarce."""
        pairs = (
            (self.cpus, room.cpus), (self.memory, room.memory), (self.disk, room.disk)
        )  # fmt: skip
        return max((taken / there for taken, there in pairs if there), default=0.0)

    def missing(self, room: Usage, *, asked: Usage | None = None) -> str:
        """The first resource of which there is not enough, as `overcommit` calls it, or "".

        `asked`: the part of this that is new; what it asks nothing of cannot be too little for it.
        """
        new = asked or self
        for name, taken, there, more in (
            ("cpus", self.cpus, room.cpus, new.cpus),
            ("memory", self.memory, room.memory, new.memory),
            ("disk", self.disk, room.disk, new.disk),
        ):
            if more > 0 and there and taken > there:
                return name
        return ""


@dataclass(frozen=True, slots=True)
class Demand:
    """Nodes that go to one host: one node, or all that rules of affinity bind together.

    `hosts`: where alone they may go, () anywhere; `bound`: why there. `kind` is equal for demands
    of which a host has room for all or none. `apart`: tokens of which a host may have one node.
    `samples`: of its nodes, one of each kind (`alike`) and memory.
    """

    nodes: tuple[Node, ...]
    usage: Usage
    apart: tuple[Token, ...]
    hosts: tuple[str, ...]
    bound: str
    kind: object
    samples: tuple[tuple[object, Node], ...]

    @property
    def strategy(self) -> Strategy:
        return self.nodes[0].placement.strategy


@dataclass(slots=True)
class Machine:
    """What hosts of one identity share. `tokens`: of the nodes there that are kept apart."""

    room: Usage
    used: Usage
    places: list[str] = field(default_factory=list)
    tokens: Counter[Token] = field(default_factory=Counter)


@dataclass(slots=True)
class Place:
    """A host while nodes are placed. `order`: its number in the file; `count`: of its nodes."""

    host: Host
    order: int
    facts: HostFacts | None
    identity: str
    count: int = 0


class Rooms:
    """All hosts of a cluster, and what is put on them. `used`: by other clusters, by identity."""

    def __init__(
        self, cluster: Cluster, facts: Mapping[str, HostFacts], used: Mapping[str, Usage]
    ) -> None:
        self._cluster, self._trunks = cluster, Trunks.of(cluster)
        self._unfit: dict[object, dict[str, str]] = {}
        self.places: dict[str, Place] = {}
        self.machines: dict[str, Machine] = {}
        for order, host in enumerate(cluster.hosts):
            known = facts.get(host.name)
            identity = (known.identity if known else "") or host.name
            empty = Machine(_room(host, known), used.get(identity, Usage()))
            self.machines.setdefault(identity, empty).places.append(host.name)
            self.places[host.name] = Place(host, order, known, identity)

    def copy(self) -> Rooms:
        """The same rooms, to put other things there."""
        other = copy(self)
        other.machines = {name: copy(each) for name, each in self.machines.items()}
        other.places = {name: copy(each) for name, each in self.places.items()}
        for machine in other.machines.values():
            machine.tokens = machine.tokens.copy()
        return other

    def machine(self, name: str) -> Machine:
        return self.machines[self.places[name].identity]

    def share(self, name: str) -> float:
        """How much of a host's scarcest resource is taken."""
        machine = self.machine(name)
        return machine.used.share(machine.room)

    @property
    def largest(self) -> Usage:
        """The room of the machine with the most memory."""
        return max((each.room for each in self.machines.values()), key=lambda each: each.memory)

    def put(self, demand: Demand, name: str) -> None:
        place, machine = self.places[name], self.machine(name)
        place.count += len(demand.nodes)
        machine.tokens.update(demand.apart)
        machine.used = machine.used + demand.usage

    def take(self, demand: Demand, name: str) -> None:
        """Undo `put`."""
        place, machine = self.places[name], self.machine(name)
        place.count -= len(demand.nodes)
        machine.tokens.subtract(demand.apart)
        machine.used = machine.used - demand.usage

    def grow(self, name: str, more: Usage) -> str:
        """Let something take more on its host. Says why it cannot, "" when it could."""
        machine = self.machine(name)
        short = (machine.used + more).missing(machine.room, asked=more)
        if short:
            return self._short(short, name)
        machine.used = machine.used + more
        return ""

    def against(self, demand: Demand, name: str) -> str:
        """Why this host cannot have this now, "" when it can."""
        if demand.hosts and name not in demand.hosts:
            return demand.bound
        for kind, node in demand.samples:
            static = self._statically(kind, node, name)
            if static:
                return static
        machine = self.machine(name)
        short = (machine.used + demand.usage).missing(machine.room, asked=demand.usage)
        if short:
            return self._short(short, name)
        if not demand.apart or self.places[name].host.declares.has_groups:
            return ""  # a host with groups keeps them apart itself
        shared = (key[0] for key in demand.apart if machine.tokens[key])
        return next((_taken(key) for key in shared), "")

    def amounts(self, demand: Demand, names: Sequence[str]) -> str:
        """Of hosts that are refused for one reason: what is asked for of a resource of which they
        have not enough left, and what the one with the most has; "" for other reasons.
        """
        short = self._lacks(demand, names[0])
        if not short or self.against(demand, names[0]) != self._short(short, names[0]):
            return ""

        def left(name: str) -> float:
            machine = self.machine(name)
            return float(getattr(machine.room, short) - getattr(machine.used, short))

        most = max(names, key=left)
        asked, room = getattr(demand.usage, short), getattr(self.machine(most).room, short)
        asked, there, room = (_amount(short, each) for each in (asked, left(most), room))
        return f": {asked} asked for, {there} of {room} left on {most}"

    def _lacks(self, demand: Demand, name: str) -> str:
        machine = self.machine(name)
        return (machine.used + demand.usage).missing(machine.room, asked=demand.usage)

    def too_small(self, demands: Iterable[Demand]) -> bool:
        """Whether they ask for more than all hosts together have left."""
        room = _all_room(each.room for each in self.machines.values())
        asked = _summed(demand.usage for demand in demands)
        used = _summed(each.used.least(each.room) for each in self.machines.values())
        return bool((used + asked).missing(room, asked=asked))

    def _short(self, short: str, name: str) -> str:
        ratio = getattr(self.places[name].host.overcommit, short)
        return f"not enough {CALLED[short]} left (`overcommit.{short}` is {ratio:g})"

    def _statically(self, kind: object, node: Node, name: str) -> str:
        """What does not change while nodes are placed; worked out once for nodes that are alike."""
        place = self.places[name]
        if place.facts is not None and 0 < place.facts.memory < node.memory:
            return " ".join(self._statics(node, place))  # whose words tell how much it wants
        known = self._unfit.setdefault(kind, {})
        if name not in known:
            known[name] = " ".join(self._statics(node, place))
        return known[name]

    def _statics(self, node: Node, place: Place) -> Iterator[str]:
        if place.host.drained and node.adopted is None:
            yield "it is drained."
        yield from against_host(node, place.host)
        yield from against_floating_ips(node, self._cluster, place.host)
        yield from self._trunks.against(node, place.host, place.facts)
        yield from against_images(node, place.host, (each.host for each in self.places.values()))
        if place.facts is not None and place.facts.away:
            yield f"it is unreachable: {place.facts.away}"
        elif place.facts is not None:
            yield from against_node(node, place.host, place.facts)
            yield from self._networks(node, place)

    def _networks(self, node: Node, place: Place) -> Iterator[str]:
        """Why the place that makes them cannot make or reach those of a node."""
        there = self.places.get(place.host.network_place, place)
        if there.facts is None:
            return
        if there.facts.away:
            yield f"its bridges are unreachable: {there.facts.away}"
            return
        found = against_networks(node, self._cluster, there.host, there.facts, self._trunks)
        for network, why in found:
            yield f"network {network}: {why}"
        if place is not there:
            yield from against_filters(node, self._cluster, place.facts)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the nodes that come to a host ask of it, and what all of their cluster take of its
    machine. `identity`: of that.
    """

    host: str
    identity: str
    room: Usage
    takes: Usage
    asked: Usage

    def lacks(self, used: Mapping[str, Usage]) -> str:
        """Of what other clusters left too little, such as "memory of host h", "" for nothing.
        `used` by them, by identity.
        """
        taken = used.get(self.identity, Usage()) + self.takes
        short = taken.missing(self.room, asked=self.asked)
        return f"{CALLED[short]} of host {self.host}" if short else ""


def claims(
    cluster: Cluster,
    facts: Mapping[str, HostFacts],
    *,
    hosts: Mapping[str, str],
    before: Mapping[str, str],
) -> tuple[Claim, ...]:
    """Of hosts of which it is known what they have. Node -> its host, now and `before`."""
    rooms, asked = Rooms(cluster, facts, {}), dict[str, Usage]()
    for node in cluster.nodes:
        host, takes = hosts.get(node.name, ""), demand(node)
        if host not in rooms.places:
            continue  # one that is left where it is, on a host that the file has no more
        rooms.machine(host).used += takes
        if before.get(node.name) != host:
            asked[host] = asked.get(host, Usage()) + takes
    return tuple(
        Claim(host, rooms.places[host].identity, machine.room, machine.used, coming)
        for host, coming in asked.items()
        if (machine := rooms.machine(host)).room != Usage()
    )


def _amount(resource: str, value: float) -> str:
    return f"{max(value, 0):g}" if resource == "cpus" else size(max(int(value), 0) >> 20 << 20)


def _taken(key: str) -> str:
    same = "of the same flavor" if key == "flavor" else f"with the same label {key!r}"
    return f"already has a node {same} (`anti_affinity`)"


def demand(node: Node) -> Usage:
    """What a node takes of its host; one that was there before takes nothing more."""
    if node.adopted is not None:
        return Usage()
    return Usage(node.cpus, node.memory, sum(disk.size for disk in node.disks))


def alike(node: Node) -> object:
    """What of a node, besides its size, decides whether a host can have it; see `hosts`."""
    plugs = frozenset((nic.network, nic.trunk, nic.floating_ip != "") for nic in node.nics)
    volumes = frozenset((disk.volume, disk.format) for disk in node.disks if disk.volume)
    of_image = node.image_types, node.root_format
    return node.kind, node.arch, node.firmware, node.tpm, plugs, volumes, of_image


def _summed(usages: Iterable[Usage]) -> Usage:
    listed = list(usages)
    return Usage(
        sum(each.cpus for each in listed),
        sum(each.memory for each in listed),
        sum(each.disk for each in listed),
    )


def _all_room(rooms: Iterable[Usage]) -> Usage:
    """Of hosts together; of what is unknown of one of them, nothing is known."""
    listed = list(rooms)
    columns = (
        [each.cpus for each in listed], [each.memory for each in listed],
        [each.disk for each in listed],
    )  # fmt: skip
    return Usage(*(sum(column) if all(column) else 0 for column in columns))


def _room(host: Host, facts: HostFacts | None) -> Usage:
    if facts is None:
        return Usage()
    over = host.overcommit
    return Usage(facts.cpus * over.cpus, facts.memory * over.memory, facts.disk * over.disk)
