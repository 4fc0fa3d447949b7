"""Which node goes to which host, and why: pure, the same for the same input, quick for thousands.

What is there stays, and grows where it is when there is room. The others, as demands of one node
or of those that go together (`demands`), go in the order of the file (those to be packed
largest first, after those that may go to few hosts) to the host that the strategy of their first
node likes best (`scoring`) among those that have room (`room`). Before them, what was
planned and never made goes where it was to go, if it still can.

Where that leaves demands homeless that would fit alone, all are placed again: those that are
hardest to place first, then, a few times, those first that were left. Of no more than `SEARCHED`
of them the choices are then tried one after the other, `TRIES` in all.

What is guaranteed: no host gets more than it has and no rule is broken; where there are no more
than `TRIES` choices (6 demands on 4 hosts are 5,460) a placement is found if there is one. Larger
clusters that leave hosts little room may be refused although someone cleverer finds a placement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from nospoon.errors import NoCapacity
from nospoon.model.cluster import Cluster, Strategy
from nospoon.model.host_facts import HostFacts
from nospoon.plan.placement.demands import MOVE, PINNED, alike_in, demands_of, together
from nospoon.plan.placement.hosts import against_host, against_images, against_node
from nospoon.plan.placement.room import Demand, Rooms, Usage
from nospoon.plan.placement.scoring import Scoring, explained, score
from nospoon.plan.words import listed

ROUNDS = 6
"""How often all are placed again with those first that were left without a host."""
SEARCHED, TRIES = 64, 50_000
"""Demands of which the choices are searched, and how many choices are tried."""
NOTHING: Mapping[str, Usage] = {}
NOWHERE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a node goes, and why there."""

    host: str
    why: str


@dataclass(slots=True)
class _Found:
    """One pass: what was placed, and what was left with the rooms as they were at its end."""

    rooms: Rooms
    placed: dict[str, Placed] = field(default_factory=dict)
    left: list[Demand] = field(default_factory=list)

    def put(self, demand: Demand, host: str, why: str) -> None:
        self.rooms.put(demand, host)
        for index, node in enumerate(demand.nodes):
            if index > 0 or demand.bound == PINNED:
                why = PINNED if node.host else together(demand)
            self.placed[node.name] = Placed(host, why)

    @property
    def homeless(self) -> int:
        return sum(len(demand.nodes) for demand in self.left)


def place(
    cluster: Cluster,
    earlier: Mapping[str, str],
    facts: Mapping[str, HostFacts],
    used: Mapping[str, Usage],
    *,
    planned: Mapping[str, str] = NOWHERE,
    standing: Mapping[str, Usage] = NOTHING,
) -> tuple[dict[str, Placed], list[str]]:
    """Node -> place, in the order of the file, and the reasons why some have none, of which each is
    a `NoCapacity` where all would have one if others took nothing, no host were drained, and each
    could be reached.

    `earlier`: node -> host where it is already; `planned`: where it was to go; `used`: what other
    clusters take, by identity; `standing`: what nodes that are there take now; of one that is not
    in it, what it is to take.
    """
    rooms = Rooms(cluster, facts, used)
    staying = {
        node.name: before
        for node in cluster.nodes
        if (before := earlier.get(node.name, "")) in rooms.places
        and node.host in ("", before)
        and not any(against_host(node, rooms.places[before].host))
        and not any(against_images(node, rooms.places[before].host, ()))
    }
    demands, there, reasons = demands_of(cluster.nodes, staying)
    stays = {name: Placed(host, "is there") for name, host in staying.items()}
    reasons = [*_stay(rooms, there, staying, standing), *reasons]
    found = _placed(rooms, demands, planned)
    placed = {**stays, **found.placed}
    ordered = {n.name: placed[n.name] for n in cluster.nodes if n.name in placed}
    refused = [*reasons, *_refusals(found)]
    emptied = {name: each.emptied for name, each in facts.items() if not each.away}
    hosts = tuple(replace(each, drained=False) for each in cluster.hosts)
    opened = replace(cluster, hosts=hosts)
    if refused and (used or emptied != facts or hosts != cluster.hosts):
        _, never = place(opened, earlier, emptied, {}, planned=planned, standing=standing)
        return ordered, refused if never else [NoCapacity(each) for each in refused]
    return ordered, refused


