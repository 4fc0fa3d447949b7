"""One console of a registered machine, recorded for as long as a lease has the machine.

Sessions follow one another: a BMC may be reset, or another client may take the console over. What
is missing then is marked in the log. The first session ends whatever session there is; later ones
do not, as a person may have taken the console.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from nospoon.control.labs import sol
from nospoon.control.labs.bmcs import require_reach, user_of
from nospoon.errors import NospoonError
from nospoon.model.lab import Registered
from nospoon.model.principal import OwnerId
from nospoon.runtime.clock import monotonic
from nospoon.runtime.reach import Reach
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.records import Records

log = structlog.get_logger()
SOONEST, LATEST = 1.0, 60.0
"""Seconds until the next session, doubled from one to the next."""
STEADY = 60.0
"""Seconds of a session after which the next one comes soon again."""
DEAF = 2
"""Sessions that soon end without an answer to SOL's keepalive, after which it is not sent."""
NOT_YET = "its first session has not begun"
RESTARTED = "the daemon was restarted"


def _nothing() -> int:
    return 0


@dataclass(slots=True, eq=False)
class ConsoleLog:
    """Where a console goes. `owner`: the lab's owner, whose group and node the record is of.
    `lacking`: bytes that the disk has less than its reserve: nothing is recorded while it has.
    """

    uuid: UUID
    owner: OwnerId
    group: str
    node: str
    records: Records
    workers: Workers
    lacking: Callable[[], int] = _nothing
    _lost: int = 0

    async def begin(self) -> bool:
        """Whether it goes on with what another daemon recorded."""
        return await self.workers.run(self.owner, self._begin)

    async def add(self, data: bytes) -> None:
        await self.workers.run(self.owner, self._add, data)

    async def mark(self, text: str) -> None:
        """A line of nospoon's own."""
        await self.add(_mark(text))

    def _begin(self) -> bool:
        self._keep()
        return self.records.size(self.uuid) > 0

    def _keep(self) -> None:
        self.records.keep(self.uuid, group=self.group, node=self.node)

    def _add(self, data: bytes) -> None:
        """In a thread. What cannot be written is lost, and the next that is says so."""
        if self.lacking():
            self._lost += len(data)
            return
        try:
            lost = b""
            if self._lost:
                self._keep()  # its owner may have purged it meanwhile
                lost = _mark(f"{self._lost} bytes are missing here: they could not be written")
            self.records.append(self.uuid, lost + data)
        except OSError as error:
            log.warning("a console is not recorded", node=self.node, why=str(error))
            self._lost += len(data)
        else:
            self._lost = 0


def _mark(text: str) -> bytes:
    return f"\r\n[nospoon: {text}]\r\n".encode()


@dataclass(slots=True, eq=False)
class Recording:
    """`machine`: as the lab's file has it now. `why`: it is not recorded now, "" while it is.
    `settled`: it was clear once whether it is.
    """

    to: ConsoleLog
    machine: Registered
    reach: Reach
    why: str = NOT_YET
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    _is_marked: bool = False
    _deaf: int = 0

    async def run(self) -> None:
        """For ever."""
        if await self.to.begin():
            await self._stopped(RESTARTED)
        pause, is_first = SOONEST, True
        while True:
            began = monotonic()
            why = await self._session(is_first=is_first)
            lived = 0.0 if self.why else monotonic() - began
            if self._deaf < DEAF:
                self._deaf = (
                    0 if lived >= STEADY else self._deaf + (lived > 0 and sol.SILENT in why)
                )
            await self._stopped(why)
            await asyncio.sleep(pause)
            pause, is_first = SOONEST if lived >= STEADY else min(2 * pause, LATEST), False

    async def _session(self, *, is_first: bool) -> str:
        """Why it ended."""
        keepalive, user = "" if self._deaf >= DEAF else "usesolkeepalive", user_of(self.to.owner)
        try:
            require_reach(self.machine, self.reach)
            if is_first:
                await sol.deactivate(self.machine, user=user)
            return await sol.attend(
                self.machine, user=user, took=self.to.add, opened=self._began, keepalive=keepalive
            )
        except NospoonError as error:
            return str(error)
        except Exception as error:  # whatever it is, the next session is tried
            log.exception("a console is not recorded", node=self.to.node)
            return f"internal error: {type(error).__name__}"

    async def _began(self) -> None:
        if self._is_marked:
            await self.to.mark("the console is recorded again")
        self._is_marked = False
        self.why = ""
        self.settled.set()

    async def _stopped(self, why: str) -> None:
        if not self._is_marked:
            await self.to.mark(f"the console is not recorded from here on: {why}")
        self._is_marked = True
        self.why = why
        if why != RESTARTED:
            self.settled.set()
