"""The sets that have waited for longest, so that none waits for ever while others are served.

Owners with fewer machines go first, and large sets wait for more than small ones: each could be
passed for ever, by those of other owners, or by large ones that wait for something else. So the
oldest set of a priority goes before all others of it, with all that it needs kept for it, once
`MOST_SERVED` sets have started in a lab since it was the oldest there. As each set becomes the
oldest, the one before which N wait is passed by some `MOST_SERVED` x (N + 1) others at most.

Sets that wait for people, who reserved a machine or have to repair it, are left out. All of it is
forgotten with the daemon.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator

from nospoon.lab.work import RecipeSet

Entry = tuple[int, int, str]
"""The order of a set, and its id."""
MOST_SERVED = 16
"""Sets that start in a lab before the oldest one that waits there goes first."""
MOST_LEFT_OUT = 1000
"""Oldest sets of a lab that wait for people, beyond which no others are looked for."""


class Longest:
    """Of all labs, by their keys."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Entry]] = {}
        self._served: Counter[str] = Counter()
        self._since: dict[str, dict[str, int]] = {}
        """Id of a set -> lab -> what was served there when the set was first its oldest."""

    def add(self, found: RecipeSet) -> None:
        for key in found.labs:
            insort(self._waiting.setdefault(key, []), (*found.order, found.id))

    def remove(self, found: RecipeSet) -> None:
        """It is being started, say: if it comes back, it is as old as it was."""
        for key in found.labs:
            waiting = self._waiting[key]
            del waiting[bisect_left(waiting, (*found.order, found.id))]
            if not waiting:
                del self._waiting[key]

    def started(self, key: str, set_id: str) -> None:
        """A lab served it."""
        self._served[key] += 1
        self.forget(set_id)

    def forget(self, set_id: str) -> None:
        """It waits no more, or has just found that it waits for what no set of the lab has."""
        self._since.pop(set_id, None)

    def first(self, could_start: Callable[[str, str], bool]) -> Iterator[Entry | None]:
        """Those that go before all others of their priority. `could_start`: whether a set could in
        a lab, if all leases there were over. None is for a pause, in which sets may come and go.
        """
        for key, waiting in list(self._waiting.items()):
            yield None
            at = 0
            while at < len(waiting):  # once for each priority
                priority = waiting[at][0]
                for entry in waiting[at : at + MOST_LEFT_OUT]:
                    if entry[0] != priority:
                        break
                    if could_start(entry[2], key):
                        since = self._since.setdefault(entry[2], {})
                        served = self._served[key]
                        if served - since.setdefault(key, served) >= MOST_SERVED:
                            yield entry
                        break
                    yield None
                at = bisect_right(waiting, priority, lo=at, key=lambda entry: entry[0])
