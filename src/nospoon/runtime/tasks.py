"""Background tasks with a name and an owner, whose failure is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Self, TypeVar

import structlog

from nospoon.errors import NospoonError, ProviderError

log = structlog.get_logger()

R = TypeVar("R")


class Tasks:
    """A nursery that outlives one call: a failed task is logged with its traceback, not fatal.

    Use it as an async context manager; leaving cancels and awaits what still runs.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._tasks: set[asyncio.Task[object]] = set()

    def start(self, coroutine: Coroutine[object, object, R], *, name: str) -> asyncio.Task[R]:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self.owner}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def heard_out(
        self, coroutine: Coroutine[object, object, R], *, name: str, cancels: bool = False
    ) -> R:
        """What it returns or raises, from a task of its own. When we are cancelled it goes on to
        its end, or is cancelled first where `cancels`; only `close` breaks it off.

        Raises `ProviderError` when it was.
        """
        call = asyncio.get_running_loop().create_task(coroutine, name=f"{self.owner}: {name}")
        self._tasks.add(call)
        call.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            us = asyncio.current_task()
            if call.cancelled() and us is not None and not us.cancelling():
                raise ProviderError(f"{name} was broken off") from None
            if cancels:
                call.cancel()
            await asyncio.wait([call])
            if not call.cancelled() and (error := call.exception()) is not None:
                trace = {} if isinstance(error, NospoonError) else {"exc_info": error}
                why = "failed after its caller was cancelled"
                log.warning(why, task=name, error=str(error), **trace)
            raise

    def _done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task failed", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
