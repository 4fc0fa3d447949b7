"""Callers who leave: work that only they wait for is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from fastapi import Request

from nospoon.errors import NospoonError
from nospoon.runtime.tasks import Tasks

T = TypeVar("T")


class CallerGone(NospoonError):
    """The caller has closed the connection; no one reads the answer."""


async def unless_gone(request: Request, work: Coroutine[object, object, T]) -> T:
    """What the work returns. Cancels it and raises `CallerGone` when the caller disconnects."""
    mine = asyncio.current_task()
    assert mine is not None, "a request is a task"
    async with Tasks("caller") as tasks:
        leaving = tasks.start(_gone(request, mine.cancel), name=request.url.path)
        try:
            return await work
        except asyncio.CancelledError:
            if not leaving.done():
                raise
            mine.uncancel()
            raise CallerGone("the caller has closed the connection") from None


async def _gone(request: Request, then: Callable[[], object]) -> None:
    """Waits until the caller disconnects (ASGI, http.disconnect); the body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    then()
