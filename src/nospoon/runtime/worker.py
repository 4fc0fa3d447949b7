"""One thread for work that clients ask for and that takes seconds of a processor: it never holds up
the threads that everything else uses, and what waits for it is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from nospoon.errors import Conflict

R = TypeVar("R")


class Worker:
    """`name`: of its thread. `most`: calls that may run or wait; more get `Conflict`, and so does a
    second one of the same client.
    """

    def __init__(self, name: str, *, most: int = 4) -> None:
        self._name, self._most = name, most
        self._threads = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._clients: set[Hashable] = set()

    async def run(self, call: Callable[[], R], *, client: Hashable) -> R:
        """The call's result. It counts until it has ended, whether its caller waits or not."""
        if client in self._clients or len(self._clients) >= self._most:
            raise Conflict(f"{self._name}: other requests are under way", hint="Try again later.")
        self._clients.add(client)
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)

        def ended(future: asyncio.Future[R]) -> None:
            self._clients.discard(client)
            if not future.cancelled():
                future.exception()  # its caller may have gone

        future.add_done_callback(ended)
        return await asyncio.shield(future)

    def close(self) -> None:
        """A call that is under way is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
