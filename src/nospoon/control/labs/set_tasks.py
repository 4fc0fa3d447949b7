"""The tasks that carry out what the scheduler of labs decided: machines of sets are made, and
removed until nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import structlog

from nospoon.control.labs.known import KnownLabs
from nospoon.control.labs.racks import NotMade, Racks
from nospoon.errors import NospoonError
from nospoon.lab.effects import Effect
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import Again, Cause, RecipeSet
from nospoon.runtime.clock import Clock
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
AGAIN = 10.0
"""Seconds until what could not be removed is removed again."""
MOST_WHY = 2000


@dataclass(slots=True)
class SetTasks:
    """`do`: lets the scheduler decide, stores it and carries it out. `trouble`: id of a set that is
    being removed -> why something of it is still there.
    """

    scheduler: Scheduler
    labs: KnownLabs
    racks: Racks
    tasks: Tasks
    clock: Clock
    do: Callable[[Callable[[], Sequence[Effect]]], Awaitable[None]]
    trouble: dict[str, str] = field(default_factory=dict)
    _building: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def build(self, found: RecipeSet) -> None:
        """Begin to make and start its machines."""
        task = self.tasks.start(self._build(found), name=f"make {found.id}")
        self._building[found.id] = task

    def remove(self, found: RecipeSet) -> None:
        """Begin to remove what it has; what is being made is not made any more."""
        self.tasks.start(self._remove(found), name=f"remove {found.id}")

    def renew_logins(self) -> None:
        """Begin to reach the machines of all sets as the files of their labs say now."""
        self.tasks.start(self._renew_logins(), name="renew logins of recipe sets")

    async def _renew_logins(self) -> None:
        for key, known in list(self.labs.known.items()):
            try:
                await self.racks.renew_logins(self.scheduler.holding(key), known)
            except NospoonError as error:
                log.warning("sets of a lab keep their logins", lab=known.shown, why=str(error))
            except Exception:  # those of other labs are behind it
                log.exception("sets of a lab keep their logins", lab=known.shown)

    async def _build(self, found: RecipeSet) -> None:
        cause, machines = None, tuple[str, ...]()
        try:
            await self.racks.build(found, self.labs.known_of(found))
        except NotMade as error:
            why, again, machines = error.why or "it failed", error.again, error.machines
        except Exception as error:  # a set that is neither made nor not would never end
            log.exception("machines of a recipe set are not made", set=found.id)
            why, again = f"internal error: {type(error).__name__}: {error}", Again.LATER
            cause = Cause.INTERNAL_ERROR
        else:
            why, again = "", Again.NEVER
        finally:
            self._building.pop(found.id, None)
        if not why:
            await self._surely(lambda: self.scheduler.started(found.id, self.clock()))
            return
        said, failed = storable(why), self.scheduler.not_started
        await self._surely(
            lambda: failed(
                found.id, said, self.clock(), again=again, cause=cause, machines=machines
            )
        )

    async def _remove(self, found: RecipeSet) -> None:
        building = self._building.pop(found.id, None)
        if building is not None and building is not asyncio.current_task():
            building.cancel()
            await asyncio.wait([building])
        await self._stop(found)
        while why := await self._left(found):
            log.warning("a recipe set is not removed yet", set=found.id, why=why)
            self.trouble[found.id] = storable(why)
            await asyncio.sleep(AGAIN)
        self.trouble.pop(found.id, None)
        await self._surely(lambda: self.scheduler.removed(found.id, self.clock()))

    async def _left(self, found: RecipeSet) -> str:
        """Why something is left of a set, "" where nothing is."""
        try:
            return await self.racks.remove(found, self.labs.known_of(found))
        except Exception as error:  # whatever it is, it is removed again
            log.exception("a recipe set is not removed yet", set=found.id)
            return f"internal error: {type(error).__name__}: {error}"

    async def _stop(self, found: RecipeSet) -> None:
        """A registered machine that is not off does not keep its set from ending, and no other set
        gets it: it is broken.
        """
        try:
            on = await self.racks.stop(found, self.labs.known_of(found))
        except Exception as error:  # whatever it is, the set ends
            log.exception("machines of a recipe set are not off", set=found.id)
            why = f"internal error: {type(error).__name__}: {error}"
            on = {run.machine: why for run in found.runs if run.machine}

        def broken() -> Sequence[Effect]:
            for machine, why in on.items():
                self.scheduler.set_broken(found.lab, machine, storable(f"it is not off: {why}"))
            return []

        if on:
            await self._surely(broken)

    async def _surely(self, what: Callable[[], Sequence[Effect]]) -> None:
        """Whatever the store says: the loop tries again what was not stored."""
        try:
            await self.do(what)
        except NospoonError as error:
            log.error("the state of a recipe set is not stored yet", why=str(error))
        except Exception:
            log.exception("the state of a recipe set is not stored yet")


def storable(text: str) -> str:
    """What others wrote, such as a BMC, as every store takes it: printable characters."""
    return "".join(each if each.isprintable() else " " for each in text[:MOST_WHY])