def _stay(
    rooms: Rooms,
    there: Mapping[str, Demand],
    staying: Mapping[str, str],
    standing: Mapping[str, Usage],
) -> Iterator[str]:
    """Put what is there where it is; says of what grows why it cannot. What is there already is
    not asked whether it fits: hosts may have less than they had.
    """
    more: dict[str, Usage] = {}
    for name, demand in there.items():
        rooms.put(demand, staying[name])
        before = standing.get(name, demand.usage)
        if before != demand.usage:
            more[name] = demand.usage - before.least(demand.usage)
            rooms.grow(staying[name], Usage() - more[name])
    short: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for name, grown in more.items():
        demand, at = there[name], rooms.places[staying[name]]
        node = demand.nodes[0]
        if at.facts is not None and any(against_node(node, at.host, at.facts, is_there=True)):
            continue  # `plan.refuse` reports a host that could not have it at all
        if grown != Usage() and (why := rooms.grow(staying[name], grown)):
            short[staying[name], why, bool(demand.nodes[0].host)].append(name)
    for (host, why, pinned), names in short.items():
        many = len(names) > 1
        what = f"nodes {listed(names)}" if many else f"node {names[0]}"
        advice = "" if pinned else f" {MOVE}"
        yield f"{what} cannot grow where {'they are' if many else 'it is'}. {host}: {why}.{advice}"


def _placed(rooms: Rooms, demands: list[Demand], planned: Mapping[str, str]) -> _Found:
    """The pass that leaves the fewest nodes without a host, the first of those."""
    first = _greedy(*_as_planned(rooms, sorted(demands, key=_turn(rooms)), planned))
    nowhere = [each for each in first.left if not any(_fitting(rooms, each))]
    lost = {id(each) for each in nowhere}
    rest = [each for each in demands if id(each) not in lost]
    if len(nowhere) == len(first.left) or rooms.too_small(rest):
        return first
    found = [first]
    for again in _again(rooms, rest):
        found.append(_Found(again.rooms, again.placed, [*nowhere, *again.left]))
        if not again.left:
            break
    return min(found, key=lambda each: each.homeless)


def _fitting(rooms: Rooms, demand: Demand) -> Iterator[str]:
    return (name for name in rooms.places if not rooms.against(demand, name))


def _again(rooms: Rooms, demands: list[Demand]) -> Iterator[_Found]:
    """Other orders, each learned from the one before, then a search."""
    order = _hardest_first(rooms, demands)
    for _ in range(ROUNDS):
        found = _greedy(_Found(rooms.copy()), order)
        yield found
        left = {id(each) for each in found.left}
        order = sorted(order, key=lambda each: id(each) not in left)
    if len(demands) <= SEARCHED:
        searched = _Search(rooms.copy()).find(_hardest_first(rooms, demands))
        if searched is not None:
            yield searched


def _turn(rooms: Rooms) -> Callable[[Demand], tuple[int, float]]:
    """Those that may not go everywhere, then those to be packed, largest first, then the others."""
    room = rooms.largest

    def turn(demand: Demand) -> tuple[int, float]:
        if demand.hosts:
            return 0, 0.0
        if demand.strategy is Strategy.PACK:
            return 1, -demand.usage.share(room)
        return 2, 0.0

    return turn


def _hardest_first(rooms: Rooms, demands: list[Demand]) -> list[Demand]:
    room = rooms.largest
    fits: dict[object, int] = {}
    for each in demands:
        if each.kind not in fits:
            fits[each.kind] = sum(1 for _ in _fitting(rooms, each))
    return sorted(
        demands, key=lambda each: (fits[each.kind], -len(each.apart), -each.usage.share(room))
    )


