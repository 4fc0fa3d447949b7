"""Threads for work that takes a processor for seconds: one piece of each owner's at a time.

The default executor is everybody's: what waits there for a long piece of work is all that the
daemon does in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from nospoon.runtime.freeing import free_frames
from nospoon.runtime.turns import Turns

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """`name`: what their threads are called."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._turns = Turns()

    async def run(self, owner: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the work returns. Python cannot stop a thread: who is cancelled meanwhile waits for
        its end, and so does the owner's next piece of work. Of work that fails, what its frames
        held is freed in slices: a refused file of 600,000 values took 0.17 s.
        """
        async with self._turns.of(str(owner)):
            job = self._threads.submit(partial(work, *args, **kwargs))
            answer = asyncio.wrap_future(job)
            try:
                await asyncio.wait([answer])  # to await it would cancel it
            except asyncio.CancelledError:
                if not job.cancel():
                    await asyncio.wait([answer])
                    answer.exception()  # no one asks for it any more
                raise
            if (error := answer.exception()) is None:
                return answer.result()
            await free_frames(error)
            try:
                raise error
            finally:  # else this frame has it, and it this frame, with all that its callers have
                del error, answer, job

    def close(self) -> None:
        """What runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)
