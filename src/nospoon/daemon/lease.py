"""The lease under which this daemon controls its hosts: taken at start, kept, given back.

Before anything is done to a host, `require` is asked. It trusts the last beat for a part of the
lease only, so that a daemon that was stopped, or whose machine slept, asks the store before it goes
on. What lies between that answer and the call cannot be guarded: libvirt knows no epochs.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import structlog
from sqlalchemy.exc import IntegrityError

from nospoon.errors import Conflict, NospoonError, Superseded
from nospoon.runtime import boots, clock
from nospoon.store import leases
from nospoon.store.database import Database
from nospoon.store.leases import LeaseRow

log = structlog.get_logger()
TRUSTED = 2 / 3
"""The part of the lease for which a beat is trusted; beats come thrice as often as a lease ends."""

GIVING_BACK = 10.0
"""Seconds in which that is stored: a server of the database may hang for good."""


class Lease:
    """`seconds`: how long a controller may be silent. `lost`: called with the reason, once."""

    def __init__(
        self, database: Database, *, seconds: float, pid_file: Path, lost: Callable[[str], None]
    ) -> None:
        self._database, self._seconds, self._lost = database, seconds, lost
        self._controller = f"nospoond of {socket.gethostname()}, pid {os.getpid()}"
        self._instance = _instance(pid_file)
        self._epoch = 0
        self._beaten = -seconds

    async def take(self) -> None:
        """Become the controller; wait for one that may have died. Raises `Conflict` for one that
        lives.
        """
        seen = await self._database.call(leases.look)
        if seen is not None and seen.controller and seen.instance != self._instance:
            seen = await self._silence_of(seen)
        began = clock.steady()
        self._epoch = await self._taken(seen)
        if not self._epoch:
            raise Conflict("another daemon took over these hosts at the same moment")
        self._database.fence(self._epoch)
        self._beaten = began

    async def _taken(self, seen: LeaseRow | None) -> int:
        try:
            return await self._database.call(
                leases.take,
                seen,
                controller=self._controller,
                instance=self._instance,
                now=clock.unix(),
            )
        except IntegrityError:  # someone was quicker
            return 0

    async def _silence_of(self, seen: LeaseRow) -> LeaseRow:
        """The row, when it has not changed for the time of a lease."""
        log.warning("waiting for a controller that may live", who=seen.controller)
        end = clock.steady() + self._seconds
        while clock.steady() < end:
            await asyncio.sleep(self._seconds / 20)
            now = await self._database.call(leases.look)
            if now is not None and (now.epoch, now.beat) != (seen.epoch, seen.beat):
                raise Conflict(
                    f"{now.controller} controls the hosts of this database",
                    hint="Stop it first, or give this daemon a NOSPOON_DATABASE of its own.",
                )
        return seen

    @property
    def fresh(self) -> bool:
        """Whether no one can have taken over since the last beat."""
        return clock.steady() - self._beaten < self._seconds * TRUSTED

    async def require(self) -> None:
        """Raises `Superseded`, or `ProviderError` when the store does not answer."""
        if not self.fresh:
            await self._beat()

    async def keep(self) -> None:
        """Beat, for ever."""
        while True:
            await asyncio.sleep(self._seconds / 3)
            try:
                await self._beat()
            except Superseded:
                return
            except NospoonError as error:
                log.warning("the lease is not renewed", why=str(error))

    async def _beat(self) -> None:
        began = clock.steady()
        try:
            await self._database.call(leases.beat, self._epoch)
        except Superseded as error:
            self._lost(str(error))
            raise
        self._beaten = began

    async def give_back(self) -> None:
        """At the end: whoever comes next need not wait."""
        try:
            async with asyncio.timeout(GIVING_BACK):
                await self._database.call(leases.give_back, self._epoch)
        except NospoonError as error:
            log.warning("the lease is not given back", why=str(error))
        except TimeoutError:
            log.warning("the lease is not given back", why="the database does not answer")


def _instance(pid_file: Path) -> str:
    """What one process at a time can be: the one that holds the lock of this pid file, since this
    machine started. Whoever comes with the same name knows that the one before has ended.
    """
    place = pid_file.resolve()
    parts = (boots.here(), str(place.parent.stat().st_dev), str(place))
    return hashlib.sha256("\0".join((socket.gethostname(), *parts)).encode()).hexdigest()
