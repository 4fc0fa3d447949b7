"""What is left of labs for the sets that are looked at next, and what a set may have of a lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nospoon.lab.assign import Free, Grant, assign
from nospoon.lab.work import Options, RecipeSet, Size
from nospoon.model.lab import Lab

AskedFor = tuple[Options | None, ...]
"""What recipes of a set may have in a lab, of which `wanted` leaves what that lab can have."""


@dataclass(slots=True)
class Held:
    """Of each lab, by its key: what is free of its limits, and its idle registered machines.
    `quotas`: machines that sets wait for which have been looked at, by lab and owner, where the
    owner has too many; `kept`: machines that are kept for owners. `closed`: labs that make no
    dynamic machines for the sets that are looked at next. `short`: those that have no capacity for
    the set that was looked at last. `first`: ids of the sets that go before all others of their
    priority. `refused`: by lab and what a set asked for there that could not be placed, the lab as
    it was and what is kept for such a set.
    """

    free: dict[str, Free]
    machines: dict[str, frozenset[str]]
    quotas: Counter[tuple[str, str]] = field(default_factory=Counter)
    kept: Counter[tuple[str, str]] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    short: set[str] = field(default_factory=set)
    first: set[str] = field(default_factory=set)
    refused: dict[tuple[str, AskedFor], tuple[Lab, Sequence[Options]]] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Whether no lab has anything left."""
        return not any(self.machines.values()) and not any(
            each.machines > 0 and each.cpus > 0 and each.memory > 0 for each in self.free.values()
        )

    def take(self, key: str, grant: Grant) -> None:
        if isinstance(grant, Size):
            self.free[key] = self.free[key].without(grant)
        else:
            self.machines[key] -= {grant}

    def keep(self, key: str, recipes: Sequence[Options]) -> None:
        """For a set that waits: sizes of its dynamic machines, and one registered machine each for
        its other recipes, where it is idle.
        """
        for each in recipes:
            if each.sizes:
                self.free[key] = self.free[key].without(each.sizes[0])
            else:
                idle = next((name for name in each.machines if name in self.machines[key]), None)
                self.machines[key] -= {idle} if idle is not None else set()

    def refuse(self, found: RecipeSet, key: str, lab: Lab, options: Sequence[Options]) -> None:
        """A set could not be placed in a lab, where this is kept for it. One that failed may have
        been refused another size, or more machines.
        """
        if not found.failed_in:
            self.refused[key, _asked_for(found, key)] = lab, options

    def refused_like(
        self, found: RecipeSet, key: str
    ) -> tuple[Lab, Sequence[Options]] | tuple[None, tuple[()]]:
        """What is known of a set that asked a lab for the same: the lab, and what is kept."""
        if found.failed_in:
            return None, ()
        return self.refused.get((key, _asked_for(found, key)), (None, ()))


def wanted(found: RecipeSet, key: str, lab: Lab) -> list[Options]:
    """What its recipes may have in a lab, but those that were released before they had one."""
    most = Free.of(lab.limits)
    return [
        _within(lab, most, run.options.get(key, Options())) for run in found.runs if not run.over
    ]


def _asked_for(found: RecipeSet, key: str) -> AskedFor:
    """Sets for which this is equal want the same of a lab."""
    return tuple([run.options.get(key) for run in found.runs if not run.over])


def _within(lab: Lab, most: Free, options: Options) -> Options:
    """Without sizes that a lab never has: it makes no machines, or they are beyond its limits."""
    if lab.dynamic and all(map(most.holds, options.sizes)):
        return options
    return replace(options, sizes=tuple(filter(most.holds, options.sizes)) if lab.dynamic else ())


def fits_ever(lab: Lab, recipes: Sequence[Options], machines: frozenset[str] | None = None) -> bool:
    """Whether a set could start if it had the lab for itself. `machines`: those of the registered
    ones that it could have, None for all.
    """
    if machines is None:
        machines = frozenset(each.name for each in lab.machines)
    if lab.limits.per_owner and len(recipes) > lab.limits.per_owner:
        return False
    most = Free.of(lab.limits)
    recipes = [_within(lab, most, each) for each in recipes]
    return assign(recipes, most, machines, prefer=lab.prefer) is not None
