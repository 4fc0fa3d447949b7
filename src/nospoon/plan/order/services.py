"""In which order the nodes of services start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from nospoon.model.service import Service

_NODE, _SERVICE = "node ", "service "


@dataclass(frozen=True, slots=True)
class StartOrder:
    """`services` and `nodes`: each after what it waits for. `needs`: node -> the services that are
    healthy before it starts.
    """

    services: tuple[Service, ...]
    nodes: tuple[str, ...]
    needs: Mapping[str, tuple[str, ...]]


def start_order(services: Sequence[Service]) -> StartOrder:
    """Each node after all that its services are `after`, but for those that it runs itself: within
    a node the order is systemd's. Raises `graphlib.CycleError` with those that wait for each other,
    as "service NAME" and "node NAME".
    """
    known = {each.name: each for each in services}
    after: dict[str, set[str]] = {}
    runs: dict[str, set[str]] = {}
    graph: TopologicalSorter[str] = TopologicalSorter()
    for each in services:
        graph.add(_SERVICE + each.name, *(_NODE + node for node in each.nodes))
        graph.add(_SERVICE + each.name, *(_SERVICE + other for other in each.after))
        for node in each.nodes:
            after.setdefault(node, set()).update(each.after)
            runs.setdefault(node, set()).add(each.name)
    needs = {node: tuple(sorted(names - runs[node])) for node, names in after.items()}
    for node, names in needs.items():
        graph.add(_NODE + node, *(_SERVICE + name for name in names))
    order = list(graph.static_order())
    return StartOrder(
        tuple(known[key.removeprefix(_SERVICE)] for key in order if key.startswith(_SERVICE)),
        tuple(key.removeprefix(_NODE) for key in order if key.startswith(_NODE)),
        needs,
    )
