"""The sets that wait: a queue of each owner for each choice of labs, and the order among all."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterator

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


def _queue(found: RecipeSet) -> Queue:
    return found.owner, found.labs
