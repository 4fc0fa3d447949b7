"""One thread for short work that strangers ask for, in turns: of groups, and of sources in a group.

Of many calls in one group, or of one source in it, one is worked on before those of others have
their turn. What waits is bounded; at a full group the source with most calls gives way.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar, cast

from nospoon.errors import Conflict

R = TypeVar("R")
V = TypeVar("V")
MOST_OF_SOURCE, MOST_OF_GROUP = 16, 64
"""Calls that wait; more get `Conflict`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    key: Hashable
    work: Callable[[], object]
    done: asyncio.Future[object]


_Waiting = OrderedDict[Hashable, deque[_Call]]
"""Calls by source, the source whose turn is next first."""


class FairWorker:
    """`name`: of its thread, which begins with the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._threads: ThreadPoolExecutor | None = None
        self._groups: OrderedDict[Hashable, _Waiting] = OrderedDict()
        self._calls: dict[tuple[Hashable, Hashable], asyncio.Future[object]] = {}
        self._runs = self._is_closed = False

    async def run(
        self, work: Callable[[], R], *, group: Hashable, source: Hashable, key: Hashable
    ) -> R:
        """What the work returns. Calls of a group with the same `key` are one.

        Raises `Conflict` where too many wait, also while this one does.
        """
        known = self._calls.get((group, key))
        if known is None:
            known = self._enqueue(work, group, source, key)
            self._next()
        return cast("R", await asyncio.shield(known))

    def _enqueue(
        self, work: Callable[[], object], group: Hashable, source: Hashable, key: Hashable
    ) -> asyncio.Future[object]:
        waiting = self._groups.get(group, OrderedDict())
        own = waiting.get(source, ())
        if len(own) >= MOST_OF_SOURCE or self._is_closed:
            raise self._busy()
        if self.waiting(group) >= MOST_OF_GROUP:
            self._give_way(group, waiting, len(own))
        future = asyncio.get_running_loop().create_future()
        self._calls[group, key] = future
        self._groups[group] = waiting
        waiting.setdefault(source, deque()).append(_Call(key, work, future))
        return future

    def _give_way(self, group: Hashable, waiting: _Waiting, own: int) -> None:
        """The last call of the source with most. Raises `Conflict` where that is who asks now."""
        most = max(waiting.values(), key=len)
        if len(most) <= own + 1:
            raise self._busy()
        call = most.pop()
        del self._calls[group, call.key]
        _settle(call.done, error=self._busy())

    def _busy(self) -> Conflict:
        return Conflict(f"{self._name}: other requests are under way", hint="Try again later.")

    def _next(self) -> None:
        if self._runs or not self._groups:
            return
        group, waiting = next(iter(self._groups.items()))
        source, calls = next(iter(waiting.items()))
        call = calls.popleft()
        if not calls:
            del waiting[source]
        if not waiting:
            del self._groups[group]
        self._runs = True
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix=self._name)
        running = asyncio.get_running_loop().run_in_executor(self._threads, call.work)
        running.add_done_callback(lambda done: self._ended(group, source, call, done))

    def _ended(
        self, group: Hashable, source: Hashable, call: _Call, done: asyncio.Future[object]
    ) -> None:
        self._runs = False
        _others_first(self._groups, group)  # those that came meanwhile, too
        _others_first(self._groups.get(group, OrderedDict()), source)
        self._calls.pop((group, call.key), None)
        if done.cancelled():  # the worker is closed
            _settle(call.done, error=self._busy())
            return
        error = done.exception()
        if error is not None:
            _settle(call.done, error=error)
        elif not call.done.done():
            call.done.set_result(done.result())
        self._next()

    def waiting(self, group: Hashable) -> int:
        """How many calls of a group wait for their turn."""
        return sum(map(len, self._groups.get(group, {}).values()))

    def close(self) -> None:
        """A call that is under way is not waited for; what waits gets `Conflict`."""
        self._is_closed = True
        waiting = [c for each in self._groups.values() for calls in each.values() for c in calls]
        self._groups.clear()
        for call in waiting:
            _settle(call.done, error=self._busy())
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _others_first(queue: OrderedDict[Hashable, V], name: Hashable) -> None:
    if name in queue:
        queue.move_to_end(name)


def _settle(done: asyncio.Future[object], *, error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # who asked may have gone
