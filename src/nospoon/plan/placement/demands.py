"""Nodes -> demands: what rules of affinity bind together goes to one host, or to none.

Nodes are bound that have the same value of a key which both name under `affinity`, and so are those
that are bound to one of them by another key. Where some of them are already, or are pinned, the
others go. A rule binds the nodes that have it, and no others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.cluster import Node
from nospoon.plan.placement.room import Demand, Token, alike, demand

PINNED = "pinned"
MOVE = "`--rebalance` places existing nodes again."


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that are bound together, in the order of the file. `keys`: those that bind them."""

    nodes: tuple[Node, ...]
    keys: tuple[str, ...]


def demands_of(
    nodes: Iterable[Node], staying: Mapping[str, str]
) -> tuple[list[Demand], dict[str, Demand], list[str]]:
    """What is to be placed, what stays (by node), and why some can have no place at all.

    `staying`: node -> host where it is and remains.
    """
    new: list[Demand] = []
    there: dict[str, Demand] = {}
    reasons: list[str] = []
    for group in _groups(nodes):
        comers = tuple(node for node in group.nodes if node.name not in staying)
        for node in group.nodes:
            if node.name in staying:
                there[node.name] = _there(node, staying[node.name])
        if not comers:
            continue
        why = _impossible(group, comers, staying)
        if why:
            reasons.append(why)
        else:
            new.append(_demand(comers, *_where(group, comers, staying)))
    return new, there, reasons


def bound_together(nodes: Iterable[Node]) -> Iterator[tuple[Node, ...]]:
    """Those that rules of affinity bind together, each node once."""
    return (group.nodes for group in _groups(nodes))


def _there(node: Node, host: str) -> Demand:
    """It is asked of no host any more, and so is of no kind."""
    apart = tuple(node.placement.apart_from(node))
    return Demand((node,), demand(node), apart, (host,), "is there", kind=None, samples=())


def _demand(nodes: tuple[Node, ...], hosts: tuple[str, ...], bound: str) -> Demand:
    usage = demand(nodes[0])
    for node in nodes[1:]:
        usage = usage + demand(node)
    apart = tuple(token for node in nodes for token in node.placement.apart_from(node))
    samples = {(alike(node), node.memory): node for node in nodes}
    kind = (hosts, usage, apart, frozenset(samples))
    alikes = tuple((alike, node) for (alike, _), node in samples.items())
    return Demand(nodes, usage, apart, hosts, bound, kind, alikes)


def _where(
    group: _Group, comers: tuple[Node, ...], staying: Mapping[str, str]
) -> tuple[tuple[str, ...], str]:
    """The hosts that are left to those who are not there yet, () for all, and why."""
    pins = tuple(dict.fromkeys(node.host for node in comers if node.host))
    homes = tuple(dict.fromkeys(staying[n.name] for n in group.nodes if n.name in staying))
    return (pins, PINNED) if pins else (homes, _with(group.keys) if homes else "")


def _with(keys: tuple[str, ...]) -> str:
    return f"together with its {' and '.join(keys)}"


def together(demand: Demand) -> str:
    """Why the others of a demand are where the first one is."""
    return _with(_keys(demand.nodes))


def alike_in(demand: Demand) -> str:
    """What the nodes of a demand have in common."""
    return f"with the same {' and '.join(_keys(demand.nodes))}"


def _impossible(group: _Group, comers: tuple[Node, ...], staying: Mapping[str, str]) -> str:
    """Why there is no host that could have them all, however much room it had; "" else."""
    if len(group.nodes) == 1 and not group.nodes[0].placement.anti_affinity:
        return ""
    asked = "`affinity: " + ", ".join(group.keys) + "`"
    places = {staying[n.name]: f"{n.name} is on" for n in group.nodes if n.name in staying}
    pins = {node.host: f"{node.name} is pinned to" for node in comers if node.host}
    if len(pins) > 1 or (places and pins and not places.keys() & pins.keys()):
        told = [f"{what} {host}" for host, what in {**places, **pins}.items()]
        advice = f" {MOVE}" if places and len(pins) == 1 else ""
        return f"nodes that go together by {asked} cannot: {' and '.join(told)}.{advice}"
    twice = _twice(comers)
    if twice:
        return (
            f"nodes {' and '.join(twice)} go together by {asked}, and are kept apart by their "
            "`anti_affinity`."
        )
    return ""


def _twice(nodes: tuple[Node, ...]) -> tuple[str, str] | None:
    """The first two that a rule keeps apart."""
    first: dict[Token, str] = {}
    for node in nodes:
        for token in node.placement.apart_from(node):
            if token in first:
                return first[token], node.name
            first[token] = node.name
    return None


def _groups(nodes: Iterable[Node]) -> list[_Group]:
    """All nodes, each in one group, in the order of their first members."""
    listed = list(nodes)
    root = list(range(len(listed)))
    seen: dict[Token, int] = {}
    for index, node in enumerate(listed):
        for token in node.placement.together_with(node) if node.placement.affinity else ():
            one, other = _root(root, seen.setdefault(token, index)), _root(root, index)
            root[max(one, other)] = min(one, other)
    members: dict[int, list[Node]] = defaultdict(list)
    for index, node in enumerate(listed):
        members[_root(root, index)].append(node)
    return [_Group(tuple(each), _keys(each)) for each in members.values()]


def _root(root: list[int], index: int) -> int:
    while root[index] != index:
        root[index] = root[root[index]]
        index = root[index]
    return index


def _keys(nodes: Sequence[Node]) -> tuple[str, ...]:
    if len(nodes) == 1:
        return ()
    tokens = Counter(token for node in nodes for token in node.placement.together_with(node))
    return tuple(dict.fromkeys(key for (key, _), count in tokens.items() if count > 1))
