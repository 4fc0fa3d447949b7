"""Which machine each recipe of a set gets in a lab: all of them at once, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nospoon.lab.work import Options, Size
from nospoon.model.lab import Limits, Prefer

ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Free:
    """What is left of a lab's limits."""

    machines: int = ENDLESS
    cpus: int = ENDLESS
    memory: int = ENDLESS

    @classmethod
    def of(cls, limits: Limits) -> Free:
        return cls(limits.machines or ENDLESS, limits.cpus or ENDLESS, limits.memory or ENDLESS)

    def without(self, size: Size) -> Free:
        return replace(
            self,
            machines=self.machines - 1,
            cpus=self.cpus - size.cpus,
            memory=self.memory - size.memory,
        )

    def plus(self, size: Size) -> Free:
        return Free(self.machines + 1, self.cpus + size.cpus, self.memory + size.memory)

    def holds(self, size: Size) -> bool:
        return self.machines >= 1 and self.cpus >= size.cpus and self.memory >= size.memory


Grant = Size | str
"""A dynamic machine of this size, or the registered machine of this name."""


def assign(
    recipes: Sequence[Options],
    free: Free,
    machines: frozenset[str],
    *,
    prefer: Prefer = Prefer.DYNAMIC,
    attempt: int = 0,
) -> list[Grant] | None:
    """A grant for each recipe; None where not all of them can have one now. `machines`: those that
    no set has. `attempt`: another size where several fit, for one that could not be made.
    """
    found: dict[int, Grant] = {}
    flexible = [n for n, each in enumerate(recipes) if each.sizes and each.machines]
    for number, each in enumerate(recipes):
        if each.sizes and number not in flexible:
            size = each.sizes[attempt % len(each.sizes)]
            if not free.holds(size):
                return None
            free, found[number] = free.without(size), size
    others = [n for n in range(len(recipes)) if n not in found and n not in flexible]
    matched = _matched(recipes, others, machines)
    if matched is None:
        return None
    if prefer is Prefer.DYNAMIC:
        left = []
        for number in flexible:
            size = recipes[number].sizes[attempt % len(recipes[number].sizes)]
            if free.holds(size):
                free, found[number] = free.without(size), size
            else:
                left.append(number)
        return _completed(recipes, found, matched, left, machines)
    for number in flexible:
        if not _augment(recipes, number, matched, machines, set()):
            size = recipes[number].sizes[attempt % len(recipes[number].sizes)]
            if not free.holds(size):
                return None
            free, found[number] = free.without(size), size
    return _completed(recipes, found, matched, [], machines)


def _completed(
    recipes: Sequence[Options],
    found: dict[int, Grant],
    matched: dict[str, int],
    left: Sequence[int],
    machines: frozenset[str],
) -> list[Grant] | None:
    for number in left:
        if not _augment(recipes, number, matched, machines, set()):
            return None
    by_recipe: dict[int, Grant] = {number: name for name, number in matched.items()}
    return [found[n] if n in found else by_recipe[n] for n in range(len(recipes))]


def _matched(
    recipes: Sequence[Options], numbers: Sequence[int], machines: frozenset[str]
) -> dict[str, int] | None:
    """Machine -> recipe, one each: augmenting paths (Kuhn's algorithm for bipartite matching)."""
    matched: dict[str, int] = {}
    for number in numbers:
        if not _augment(recipes, number, matched, machines, set()):
            return None
    return matched


def _augment(
    recipes: Sequence[Options],
    number: int,
    matched: dict[str, int],
    machines: frozenset[str],
    seen: set[str],
) -> bool:
    for name in recipes[number].machines:
        if name not in machines or name in seen:
            continue
        seen.add(name)
        if name not in matched or _augment(recipes, matched[name], matched, machines, seen):
            matched[name] = number
            return True
    return False
