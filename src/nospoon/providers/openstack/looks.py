"""Looks at servers that are waited for: one for all of them, however many nodes wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from uuid import UUID

from nospoon.providers.openstack.api import MOST_LISTED, MOST_PARTS
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.roster import Roster, Server
from nospoon.runtime import clock
from nospoon.runtime.shared import Shared


class Looks:
    """All who wait for servers look at one moment, once a pause: who waits alone asks for that
    server, several for what changed of all (`changes-since`).
    """

    def __init__(self, around: Around, roster: Roster) -> None:
        self._around, self._roster = around, roster
        self._shared = Shared(self._look)
        self._waiting = 0
        self._known: dict[UUID, Server] = {}
        self._since = ""

    async def soon(self, machine: UUID) -> Server | None:
        """The server of a machine half a pause from now or later; None where there is none."""
        self._waiting += 1
        try:
            await asyncio.sleep(self._until_next())
            seen = (await self._shared()).get(machine) if self._waiting > 1 else None
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._known, self._since = {}, ""
        # one that is not listed may be new; of one that went the cloud says so itself
        return seen or await self._roster.of(machine)

    def _until_next(self) -> float:
        pause = self._around.pause
        left = pause - clock.monotonic() % pause
        return left if left > pause / 2 else left + pause

    async def _look(self) -> Mapping[UUID, Server]:
        found, gone, self._since = await self._roster.changed(self._since)
        now = {each.machine: each for each in found}
        known = {of: each for of, each in self._known.items() if each.id not in gone} | now
        few = len(known) <= MOST_LISTED and sum(map(_parts, known.values())) <= MOST_PARTS
        self._known = known if few else now  # of the others each is asked for
        return self._known


def _parts(server: Server) -> int:
    return server.shape.parts
