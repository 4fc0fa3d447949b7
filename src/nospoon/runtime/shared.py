"""One call for all who want its answer at a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """A call whose answer, or error, all get who asked before it began; one is made at a time."""

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call, self._turn = call, asyncio.Lock()
        self._begun = self._over = self._waiting = 0
        self._made: asyncio.Future[T] | None = None
        """Of the call that was over last, while someone waits for it."""

    async def __call__(self) -> T:
        """The answer of a call that begins from now on. Raises what the call raises."""
        asked = self._begun
        self._waiting += 1
        try:
            async with self._turn:
                made = self._made
                if made is None or self._over <= asked:
                    made = await self._make()
                return made.result()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._made = None

    async def _make(self) -> asyncio.Future[T]:
        await asyncio.sleep(0)  # who asks at the same moment has this one's answer
        self._begun += 1
        made = asyncio.get_running_loop().create_future()
        try:
            made.set_result(await self._call())
        except Exception as error:  # noqa: BLE001  (all who asked are to have it)
            made.set_exception(error)
        self._made, self._over = made, self._begun
        return made
