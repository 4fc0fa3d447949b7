"""Hosts as strategies like them, while they fill.

    spread    the host with the fewest nodes
    balance   the host whose scarcest resource is least used
    pack      the host whose scarcest resource is most used

Of those that are liked alike, the first of the file.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from nospoon.model.cluster import Strategy
from nospoon.model.images import MOUNTED_ROOT
from nospoon.plan.placement.hosts import ROOTS
from nospoon.plan.placement.room import Demand, Rooms
from nospoon.plan.words import counted

Scored = tuple[float, int, str]
"""How a strategy likes a host (least is best), its number, its name."""


class Scoring:
    """All hosts as each strategy orders them. One that has no room for a demand has none for those
    of its kind that come later.
    """

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._scored: dict[Strategy, list[Scored]] = {}
        self._at: dict[Strategy, dict[str, Scored]] = {}
        self._fit: dict[object, set[str]] = {}

    def best(self, demand: Demand) -> tuple[str, int]:
        """The host that is liked best of those that fit, "" for none, and how many those are."""
        fit = self._fit.get(demand.kind)
        if fit is None:
            names = demand.hosts or self._rooms.places
            fit = {name for name in names if not self._rooms.against(demand, name)}
            self._fit[demand.kind] = fit
        for _, _, name in self._of(demand.strategy) if fit else ():
            if name in fit:
                if not self._rooms.against(demand, name):
                    return name, len(fit)
                fit.remove(name)
        return "", 0

    def changed(self, host: str) -> None:
        """Something was put on a host, or on another of the same machine."""
        for strategy, scored in self._scored.items():
            at = self._at[strategy]
            for name in self._rooms.machine(host).places:
                del scored[bisect_left(scored, at[name])]
                at[name] = self._score(strategy, name)
                insort(scored, at[name])

    def _of(self, strategy: Strategy) -> list[Scored]:
        if strategy not in self._scored:
            at = {name: self._score(strategy, name) for name in self._rooms.places}
            self._at[strategy], self._scored[strategy] = at, sorted(at.values())
        return self._scored[strategy]

    def _score(self, strategy: Strategy, name: str) -> Scored:
        place = self._rooms.places[name]
        return score(strategy, self._rooms, name), place.order, name


def score(strategy: Strategy, rooms: Rooms, name: str) -> float:
    """The lowest is liked best. Only packing likes a host better the fuller it is."""
    count = rooms.places[name].count
    match strategy:
        case Strategy.SPREAD:
            return count
        case Strategy.BALANCE:
            return rooms.share(name) or count * 1e-9
        case Strategy.PACK:
            return -rooms.share(name) or -count * 1e-9


def explained(rooms: Rooms, demand: Demand, name: str, candidates: int) -> str:
    """Why a host was chosen, before anything is put there."""
    strategy = demand.strategy
    match strategy:
        case Strategy.SPREAD:
            why = f"fewest nodes ({rooms.places[name].count})"
        case Strategy.BALANCE:
            why = f"least used ({rooms.share(name):.0%})"
        case Strategy.PACK:
            why = f"most used with enough capacity ({rooms.share(name):.0%})"
    fit = "fits" if candidates == 1 else "fit"
    types = sorted({kind for node in demand.nodes for kind in node.image_types})
    runs = f"runs images for {' and '.join(types)}; " if types else ""
    mounts = any(node.root_format == MOUNTED_ROOT for node in demand.nodes)
    makes = f"makes containers of {ROOTS[MOUNTED_ROOT]}; " if mounts else ""
    return f"{runs}{makes}{strategy}: {why} of {counted(candidates, 'host')} that {fit}"
