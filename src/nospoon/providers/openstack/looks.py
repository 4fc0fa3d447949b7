"""Looks at servers: one for all who wait for some, and for the watch of their cloud.

The less happens, the less often they are made: what is waited for takes a cloud seconds or minutes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from nospoon.providers.openstack.api import MOST_LISTED, MOST_PARTS
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.roster import Roster, Server
from nospoon.runtime import clock
from nospoon.runtime.shared import Shared

SELDOMEST = 4.0
"""Pauses from one look to the next at most, while servers are waited for."""
SLOWER, FASTER = 1.5, 0.7
"""By which the time from one look to the next grows with one that saw nothing new, and falls with
another: then about one in two sees something.
"""
SOON = 4
"""Pauses from one look at all servers to the next, while something changes."""
RESTLESS = 60.0
"""Seconds for which servers may still change after a command."""
QUIET, STALE = 60.0, 600.0
"""Seconds without anyone who waits, after which it is forgotten what servers were; and without a
look, after which all is asked for: a cloud says of each server that went since.
"""
Hear = Callable[[Collection[Server], Collection[UUID]], Awaitable[None]]
"""Called with servers that changed, and the ids of those that went."""


@dataclass(slots=True)
class Pace:
    """How long it is from one look to the next. In seconds, on the monotonic clock."""

    shortest: float
    pause: float = 0.0
    due: float = 0.0

    def begin(self, due: float) -> None:
        """The first look for someone who waits is due."""
        self.pause, self.due = self.shortest, due

    def looked(self, now: float, *, is_new: bool) -> None:
        """Whether something that is waited for was not as it was before."""
        wanted = self.pause * (FASTER if is_new else SLOWER)
        self.pause = min(max(wanted, self.shortest), SELDOMEST * self.shortest)
        self.due = now + self.pause


class Looks:
    """Who waits alone asks for that server, several for what changed of all (`changes-since`). All
    that a look finds is handed to `hear`, but for servers that are waited for: who waits says
    what became of them.
    """

    def __init__(self, around: Around, roster: Roster, hear: Hear) -> None:
        self._around, self._roster, self._hear = around, roster, hear
        self._changes = Shared(self._list)
        self._waited = Counter[UUID]()
        self._known: dict[UUID, Server] = {}
        self._is_whole = False
        """Whether every server is known, as it was at the last look."""
        self._since = ""
        self._begun = self._waited_last = float("-inf")
        self._pace = Pace(around.pause)
        self._restless = 0.0

    def stir(self) -> None:
        """Servers change from now on."""
        self._restless = clock.monotonic() + RESTLESS

    @property
    def is_restless(self) -> bool:
        """Whether servers may still change after a command."""
        return clock.monotonic() < self._restless

    async def now(self, machine: UUID) -> Server | None:
        """The server of a machine as it is now or later; None where there is none."""
        if not self._is_whole:
            return await self._roster.of(machine)
        await self._changes()
        return await self._seen(machine)

    async def soon(self, machine: UUID) -> Server | None:
        """As `now`, half a pause from now or later, and when the next look is due."""
        pause, asked = self._around.pause, clock.monotonic()
        earliest = asked + pause / 2
        if not self._waited and asked > self._waited_last + pause:
            self._pace.begin(earliest)
        self._waited[machine] += 1
        try:
            while self._begun < earliest:
                left = max(self._pace.due, earliest) - clock.monotonic()
                if left > 0:
                    await asyncio.sleep(left)
                elif len(self._waited) > 1:
                    await self._changes()
                else:
                    return await self._alone(machine)
            return await self._seen(machine)
        finally:
            self._waited[machine] -= 1
            if not self._waited[machine]:
                del self._waited[machine]
            self._waited_last = clock.monotonic()

    async def since(self, moment: float) -> None:
        """All that changed up to a moment of the monotonic clock is handed on."""
        if self._begun < moment:
            await self._changes()

    async def _seen(self, machine: UUID) -> Server | None:
        known = self._known.get(machine) if self._is_whole else None
        # one that is not known may be new; of one that went the cloud says so itself
        return known or await self._roster.of(machine)

    async def _alone(self, machine: UUID) -> Server | None:
        before = _state(self._known.get(machine))
        server = await self._roster.of(machine)
        if server is None:
            self._known.pop(machine, None)
        else:
            self._known[machine] = server
        self._pace.looked(clock.monotonic(), is_new=_state(server) != before)
        return server

    async def _list(self) -> None:
        began = clock.monotonic()
        waited = list(self._waited)
        if not waited and began > self._waited_last + QUIET:
            self._known, self._is_whole = {}, False
        is_stale = began > self._begun + STALE
        is_all = is_stale or (len(waited) > 1 and not self._is_whole)
        before = {each: _state(self._known.get(each)) for each in waited}
        found, gone, since = await self._roster.changed("" if is_all else self._since)
        if is_stale or not is_all:  # a list of all does not name what went
            self._since = since
        self._learn(found, gone, is_all=is_all)
        self._begun = began
        is_new = any(_state(self._known.get(of)) != was for of, was in before.items())
        self._pace.looked(clock.monotonic(), is_new=is_new)
        await self._hear([each for each in found if each.machine not in self._waited], gone)

    def _learn(self, found: Collection[Server], gone: Collection[UUID], *, is_all: bool) -> None:
        now = {each.machine: each for each in found}
        if not is_all and not self._is_whole:
            return
        kept = {} if is_all else self._known
        self._known = {of: each for of, each in kept.items() if each.id not in gone} | now
        few = len(self._known) <= MOST_LISTED
        self._is_whole = few and sum(map(_parts, self._known.values())) <= MOST_PARTS
        if not self._is_whole:
            self._known = {}  # each is asked for


def _state(server: Server | None) -> tuple[str, str] | None:
    return None if server is None else (server.status, server.task)


def _parts(server: Server) -> int:
    return server.shape.parts
