"""Who leaves the group of members: consoles and streams that are open then end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.security.asked import GROUP, OWNER

from nospoon.api.gate import REFUSED, Gate
from nospoon.api.peer import Members
from nospoon.model.principal import ROOT, Administrators, OwnerId
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
WEBSOCKET = {"type": "websocket", "path": "/v1/nodes/c/n/console", "query_string": b""}
STREAM = {"type": "http", "path": "/v1/files/x", "query_string": b"", "method": "PUT"}
"""Of which the gate reads nothing."""


@dataclass
class Group:
    """Who is in it; every look is a new one."""

    members: set[OwnerId] = field(default_factory=lambda: {OWNER})
    looks: int = 0
    _seconds: Any = field(default_factory=lambda: count(step=1000))

    def has(self, uid: OwnerId, group: str) -> bool:
        assert group == GROUP
        self.looks += 1
        return uid in self.members

    def clock(self) -> float:
        return float(next(self._seconds))


@dataclass
class Open:
    """An application that answers for ever, and what it sent to one who calls it."""

    group: Group = field(default_factory=Group)
    sent: list[MutableMapping[str, Any]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    begin: str = ""

    async def app(self, scope: Any, receive: Receive, send: Send) -> None:
        del scope, receive
        if self.begin:
            await send({"type": self.begin, "status": 200, "headers": []})
        self.begun.set()
        await asyncio.Event().wait()

    async def ask(self, scope: dict[str, Any], uid: OwnerId) -> None:
        members = Members(GROUP, Administrators(), is_member=self.group.has, clock=self.group.clock)
        try:
            gate = Gate(self.app, members, RateLimitedLog(), again=0.0)
            await gate({**scope, "client": (f"uid={uid}", 1)}, self._receive, self._send)
        finally:
            members.close()

    async def _receive(self) -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(message)

    async def looked(self) -> None:
        """Until the group has been looked at twice more."""
        before = self.group.looks
        while self.group.looks < before + 2:  # noqa: ASYNC110  (a thread counts them)
            await asyncio.sleep(0)


async def test_a_console_closes_when_its_reader_is_no_member_any_more() -> None:
    """It was open for as long as its client liked, who could go on to type."""
    found = Open(begin="websocket.accept")
    async with asyncio.timeout(20), Tasks("callers") as tasks:
        asking = tasks.start(found.ask(WEBSOCKET, OWNER), name="reader")
        await found.begun.wait()
        await found.looked()
        assert not asking.done()
        found.group.members.clear()
        await asking
    (_, close) = found.sent
    assert (close["type"], close["code"]) == ("websocket.close", REFUSED)
    assert f"user {OWNER} may not use this daemon" in close["reason"]


async def test_a_stream_ends_when_its_reader_is_no_member_any_more() -> None:
    found = Open(begin="http.response.start")
    async with asyncio.timeout(20), Tasks("callers") as tasks:
        asking = tasks.start(found.ask(STREAM, OWNER), name="reader")
        await found.begun.wait()
        found.group.members.clear()
        await asyncio.wait([asking])
    assert asking.cancelled(), "which closes the connection"


async def test_work_that_has_begun_is_done_whoever_asked_for_it() -> None:
    """Half of a change would be there otherwise."""
    found = Open()
    async with asyncio.timeout(20), Tasks("callers") as tasks:
        asking = tasks.start(found.ask(STREAM, OWNER), name="reader")
        await found.begun.wait()
        found.group.members.clear()
        await found.looked()
        assert not asking.done()


async def test_an_administrator_needs_no_group() -> None:
    found, beside = Open(begin="websocket.accept"), Open(begin="websocket.accept")
    beside.group = found.group
    async with asyncio.timeout(20), Tasks("callers") as tasks:
        asking = [
            tasks.start(each.ask(WEBSOCKET, uid), name="reader")
            for each, uid in ((found, ROOT), (beside, OWNER))
        ]
        await found.begun.wait()
        await found.looked()
        found.group.members.clear()
        await asking[1]
        assert not asking[0].done()
    assert [each["type"] for each in found.sent] == ["websocket.accept"]
