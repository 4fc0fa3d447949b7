"""Events on their way to those who subscribed: a few workers for all, none while nothing waits.

Events of one subscription go in order, many in one request. A destination that does not take them
is asked again after a while; after so many attempts its subscription ends or is suspended, as its
policy says. It may be `WAITING` events behind, then the oldest are lost, and it is told so first.
Those that failed last time, or take longer than `PROMPT`, have workers of their own. Owners take
turns, and have few workers each: destinations that never answer hold up no other owner's events.
Where too much waits for all together, the owner for whose subscriptions most waits loses events.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace

import msgspec

from nospoon.bmc.events import EventSettings, RetryPolicy, Subscription
from nospoon.errors import ProviderError
from nospoon.runtime.http import request, without_account
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.reach import ANYWHERE, Reach
from nospoon.runtime.tasks import Tasks

log = RateLimitedLog()
WORKERS, SLOW_WORKERS, BATCH, WAITING = 32, 64, 32, 256
OF_ONE = 8
"""Workers of either kind that one owner's subscriptions may have at a time."""
PATIENCE, PROMPT = 10.0, 0.5
LONGEST_WAIT = 3600.0
LONGEST_ANSWER = 1 << 16
"""Bytes; only its status is of interest."""
LINE_BYTES, ALL_BYTES = 1 << 18, 1 << 26
"""Bytes of JSON that wait for one subscription, and for all of them together."""
NoteLost = Callable[[str], None]
"""Called for a subscription whose first event since the last delivery is lost."""
OwnerOf = Callable[[str], Hashable]
"""Whose a subscription is."""
Look = Callable[[str], tuple[EventSettings, Subscription] | None]
GiveUp = Callable[[str], Awaitable[None]]
Overrun = Callable[[], dict[str, object]]
Wrap = Callable[[Subscription, list[dict[str, object]]], dict[str, object]]


@dataclass(slots=True)
class _Share:
    """What waits for one owner's subscriptions, in bytes; `lines` give way in turn."""

    size: int = 0
    lines: dict[str, _Line] = field(default_factory=dict)


