"""Lists of all that a caller sees: made in slices, and kept until someone sees something else.

One is made at a time for those who ask for the same, and they share it: many requests at once take
neither the time nor the memory of many lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from heapq import merge
from typing import TypeVar, cast
from weakref import WeakValueDictionary

BATCH = 256
"""Names that are sorted, or written, without a rest."""
KEPT = 1 << 18
"""Names in all lists that are kept; those that no one asked for longest give way."""

T = TypeVar("T")
S = TypeVar("S", str, tuple[int, str])
Rest = Callable[[], Awaitable[None]]


class Listings:
    """What is kept. `version`: who calls says by it whether something is still true."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Hashable, int, object]] = {}
        self._size = 0
        self._making: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def get(
        self,
        key: Hashable,
        version: Callable[[], Hashable],
        make: Callable[[], Awaitable[tuple[int, T]]],
    ) -> T:
        """What is kept, else made: the names in it, and itself."""
        lock = self._making.setdefault(key, asyncio.Lock())
        async with lock:
            found = self._kept.get(key)
            if found is not None and found[0] == version():
                self._kept[key] = self._kept.pop(key)
                return cast("T", found[2])
            before = version()
            names, made = await make()
            self._drop(key)
            self._kept[key] = before, names + 1, made
            self._size += names + 1
            while self._size > KEPT:
                self._drop(next(iter(self._kept)))
            return made

    def _drop(self, key: Hashable) -> None:
        gone = self._kept.pop(key, None)
        self._size -= gone[1] if gone is not None else 0


async def ordered(names: Iterable[object], rest: Rest) -> tuple[str, ...]:
    """As text, sorted. `names` stay as they are meanwhile."""
    return tuple(await in_order(map(str, names), rest))


async def in_order(items: Iterable[S], rest: Rest) -> list[S]:
    """Sorted. `items` stay as they are meanwhile."""
    batches: list[list[S]] = [[]]
    for each in items:
        await rest()
        if len(batches[-1]) == BATCH:
            batches[-1].sort()
            batches.append([])
        batches[-1].append(each)
    batches[-1].sort()
    found: list[S] = []
    for item in merge(*batches):
        found.append(item)
        if len(found) % BATCH == 0:
            await rest()
    return found
