"""Threads for calls to services of clouds, which block: each user has some, and waits for no other.

A service is one that a cluster file names, so it may be slow or silent. What it keeps busy is its
user's share, and each call has an end (`nospoon.providers.cloud_lines`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any, TypeVar

from nospoon.runtime.reach import ANYWHERE, Reach

PER_USER = 32
"""Calls of one user at a time; more wait."""
REMEMBERED = 64
"""Services of one user that stay connected; of more, the one that was longest unused is left."""
LARGE, LARGE_PER_USER = 1 << 16, 4
"""Bytes of an answer, from which on so many of one user are received and decoded at a time: a
decoded one takes many times its size.
"""
MAX_SECONDS = 120.0
"""Of one call: its login, its redirects and the whole answer."""
ADMINISTRATION = -1
"""Stands for the user of looks at everybody's clouds: `orphans` and `recover`."""
R = TypeVar("R")
A = TypeVar("A")
_end: ContextVar[float] = ContextVar("end", default=float("inf"))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Calls of this thread have at most so many seconds in all, or less where they had less."""
    before = _end.set(min(_end.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _end.reset(before)


def patience(of: object) -> float:
    """Seconds for which the next piece may be waited for: `of` is a socket's timeout, if any.

    Raises `TimeoutError` where the call is over.
    """
    left = _end.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError("the call is over")
    return min(left, float(of)) if isinstance(of, (int, float)) else left


@dataclass(slots=True)
class _Place:
    """Of one call, among the large answers of its user. It is left when the call ends."""

    places: BoundedSemaphore
    left: ExitStack
    is_taken: bool = False


_place: ContextVar[_Place | None] = ContextVar("place", default=None)


def wait_for_place() -> None:
    """Called when an answer is large: the call goes on once few others of its user have such.

    Raises `TimeoutError` where the call is over before.
    """
    place = _place.get()
    if place is None or place.is_taken:
        return
    if not place.places.acquire(timeout=min(patience(None), MAX_SECONDS)):
        raise TimeoutError("other large answers took too long")
    place.is_taken = True
    place.left.callback(place.places.release)


def large_places(count: int = LARGE_PER_USER) -> BoundedSemaphore:
    """For so many large answers at a time."""
    return BoundedSemaphore(count)


@dataclass(frozen=True, slots=True)
class Means:
    """With what a service is called: threads of its user, where connections may go, and places for
    the user's large answers.
    """

    threads: Executor
    reach: Reach = ANYWHERE
    large: BoundedSemaphore = field(default_factory=large_places)


class Calls:
    """Calls of one user to one service: `parallel` at a time."""

    def __init__(self, means: Means, *, parallel: int, seconds: float = MAX_SECONDS) -> None:
        self._threads, self._large, self._seconds = means.threads, means.large, seconds
        self._free = asyncio.Semaphore(parallel)

    async def run(self, call: Callable[[], R], *, longer: float = 0.0) -> R:
        """What the call returns. Its thread goes on when the caller is cancelled, up to its end.
        `longer`: seconds that it may take beyond what others may.
        """
        async with self._free:
            loop = asyncio.get_running_loop()
            seconds = self._seconds + longer
            return await loop.run_in_executor(self._threads, self._bounded, call, seconds)

    def _bounded(self, call: Callable[[], R], seconds: float) -> R:
        with within(seconds), ExitStack() as left:
            _place.set(_Place(self._large, left))
            left.callback(_place.set, None)
            return call()


class Clouds:
    """The services that are connected, of each user. `reach`: where they may be."""

    def __init__(self, reach: Reach = ANYWHERE) -> None:
        self._reach = reach
        self._threads: dict[int, ThreadPoolExecutor] = {}
        self._means: dict[int, Means] = {}
        self._services: defaultdict[int, dict[Hashable, Any]] = defaultdict(dict)

    def service(self, user: int, name: Hashable, make: Callable[[Means], A]) -> A:
        """The service of this name, made when it is not remembered. Who still uses one that is
        forgotten may go on with it.
        """
        mine = self._services[user]
        found: A = mine.pop(name) if name in mine else make(self._means_of(user))
        mine[name] = found
        while len(mine) > REMEMBERED:
            del mine[next(iter(mine))]
        return found

    def _means_of(self, user: int) -> Means:
        if user not in self._means:
            self._threads[user] = ThreadPoolExecutor(PER_USER, thread_name_prefix="cloud")
            self._means[user] = Means(self._threads[user], self._reach)
        return self._means[user]

    def large_places(self, user: int) -> BoundedSemaphore:
        """Those of all services of a user, clouds' among them."""
        return self._means_of(user).large

    def close(self) -> None:
        """A call that hangs is not waited for."""
        for each in self._threads.values():
            each.shutdown(wait=False, cancel_futures=True)
