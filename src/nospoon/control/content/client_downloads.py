"""Downloads that clients of BMCs cause: in threads of their own, few at a time, none for ever."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from nospoon.control.content.fetch import Terms, Transfer
from nospoon.control.content.pace import Pace, watch
from nospoon.control.content.space import GIB, Charge, Space
from nospoon.errors import Conflict, NospoonError
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks

R = TypeVar("R")
THREADS = 32
"""Downloads of all BMCs at a time; more wait."""
PER_OWNER = 8
"""Downloads at a time of the BMCs of one user; more wait."""
WAITING = 4
"""Downloads of one BMC that run or wait; more are refused."""
DEADLINE = 3600.0
"""Seconds in which a download must be whole."""
WINDOW = 30.0
"""Seconds over which the rate is measured."""
LEAST_RATE = 16 << 10
"""Bytes a second, over each window."""
LARGEST = 16 * GIB
"""Bytes of an image, unless set otherwise."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What BMC clients may have fetched; the constants of this module say what each one is."""

    reach: Reach = field(default_factory=Reach)
    largest: int = LARGEST
    deadline: float = DEADLINE
    window: float = WINDOW
    rate: int = LEAST_RATE
    per_owner: int = PER_OWNER
    waiting: int = WAITING

    @property
    def pace(self) -> Pace:
        return Pace(self.deadline, self.window, self.rate)


Owner = Callable[[UUID], int | None]
"""Whose a machine is."""


class ClientDownloads:
    """One at a time for each BMC, a few for each owner. None of it touches the loop's executor."""

    def __init__(self, tasks: Tasks, limits: Limits, space: Space, owner: Owner) -> None:
        self._tasks, self._limits, self._space, self._owner = tasks, limits, space, owner
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="client-download")
        self._of_owner: defaultdict[int | None, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(limits.per_owner)
        )
        self._of_machine: dict[UUID, asyncio.Lock] = {}
        self._queued: defaultdict[UUID, int] = defaultdict(int)

    async def run(self, machine: UUID, transfer: Transfer, work: Callable[[Terms], R]) -> R:
        """`work` blocks, in a thread, for as long as `transfer` lasts; it is told its terms.

        Raises `Conflict` when too many of this BMC wait, `ProviderError` of one that is too slow.
        Who is cancelled meanwhile leaves nothing behind.
        """
        if self._queued[machine] >= self._limits.waiting:
            raise Conflict("too many downloads of this BMC are under way: wait until one has ended")
        running = self._tasks.start(self._in_turn(machine, transfer, work), name="download")
        try:
            outcome = await asyncio.shield(running)
        finally:
            transfer.stop()  # where it has ended, no one hears it
        if isinstance(outcome, NospoonError):
            raise outcome
        return outcome

    async def _in_turn(
        self, machine: UUID, transfer: Transfer, work: Callable[[Terms], R]
    ) -> R | NospoonError:
        """Its turn lasts until its thread has ended, also when no one waits for it any more."""
        owner = self._owner(machine)
        async with self._one_of(machine), self._of_owner[owner]:
            with self._space.charge(owner) as charge:
                terms = self._terms(charge)
                loop = asyncio.get_running_loop()
                future = loop.run_in_executor(self._threads, work, terms)
                try:
                    await watch(future, transfer, self._limits.pace)
                finally:
                    transfer.stop()
                try:
                    return future.result()
                except NospoonError as error:
                    return error

    @asynccontextmanager
    async def _one_of(self, machine: UUID) -> AsyncIterator[None]:
        self._queued[machine] += 1
        lock = self._of_machine.setdefault(machine, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            self._queued[machine] -= 1
            if not self._queued[machine]:
                del self._queued[machine], self._of_machine[machine]

    def _terms(self, charge: Charge) -> Terms:
        limits = self._limits
        return Terms(limits.reach, limits.largest, charge.expect, charge.take)

    def close(self) -> None:
        """What still runs was stopped by whoever waited for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)
