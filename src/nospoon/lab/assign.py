"""Which machine each recipe of a set gets in a lab: all of them at once, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    sizes = {
        n: each.sizes[attempt % len(each.sizes)] for n, each in enumerate(recipes) if each.sizes
    }
    flexible = [n for n in sizes if recipes[n].machines]
    for number in sizes.keys() - flexible:
        if not free.holds(sizes[number]):
            return None
        free = free.without(sizes[number])
    loans = _Loans(recipes, machines)
    if not all(loans.add(number) for number in range(len(recipes)) if number not in sizes):
        return None
    preferred = _dynamic_first if prefer is Prefer.DYNAMIC else _registered_first
    loaned = preferred(flexible, sizes, free, loans.copy())
    if loaned is None and len({sizes[n] for n in flexible}) > 1:
        loaned = _largest_loaned(flexible, sizes, free, loans, prefer)
    if loaned is None:
        return None
    return [loaned[n] if n in loaned else sizes[n] for n in range(len(recipes))]


def _dynamic_first(
    flexible: Sequence[int], sizes: Mapping[int, Size], free: Free, loans: _Loans
) -> dict[int, str] | None:
    """Machines of recipes that have no dynamic one."""
    left = []
    for number in flexible:
        if free.holds(sizes[number]):
            free = free.without(sizes[number])
        else:
            left.append(number)
    return loans.by_recipe() if all(map(loans.add, left)) else None


def _registered_first(
    flexible: Sequence[int], sizes: Mapping[int, Size], free: Free, loans: _Loans
) -> dict[int, str] | None:
    for number in flexible:
        if not loans.add(number):
            if not free.holds(sizes[number]):
                return None
            free = free.without(sizes[number])
    return loans.by_recipe()


def _largest_loaned(
    flexible: Sequence[int], sizes: Mapping[int, Size], free: Free, loans: _Loans, prefer: Prefer
) -> dict[int, str] | None:
    """Where sizes differ: those that take most of a limit have registered machines first, so that
    what is left of them takes as little of it as it can (the greedy algorithm for matroids: sets
    of recipes that can have machines at once are one).
    """
    for weight in (lambda n: sizes[n].memory, lambda n: sizes[n].cpus):
        largest = sorted(flexible, key=weight, reverse=True)
        loaned = _registered_first(largest, sizes, free, loans.copy())
        if loaned is None:
            continue
        for number in flexible:
            if number not in loaned:
                free = free.without(sizes[number])
        if prefer is Prefer.DYNAMIC:
            for number in flexible:
                if number in loaned and free.holds(sizes[number]):
                    free = free.without(sizes[number])
                    del loaned[number]
        return loaned
    return None


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

    def copy(self) -> _Loans:
        """As it is now: what is added to the one is not in the other."""
        made = _Loans(self._recipes, self._machines)
        made._bits, made._names = dict(self._bits), list(self._names)
        made._fitting, made._taken, made._used = dict(self._fitting), dict(self._taken), self._used
        return made

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
