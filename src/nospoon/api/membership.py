"""Members who leave the group: what they were let in for ends, such as a console that is open for
days.

`gate` looks at who calls when a request begins. A request that is being answered is looked at again
and again; one that is worked on goes on, because half of a change would be there.
"""

from __future__ import annotations

import asyncio
from typing import Self

from starlette.types import Message, Send

from nospoon.api.peer import Members
from nospoon.model.principal import Principal

AGAIN = 10.0
"""Seconds from one look to the next."""


class Watch:
    """One request, or websocket, of a user. Its task is cancelled where an answer has begun and the
    user is no member any more: `take_over` says so. What cannot be found out changes nothing.
    """

    def __init__(
        self, members: Members, caller: Principal, send: Send, *, again: float = AGAIN
    ) -> None:
        self._members, self._caller, self._send, self._again = members, caller, send, again
        self._task = asyncio.current_task()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self.has_begun = self.has_ended = self._has_left = False
        """The answer has, a websocket was accepted or closed; the user."""

    def __enter__(self) -> Self:
        if not self._caller.admin:
            self._later()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    async def send(self, message: Message) -> None:
        """What the application sends, noted."""
        self.has_begun = True
        self.has_ended |= message["type"] == "websocket.close"
        await self._send(message)

    def take_over(self) -> bool:
        """Whether its task was cancelled here; if so, it goes on."""
        if self._has_left and self._task is not None:
            self._task.uncancel()
        return self._has_left

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._again, self._look)

    def _look(self) -> None:
        self._members.asked(self._caller.uid).add_done_callback(self._seen)

    def _seen(self, answer: asyncio.Future[bool]) -> None:
        if self._is_over:
            return
        is_unknown = answer.cancelled() or answer.exception() is not None
        if is_unknown or answer.result() or not self.has_begun:
            self._later()
        elif self._task is not None:
            self._has_left = True
            self._task.cancel()
