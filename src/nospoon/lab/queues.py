"""The sets that wait: a queue of each owner for each choice of labs, and the order among all."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from nospoon.lab.longest import Entry
from nospoon.lab.work import RecipeSet

Queue = tuple[str, tuple[str, ...]]
"""An owner, and the labs that sets of him wait for."""
MOST_ASKED = 1000
"""Labs of queues that are gone through without a pause: half a millisecond."""


class Queues:
    """`amounts`: how many sets wait that a lab may serve, by its key, where there are any."""

    def __init__(self) -> None:
        self._waiting: dict[Queue, list[Entry]] = {}
        self.amounts: Counter[str] = Counter()

    def add(self, found: RecipeSet) -> None:
        insort(self._waiting.setdefault(_queue(found), []), (*found.order, found.id))
        self.amounts.update(found.labs)

    def remove(self, found: RecipeSet) -> None:
        waiting = self._waiting[_queue(found)]
        at = bisect_left(waiting, (*found.order, found.id))
        assert waiting[at][2] == found.id, "what is queued is in its owner's queue"
        del waiting[at]
        if not waiting:
            del self._waiting[_queue(found)]
        self.amounts.subtract(found.labs)
        for key in found.labs:
            if not self.amounts[key]:
                del self.amounts[key]

    def in_order(
        self, used: Callable[[Queue], int], first: Collection[Entry] = ()
    ) -> Iterator[str]:
        """Ids: priorities first; among equals, those of `first`; then owners who have used less
        (`used`, asked before the first one, and a machine for each set before); then who came
        first. Sets may be removed meanwhile; those that come late may be left out. It costs as much
        as is taken of it, and before that each queue, of which a user makes thousands with owners
        and labs of his own: "" is for a pause.
        """
        heads: list[tuple[int, int, int, Queue | None, Entry]]
        heads, asked = [(each[0], -1, each[1], None, each) for each in first], 0
        before_others = {entry[2] for entry in first}
        for queue, waiting in list(self._waiting.items()):
            if waiting:
                head = waiting[0]
                heads.append((head[0], used(queue), head[1], queue, head))
            asked += len(queue[1])
            if asked >= MOST_ASKED:
                asked = 0
                yield ""
        heapq.heapify(heads)
        while heads:
            _, before, _, of, entry = heapq.heappop(heads)
            waiting = self._waiting.get(of, []) if of is not None else []
            after = bisect_right(waiting, entry)
            if after < len(waiting):
                following = waiting[after]
                heapq.heappush(heads, (following[0], before + 1, following[1], of, following))
            if of is None or entry[2] not in before_others:
                yield entry[2]

    def place(
        self, found: RecipeSet, used: Callable[[Queue], int], first: Collection[RecipeSet] = ()
    ) -> Iterator[int]:
        """At last, the place in the order of one that waits, from 1 on, among those that wait for
        the same lab; of several labs, the best. It costs as much as there are queues: 0 is for a
        pause.
        """
        before = dict.fromkeys(found.labs, 0)
        mine, asked = self._key(found, used), 0
        if any(each.id == found.id for each in first):
            mine = (-found.priority, -1, found.number)
        for queue, waiting in list(self._waiting.items()):
            if not before.keys().isdisjoint(queue[1]):
                earlier = _earlier(waiting, used(queue), mine)
                for key in before.keys() & queue[1]:
                    before[key] += earlier
            asked += len(queue[1])
            if asked >= MOST_ASKED:
                asked = 0
                yield 0
        for each in first:
            moved = (-each.priority, -1, each.number) < mine
            if each.id != found.id and moved > (self._key(each, used) < mine):
                for key in before.keys() & each.labs:
                    before[key] += 1
        yield 1 + min(before.values())

    def _key(self, found: RecipeSet, used: Callable[[Queue], int]) -> tuple[int, int, int]:
        """By which one that waits has its place in the order."""
        queue = _queue(found)
        at = bisect_left(self._waiting.get(queue, []), (*found.order, found.id))
        return (-found.priority, used(queue) + at, found.number)


def _earlier(waiting: Sequence[Entry], used: int, key: tuple[int, int, int]) -> int:
    """How many of a queue are before this key in the order."""
    priority, before, number = key
    start, end = (bisect_left(waiting, (each,)) for each in (priority, priority + 1))
    at = max(start, min(end, before - used))
    return at + (start <= before - used == at < end and waiting[at][1] < number)


def _queue(found: RecipeSet) -> Queue:
    return found.owner, found.labs
