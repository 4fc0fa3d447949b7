"""Consoles of machines of recipes: a panic or a failed installation is seen as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

import structlog

from nospoon.control.labs.board import Board
from nospoon.errors import NospoonError
from nospoon.lab.consoles import Detector, Finding, Sign
from nospoon.lab.provision import cluster_name
from nospoon.lab.work import RecipeSet, SetState, Stage
from nospoon.runtime.clock import Clock
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.service import ConsoleService

log = structlog.get_logger()
LOOK = 2.0
"""Seconds between two looks at a console."""
AT_ONCE = 16
MOST_A_LOOK = 1 << 20
"""Bytes of one console that one look reads: a guest that never stops has its turn again."""

MachineOf = Callable[[int, str], UUID | None]
"""(uid, CLUSTER/NODE) -> its machine; None while there is none."""


@dataclass(slots=True)
class _Seen:
    detector: Detector
    offset: int = 0


@dataclass(slots=True)
class Watch:
    """`consoles`: of nodes; `machine_of`: the machine of a node; `workers`: threads that look."""

    board: Board
    consoles: ConsoleService
    machine_of: MachineOf
    workers: Workers
    clock: Clock
    _seen: dict[tuple[str, int], _Seen] = field(default_factory=dict)
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def keep(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self.look()
            except Exception:  # whatever it is, other consoles are looked at
                log.exception("consoles of labs are not looked at now")

    async def look(self) -> None:
        """Once at the consoles of all recipes that run."""
        running = dict(self._running())
        for gone in self._seen.keys() - running.keys():
            del self._seen[gone]
        looks = (self._look(*key, machine) for key, machine in running.items())
        for result in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(result, NospoonError | OSError):
                log.debug("a console cannot be read now", why=str(result))
            elif isinstance(result, Exception):
                log.error("a console is not looked at now", exc_info=result)
            elif isinstance(result, BaseException):
                raise result

    def _running(self) -> Iterator[tuple[tuple[str, int], UUID]]:
        for found in self.board.scheduler.sets.values():
            if found.state is not SetState.RUNNING or found.lab not in self.board.known:
                continue
            for number, run in enumerate(found.runs):
                machine = self._machine(found, number) if run.node and not run.over else None
                if machine is not None:
                    yield (found.id, number), machine

    def _machine(self, found: RecipeSet, number: int) -> UUID | None:
        known = self.board.known[found.lab]
        cluster = cluster_name(known.lab.name, found.id)
        return self.machine_of(known.uid, f"{cluster}/{found.runs[number].node}")

    async def _look(self, set_id: str, number: int, machine: UUID) -> None:
        async with self._places:
            found = self.board.scheduler.sets.get(set_id)
            if found is None:
                return
            known = self.board.known_of(found)
            seen = self._seen.get((set_id, number))
            if seen is None:
                seen = self._seen[set_id, number] = _Seen(Detector(known.lab.panic_patterns))
            read, offset = 0, seen.offset
            async for data in self.consoles.read(
                machine, follow=False, offset=offset, user=known.uid
            ):
                # in a thread: a guest may write lines as fast as they are looked at
                findings = await self.workers.run(known.uid, seen.detector.feed, data)
                seen.offset += len(data)
                read += len(data)
                for finding in findings:
                    await self._report(set_id, number, finding)
                if read >= MOST_A_LOOK:
                    return
            if not read:
                for finding in await self.workers.run(known.uid, seen.detector.idle):
                    await self._report(set_id, number, finding)

    async def _report(self, set_id: str, number: int, finding: Finding) -> None:
        scheduler, now = self.board.scheduler, self.clock()
        found = scheduler.sets.get(set_id)
        if found is None:
            return
        run = found.runs[number]
        log.info("console shows it", set=set_id, recipe=number, what=finding.sign)
        if finding.sign is Sign.PANIC:
            line = finding.line
            await self.board.do(lambda: scheduler.panicked(set_id, number, line, now))
        elif run.stage in (Stage.BOOTING, Stage.INSTALLING) and not run.asked.panic_ignored:
            why = f"the console shows: {finding.line}"
            await self.board.do(lambda: scheduler.install_failed(set_id, number, why, now))
