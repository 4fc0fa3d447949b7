"""The sets that wait: a queue of each owner for each choice of labs, and the order among all."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterator

from nospoon.lab.work import RecipeSet

Queue = tuple[str, tuple[str, ...]]
"""An owner, and the labs that sets of him wait for."""
_Entry = tuple[int, int, str]
"""The order of a set, and its id."""
MOST_ASKED = 1000
"""Labs of queues that are gone through without a pause: half a millisecond."""


class Queues:
    """`amounts`: how many sets wait that a lab may serve, by its key, where there are any."""

    def __init__(self) -> None:
        self._waiting: dict[Queue, list[_Entry]] = {}
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

    def in_order(self, used: Callable[[Queue], int]) -> Iterator[str]:
        """Ids: priorities first; among equals, owners who have used less (`used`, asked before the
        first one, and a machine for each set before); then who came first. Sets may be removed
        meanwhile; those that come late may be left out. It costs as much as is taken of it, and
        before that each queue, of which a user makes thousands with owners and labs of his own:
        "" is for a pause.
        """
        heads, asked = list[tuple[int, int, int, Queue, _Entry]](), 0
        for queue, waiting in list(self._waiting.items()):
            if waiting:
                first = waiting[0]
                heads.append((first[0], used(queue), first[1], queue, first))
            asked += len(queue[1])
            if asked >= MOST_ASKED:
                asked = 0
                yield ""
        heapq.heapify(heads)
        while heads:
            _, before, _, queue, entry = heapq.heappop(heads)
            waiting = self._waiting.get(queue, [])
            after = bisect_right(waiting, entry)
            if after < len(waiting):
                following = waiting[after]
                head = (following[0], before + 1, following[1], queue, following)
                heapq.heappush(heads, head)
            yield entry[2]


def _queue(found: RecipeSet) -> Queue:
    return found.owner, found.labs