@dataclass(slots=True)
class _Stock:
    """What waits for all subscriptions, in bytes, and `of` each owner."""

    size: int = 0
    of: dict[Hashable, _Share] = field(default_factory=dict)

    def line(self, subscription: str, owner: Hashable) -> _Line:
        """A new one, on which nothing waits."""
        share = self.of.setdefault(owner, _Share())
        line = share.lines[subscription] = _Line(self, owner, subscription)
        return line

    def drop(self, line: _Line) -> None:
        """Nothing waits on it any more, and nothing will."""
        line.clear()
        share = self.of[line.owner]
        del share.lines[line.subscription]
        if not share.lines:
            del self.of[line.owner]

    def count(self, owner: Hashable, size: int) -> None:
        self.size += size
        self.of[owner].size += size

    def shorten(self, note_lost: NoteLost) -> None:
        """While too much waits, the owner with most loses the older half of what waits for one
        subscription. His subscriptions take turns, because there may be very many.
        """
        while self.size > ALL_BYTES:
            share = max(self.of.values(), key=lambda each: each.size)
            subscription, line = next(iter(share.lines.items()))
            del share.lines[subscription]
            share.lines[subscription] = line  # behind its owner's others
            if line.lose(-(-len(line.waiting) // 2)):
                note_lost(subscription)


@dataclass(slots=True)
class _Line:
    """What waits for one subscription. `failures` since its destination took something.

    `lost`: events for which there was no room, and of which the destination was not told.
    """

    stock: _Stock
    owner: Hashable
    subscription: str
    waiting: deque[dict[str, object]] = field(default_factory=deque)
    sizes: deque[int] = field(default_factory=deque)
    size: int = 0
    failures: int = 0
    lost: int = 0
    timer: asyncio.TimerHandle | None = None

    def add(self, record: dict[str, object]) -> bool:
        """At the end; whether the oldest gave way, and that is new."""
        size = len(msgspec.json.encode(record))
        self.waiting.append(record)
        self.sizes.append(size)
        self._count(size)
        return self._shorten()

    def take(self) -> list[dict[str, object]]:
        """What one request carries."""
        return [self._pop() for _ in range(min(BATCH, len(self.waiting)))]

    def clear(self) -> None:
        """Nothing waits any more."""
        self._count(-self.size)
        self.waiting.clear()
        self.sizes.clear()

    def _pop(self) -> dict[str, object]:
        self._count(-self.sizes.popleft())
        return self.waiting.popleft()

    def _count(self, size: int) -> None:
        self.size += size
        self.stock.count(self.owner, size)

    def put_back(self, batch: list[dict[str, object]]) -> bool:
        """At the beginning; whether the oldest gave way, and that is new."""
        sizes = [len(msgspec.json.encode(record)) for record in batch]
        self.waiting.extendleft(reversed(batch))
        self.sizes.extendleft(reversed(sizes))
        self._count(sum(sizes))
        return self._shorten()

    def _shorten(self) -> bool:
        was_whole = not self.lost
        while len(self.waiting) > WAITING or self.size > LINE_BYTES:
            self.lose(1)
        return was_whole and self.lost > 0

    def lose(self, number: int) -> bool:
        """So many of the oldest give way. Returns whether none was lost before."""
        is_new = bool(number) and not self.lost
        for _ in range(number):
            self._pop()
        self.lost += number
        return is_new


@dataclass(slots=True)
class _Lane:
    """Subscriptions whose turn it is by owner, and how many of at most so many workers see to them,
    `busy` with each owner's.
    """

    most: int
    ready: dict[Hashable, deque[str]] = field(default_factory=dict)
    busy: Counter[Hashable] = field(default_factory=Counter)
    workers: int = 0

    def put(self, owner: Hashable, subscription: str) -> None:
        self.ready.setdefault(owner, deque()).append(subscription)

    def next(self) -> tuple[Hashable, str] | None:
        """The next owner who may have one more worker, and the subscription."""
        for owner, waiting in self.ready.items():
            if self.busy[owner] < OF_ONE:
                del self.ready[owner]
                found = waiting.popleft()
                if waiting:
                    self.ready[owner] = waiting  # behind all others
                return owner, found
        return None

    def begin(self, owner: Hashable) -> None:
        self.busy[owner] += 1

    def end(self, owner: Hashable) -> None:
        self.busy[owner] -= 1
        if not self.busy[owner]:
            del self.busy[owner]


@dataclass(slots=True)
class _Worker:
    lane: _Lane
    owner: Hashable = None


class Deliveries:
    """`look` finds a subscription as it is now, `give_up` is told when attempts are used up.

    `overrun` makes the record which says that others were lost. `owner_of`: whose a
    subscription is. `reach`: where destinations may be.
    """

    def __init__(
        self,
        tasks: Tasks,
        look: Look,
        give_up: GiveUp,
        wrap: Wrap,
        *,
        overrun: Overrun,
        owner_of: OwnerOf = lambda _: None,
        reach: Reach = ANYWHERE,
    ) -> None:
        self._tasks, self._look, self._give_up, self._wrap = tasks, look, give_up, wrap
        self._overrun, self._owner_of, self._reach = overrun, owner_of, reach
        self._lines: dict[str, _Line] = {}
        self._stock = _Stock()
        self._prompt, self._slow = _Lane(WORKERS), _Lane(SLOW_WORKERS)

    def put(self, subscription: str, record: dict[str, object]) -> None:
        """Deliver it some time; does not wait."""
        line, is_new = self._lines.get(subscription), False
        if line is None:
            line = self._stock.line(subscription, self._owner_of(subscription))
            self._lines[subscription], is_new = line, True
        if line.add(record):
            _note_lost(subscription)
        self._stock.shorten(_note_lost)
        if is_new:
            self._turn(subscription, line)

    def forget(self, subscription: str) -> None:
        """Nothing more goes there."""
        line = self._lines.pop(subscription, None)
        if line is None:
            return
        self._stock.drop(line)
        if line.timer is not None:
            line.timer.cancel()

    def close(self) -> None:
        for each in list(self._lines):
            self.forget(each)

    def _turn(self, subscription: str, line: _Line) -> None:
        lane = self._slow if line.failures else self._prompt
        lane.put(line.owner, subscription)
        self._staff(lane)

    def _staff(self, lane: _Lane) -> None:
        if lane.ready and lane.workers < lane.most:
            lane.workers += 1
            self._tasks.start(self._work(_Worker(lane)), name="deliver events")

    async def _work(self, worker: _Worker) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (found := worker.lane.next()) is not None:
                worker.owner, subscription = found
                worker.lane.begin(worker.owner)
                timer = loop.call_later(PROMPT, self._step_aside, worker)
                try:
                    await self._deliver(subscription)
                finally:
                    timer.cancel()
                    worker.lane.end(worker.owner)
        finally:
            worker.lane.workers -= 1

    def _step_aside(self, worker: _Worker) -> None:
        """It waits for a destination that takes long: another sees to those that do not."""
        slow, owner = self._slow, worker.owner
        if worker.lane is slow or slow.workers >= slow.most or slow.busy[owner] >= OF_ONE:
            return
        worker.lane.workers -= 1
        worker.lane.end(owner)
        worker.lane = slow
        slow.workers += 1
        slow.begin(owner)
        self._staff(self._prompt)

    async def _deliver(self, subscription: str) -> None:
        line, found = self._lines.get(subscription), self._look(subscription)
        if line is None or found is None:
            self.forget(subscription)
            return
        settings, wanted = found
        lost, batch = line.lost, line.take()
        reach = replace(self._reach, owner=line.owner)
        why = await self._post(wanted, [self._overrun(), *batch] if lost else batch, reach)
        if self._lines.get(subscription) is not line:
            return
        if why:
            if line.put_back(batch):
                _note_lost(subscription)
            self._stock.shorten(_note_lost)
            await self._failed(subscription, line, settings, wanted, why=why)
            return
        line.failures, line.lost = 0, line.lost - lost
        if line.waiting:
            self._turn(subscription, line)
        else:
            del self._lines[subscription]
            self._stock.drop(line)

    async def _post(
        self, wanted: Subscription, batch: list[dict[str, object]], reach: Reach
    ) -> str:
        """Why it was not taken, "" when it was."""
        body = msgspec.json.encode(self._wrap(wanted, batch))
        try:
            answer = await request(
                "POST",
                wanted.destination,
                body,
                headers=[("OData-Version", "4.0"), *wanted.headers],
                verify=wanted.verify,
                patience=PATIENCE,
                reach=reach,
                most=LONGEST_ANSWER,
            )
        except ProviderError as error:
            return str(error)
        good = 200 <= answer.status < 300
        return "" if good else f"{without_account(wanted.destination)} answered {answer.status}"

    async def _failed(
        self,
        subscription: str,
        line: _Line,
        settings: EventSettings,
        wanted: Subscription,
        *,
        why: str,
    ) -> None:
        line.failures += 1
        finite = wanted.policy in {RetryPolicy.TERMINATE, RetryPolicy.SUSPEND}
        if finite and line.failures > settings.attempts:
            log.warning("gave up to deliver events", why=why, attempts=line.failures)
            self.forget(subscription)
            await self._give_up(subscription)
            return
        wait = float(settings.interval)
        if wanted.policy is RetryPolicy.BACKOFF:
            wait = min(LONGEST_WAIT, wait * 2 ** min(line.failures - 1, 16))
        loop = asyncio.get_running_loop()
        line.timer = loop.call_later(wait, self._again, subscription, line)

    def _again(self, subscription: str, line: _Line) -> None:
        line.timer = None
        if self._lines.get(subscription) is line:
            self._turn(subscription, line)


def _note_lost(subscription: str) -> None:
    """Once, until the destination gets to know."""
    log.warning("a subscriber is too far behind: events are lost", id=subscription)
