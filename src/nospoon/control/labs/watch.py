"""Consoles of machines of recipes: a panic or a failed installation is seen as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import structlog

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.recording import Recording
from nospoon.errors import NospoonError
from nospoon.lab.consoles import Detector, Finding, Sign
from nospoon.lab.provision import cluster_name
from nospoon.lab.work import RecipeSet, SetState, Stage
from nospoon.runtime.clock import Clock
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.records import Stamp
from nospoon.services.consoles.service import ConsoleService

log = structlog.get_logger()
LOOK = 2.0
"""Seconds between two looks at a console."""
AT_ONCE = 8
"""Consoles of one owner of labs that are read at a time."""
MOST_A_LOOK = 1 << 20
"""Bytes of one console that one look reads: a guest that never stops has its turn again."""

MachineOf = Callable[[int, str], UUID | None]
"""(owner, CLUSTER/NODE) -> its machine; None while there is none."""


class Registered(Protocol):
    """Consoles of registered machines."""

    def resume(self, found: RecipeSet, number: int, known: KnownLab) -> Recording | None: ...


_Consoles = dict[tuple[str, int], UUID]
"""(set, recipe) -> its machine."""


@dataclass(slots=True)
class _Seen:
    """`stamp`: of the console when it was last read to its end."""

    detector: Detector
    offset: int = 0
    stamp: Stamp | None = None


@dataclass(slots=True)
class Watch:
    """`consoles`: all logs; `machine_of`: the machine of a node; `registered`: records consoles of
    registered machines, also those that another daemon began; `workers`: threads that look.
    """

    board: Board
    consoles: ConsoleService
    machine_of: MachineOf
    registered: Registered
    workers: Workers
    clock: Clock
    _seen: dict[tuple[str, int], _Seen] = field(default_factory=dict)

    async def keep(self) -> None:
        """For ever. The consoles of one owner of labs are looked at together, and hold up those of
        no other: a guest may write as fast as it is read.
        """
        pending: dict[int, asyncio.Task[None]] = {}
        async with Tasks("consoles of labs") as tasks:
            while True:
                await asyncio.sleep(LOOK)
                try:
                    running = await self._running()
                except Exception:  # whatever it is, consoles are looked at again
                    log.exception("consoles of labs are not looked at now")
                    continue
                for owner, consoles in running.items():
                    if owner not in pending or pending[owner].done():
                        pending[owner] = tasks.start(self._look_at(consoles), name=f"user {owner}")
                pending = {owner: task for owner, task in pending.items() if not task.done()}

    async def look(self) -> None:
        """Once at the consoles of all recipes that run."""
        for consoles in (await self._running()).values():
            await self._look_at(consoles)

    async def _look_at(self, consoles: _Consoles) -> None:
        places = asyncio.Semaphore(AT_ONCE)
        looks = (self._look(*key, machine, places) for key, machine in consoles.items())
        for result in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(result, NospoonError | OSError):
                log.debug("a console cannot be read now", why=str(result))
            elif isinstance(result, Exception):
                log.error("a console is not looked at now", exc_info=result)
            elif isinstance(result, BaseException):
                raise result

    async def _running(self) -> dict[int, _Consoles]:
        """Of each owner of labs."""
        turn, found = self.board.slices.begin("consoles"), dict[int, _Consoles]()
        out = [each.id for key in list(self.board.known) for each in self.board.out(key)]
        for set_id in out:  # of those that wait there may be thousands
            await turn.rest()
            now = self.board.scheduler.sets.get(set_id)
            if now is None or now.state is not SetState.RUNNING or now.lab not in self.board.known:
                continue
            for number, run in enumerate(now.runs):
                machine = None if run.over else self._machine(now, number)
                if machine is not None:
                    consoles = found.setdefault(self.board.known[now.lab].owner, {})
                    consoles[now.id, number] = machine
        running = {key for consoles in found.values() for key in consoles}
        for gone in self._seen.keys() - running:
            del self._seen[gone]
        return found

    def _machine(self, found: RecipeSet, number: int) -> UUID | None:
        known, run = self.board.known[found.lab], found.runs[number]
        if run.machine:
            recording = self.registered.resume(found, number, known)
            return recording.to.uuid if recording is not None else None
        cluster = cluster_name(known.lab.name, found.id)
        return self.machine_of(known.owner, f"{cluster}/{run.node}") if run.node else None

    async def _look(
        self, set_id: str, number: int, machine: UUID, places: asyncio.Semaphore
    ) -> None:
        async with places:
            found = self.board.scheduler.sets.get(set_id)
            if found is None:
                return
            known = self.board.labs.known_of(found)
            seen = self._seen.get((set_id, number))
            if seen is None:
                run = found.runs[number]
                patterns, at = known.lab.panic_patterns, run.panic_end
                seen = _Seen(Detector(patterns, at=at, panics=run.panics), at)
                self._seen[set_id, number] = seen
            stamp = await self.consoles.stamp(machine, user=known.owner)
            if stamp == seen.stamp and not seen.detector.waits:
                return  # most machines write nothing for hours
            read, offset = 0, seen.offset
            async for at, data in self.consoles.pieces(machine, offset=offset, user=known.owner):
                if at != seen.offset:
                    seen.detector.skip(at)
                # in a thread: a guest may write lines as fast as they are looked at
                findings = await self.workers.run(known.owner, seen.detector.feed, data)
                seen.offset = at + len(data)
                read += len(data)
                for finding in findings:
                    await self._report(set_id, number, finding)
                if read >= MOST_A_LOOK:
                    return
            seen.stamp = stamp
            if not read and seen.detector.waits:
                for finding in await self.workers.run(known.owner, seen.detector.idle):
                    await self._report(set_id, number, finding)

    async def _report(self, set_id: str, number: int, finding: Finding) -> None:
        scheduler, now = self.board.scheduler, self.clock()
        found = scheduler.sets.get(set_id)
        if found is None:
            return
        run = found.runs[number]
        log.info("console shows it", set=set_id, recipe=number, what=finding.sign)
        if finding.sign is Sign.PANIC:
            line, count, end = finding.line, finding.number, finding.end
            await self.board.do(
                lambda: scheduler.panicked(set_id, number, line, now, number=count, end=end)
            )
        elif run.stage in (Stage.BOOTING, Stage.INSTALLING) and not run.asked.panic_ignored:
            why = f"the console shows: {finding.line}"
            await self.board.do(lambda: scheduler.install_failed(set_id, number, why, now))
