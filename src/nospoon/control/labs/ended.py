"""Recipe sets that ended long ago are forgotten, and their console logs with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec
import structlog

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.racks import Racks
from nospoon.control.labs.records import Records
from nospoon.errors import NospoonError
from nospoon.runtime.clock import Clock
from nospoon.store import labs as stored
from nospoon.store.database import Database

log = structlog.get_logger()
TIDY = 3600.0
"""Seconds between two looks for sets that ended long ago."""
FORGET_AT_ONCE = 20
KEPT, MOST_ENDED = 30 * 86400.0, 10_000
"""Seconds for which sets that ended are shown, and how many of one user."""
TIDY_AFTER = 1000
"""Sets that ended, after which it is looked at once for those of users who have too many."""


class EndedSets:
    """`known`: labs, by their keys. `clock`: Unix seconds."""

    def __init__(
        self,
        *,
        database: Database,
        records: Records,
        racks: Racks,
        known: Mapping[str, KnownLab],
        clock: Clock,
    ) -> None:
        self._database, self._records, self._racks = database, records, racks
        self._known, self._clock = known, clock
        self._ended = 0
        self._many_ended = asyncio.Event()

    def add(self) -> None:
        """One more has ended, and that is stored."""
        self._ended += 1
        if self._ended == TIDY_AFTER:
            self._many_ended.set()

    async def tidy(self) -> None:
        """As long as the daemon runs."""
        while True:
            try:
                forgotten = FORGET_AT_ONCE
                while forgotten:
                    forgotten = await self.forget_old(self._clock() - KEPT)
            except NospoonError as error:
                log.warning("old recipe sets stay", why=str(error))
            except Exception:  # whatever it is, they are looked for again
                log.exception("old recipe sets stay")
            self._ended = 0
            self._many_ended.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TIDY):
                    await self._many_ended.wait()

    async def forget_old(self, before: float) -> int:
        """Some of those that ended before that, or have ended and are of a user who has too many.
        Returns how many.
        """
        rows = await self._database.read(stored.ended_before, before, most=FORGET_AT_ONCE)
        if not rows:
            rows = await self._database.read(stored.ended_beyond, MOST_ENDED, most=FORGET_AT_ONCE)
        for row in rows:
            if row.lab not in self._known:
                continue
            try:
                await self._racks.purge(self._records.opened(row), self._known[row.lab])
            except (msgspec.DecodeError, NospoonError) as error:
                # sets of other users are behind it
                log.warning("console logs of a recipe set stay", set=row.id, why=str(error))
        await self._database.call(stored.forget, [row.id for row in rows])
        return len(rows)