def _as_planned(
    rooms: Rooms, demands: Iterable[Demand], planned: Mapping[str, str]
) -> tuple[_Found, list[Demand]]:
    """Those that can still go where they were to go, there; and the others."""
    found, others = _Found(rooms.copy()), list[Demand]()
    for demand in demands:
        host, *more = {planned.get(node.name, "") for node in demand.nodes}
        if host not in rooms.places or more or found.rooms.against(demand, host):
            others.append(demand)
        else:
            found.put(demand, host, demand.bound or "as planned before")
    return found, others


def _greedy(found: _Found, order: Iterable[Demand]) -> _Found:
    """What is found, and the demands put where their strategies like it best."""
    scoring = Scoring(found.rooms)
    for demand in order:
        host, fit = scoring.best(demand)
        if host:
            found.put(demand, host, demand.bound or explained(found.rooms, demand, host, fit))
            scoring.changed(host)
        else:
            found.left.append(demand)
    return found


class _Search:
    """Tries choices one after the other, those first that the strategies like."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._tries = TRIES

    def find(self, demands: list[Demand]) -> _Found | None:
        hosts = self._choices(demands, 0)
        if hosts is None:
            return None
        found = _Found(self._rooms)
        for demand, host in zip(demands, hosts, strict=True):
            self._rooms.take(demand, host)
            why = f"others would not fit if {demand.strategy} alone decided"
            found.put(demand, host, demand.bound or why)
        return found

    def _choices(self, demands: list[Demand], index: int) -> list[str] | None:
        if index == len(demands):
            return []
        demand = demands[index]
        for name in self._liked(demand):
            if self._tries == 0:
                return None
            self._tries -= 1
            self._rooms.put(demand, name)
            rest = self._choices(demands, index + 1)
            if rest is not None:
                return [name, *rest]
            self._rooms.take(demand, name)
        return None

    def _liked(self, demand: Demand) -> list[str]:
        rooms = self._rooms
        return sorted(_fitting(rooms, demand), key=lambda name: score(demand.strategy, rooms, name))


def _refusals(found: _Found) -> list[str]:
    by_kind: dict[object, list[Demand]] = defaultdict(list)
    for demand in found.left:
        by_kind[demand.kind].append(demand)
    return [_refusal(found.rooms, demands) for demands in by_kind.values()]


def _refusal(rooms: Rooms, demands: list[Demand]) -> str:
    first = demands[0]
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in first.hosts or rooms.places:
        by_reason[rooms.against(first, name)].append(name)
    whys = "; ".join(
        f"{listed(hosts)}: {why}{rooms.amounts(first, hosts)}" for why, hosts in by_reason.items()
    )
    bound = f". It goes {first.bound}. {MOVE}" if first.bound not in ("", PINNED) else ""
    return f"{_named(demands)} on no host. {whys}{bound}"


def _named(demands: list[Demand]) -> str:
    """Who, and "fits" or "fit"."""
    names = [node.name for node in demands[0].nodes]
    more = f" and {len(demands) - 1} like {'it' if len(names) == 1 else 'them'}"
    like = more if len(demands) > 1 else ""
    if len(names) > 1:
        return f"nodes {listed(names)}, {alike_in(demands[0])},{like} fit together"
    return f"node {names[0]}{like} fit{'' if like else 's'}"


def elsewhere(cluster: Cluster, facts: Mapping[str, HostFacts], node: str, host: str) -> str:
    """A sentence on the other hosts of the file which can have a node, as far as they are known
    without what others take; "" where none can, or it may be on no other.
    """
    rooms = Rooms(cluster, facts, {})
    new, _, _ = demands_of([each for each in cluster.nodes if each.name == node], {})
    can = [
        name
        for demand in new
        for name in rooms.places
        if name != host and not rooms.against(demand, name)
    ]
    if not can:
        return ""
    return (
        f"Of the file's other hosts, {listed(can)} can have node {node}: write `host: {can[0]}` "
        "for it, and plan again."
    )


__all__ = ["Placed", "elsewhere", "place"]
