"""Which machine each recipe of a set gets in a lab: all of them at once, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
        return Free(self.machines - 1, self.cpus - size.cpus, self.memory - size.memory)

    def plus(self, size: Size) -> Free:
        return Free(self.machines + 1, self.cpus + size.cpus, self.memory + size.memory)

    def holds(self, size: Size) -> bool:
        return self.machines >= 1 and self.cpus >= size.cpus and self.memory >= size.memory


NOTHING = Free(0, 0, 0)
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
    loans = _Loans(recipes, machines)
    if not all(loans.add(number) for number in others):
        return None
    if prefer is Prefer.DYNAMIC:
        left = []
        for number in flexible:
            size = recipes[number].sizes[attempt % len(recipes[number].sizes)]
            if free.holds(size):
                free, found[number] = free.without(size), size
            else:
                left.append(number)
        if not all(loans.add(number) for number in left):
            return None
        return _completed(recipes, found, loans)
    for number in flexible:
        if not loans.add(number):
            size = recipes[number].sizes[attempt % len(recipes[number].sizes)]
            if not free.holds(size):
                return None
            free, found[number] = free.without(size), size
    return _completed(recipes, found, loans)


def _completed(recipes: Sequence[Options], found: dict[int, Grant], loans: _Loans) -> list[Grant]:
    loaned = loans.by_recipe()
    return [found[n] if n in found else loaned[n] for n in range(len(recipes))]


class _Loans:
    """A machine for each recipe: augmenting paths (Kuhn's algorithm for bipartite matching). Sets
    of machines are bits of a number, so that 100 recipes which all fit 1,000 machines take
    milliseconds.
    """

    def __init__(self, recipes: Sequence[Options], machines: frozenset[str]) -> None:
        self._recipes, self._machines = recipes, machines
        self._bits: dict[str, int] = {}
        self._names: list[str] = []
        self._fitting: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._used = 0

    def add(self, number: int) -> bool:
        """Whether this recipe has one, too; those before it may have changed theirs."""
        seen = 0
        path = [(number, self._mask(number), -1)]  # recipe, what it may ask for yet, what it asked
        while path:
            recipe, left, _ = path[-1]
            free = left & ~self._used
            if free:
                self._move(path, _lowest(free))
                return True
            left &= ~seen
            if not left:
                path.pop()
                continue
            bit = _lowest(left)
            seen |= 1 << bit
            path[-1] = (recipe, left & ~(1 << bit), bit)
            other = self._taken[bit]
            path.append((other, self._mask(other), -1))
        return False

    def _move(self, path: Sequence[tuple[int, int, int]], free: int) -> None:
        self._used |= 1 << free
        asked_for = [asked for _, _, asked in path[:-1]]
        for (recipe, _, _), bit in zip(path, [*asked_for, free], strict=True):
            self._taken[bit] = recipe

    def by_recipe(self) -> dict[int, str]:
        return {recipe: self._names[bit] for bit, recipe in self._taken.items()}

    def _mask(self, number: int) -> int:
        if number not in self._fitting:
            mask = 0
            for name in self._recipes[number].machines:
                if name in self._machines:
                    if name not in self._bits:
                        self._bits[name] = len(self._names)
                        self._names.append(name)
                    mask |= 1 << self._bits[name]
            self._fitting[number] = mask
        return self._fitting[number]


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
