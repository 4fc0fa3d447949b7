"""Consoles of the registered machines that leases have: each is recorded as those of nodes are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID, uuid5

import structlog

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.recording import NOT_YET, ConsoleLog, Recording
from nospoon.control.operations.memory import record_group
from nospoon.lab.provision import cluster_name
from nospoon.lab.work import RecipeSet
from nospoon.model.lab import Registered
from nospoon.runtime.reach import Reach
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.services.consoles.records import Records

log = structlog.get_logger()
NAMES = UUID("6b1f3d2c-5f0a-4f0e-9a53-0f7f4be1c7a5")
"""Of records: a namespace of version 5 (RFC 9562 §5.5)."""
PATIENCE = 15.0
"""Seconds for which a machine stays off until its console is recorded, or cannot be."""
MOST_OF_USER = 256
"""Consoles of one lab owner that are recorded at a time: each is a process."""


def record_of(found: RecipeSet, number: int) -> UUID:
    """The record of a recipe's registered machine: each start of its set has another."""
    machine, start = found.runs[number].machine, f"{found.submitted} {found.attempts}"
    return uuid5(NAMES, f"{found.lab} {found.id} {start} {number} {machine}")


def why_none(machine: Registered) -> str:
    """Why a machine's console can never be recorded, "" for one whose can."""
    if machine.protocol != "ipmi":
        return f"Serial over LAN is IPMI's, and its BMC is registered with {machine.protocol}"
    return ""


@dataclass(frozen=True, slots=True)
class _Recorded:
    recording: Recording
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class RegisteredConsoles:
    """`ended`: called with each record that does not grow any more. `lacking`: bytes that the disk
    has less than its reserve.
    """

    records: Records
    reach: Reach
    tasks: Tasks
    workers: Workers
    ended: Callable[[UUID], None]
    lacking: Callable[[], int]
    _recorded: dict[tuple[str, int], _Recorded] = field(default_factory=dict)
    _growing: set[UUID] = field(default_factory=set)
    _of_user: Counter[int] = field(default_factory=Counter)

    async def begin(self, found: RecipeSet, number: int, known: KnownLab) -> None:
        """While a machine is off: returns when its console is recorded, or cannot be now."""
        recording = self.resume(found, number, known)
        if recording is not None:
            try:
                async with asyncio.timeout(PATIENCE):
                    await recording.settled.wait()
            except TimeoutError:
                log.info("a console is not recorded yet", set=found.id, recipe=number)

    def resume(self, found: RecipeSet, number: int, known: KnownLab) -> Recording | None:
        """Record a console, or go on with that; None where it cannot be."""
        machine = known.machines.get(found.runs[number].machine)
        if machine is None or why_none(machine):
            return None
        recorded = self._recorded.get((found.id, number))
        if recorded is not None:
            recorded.recording.machine = machine  # its BMC may be elsewhere by now
            return recorded.recording
        if self._of_user[known.owner] >= MOST_OF_USER:
            return None
        to = ConsoleLog(
            record_of(found, number), known.owner, _group(found, known), f"recipe-{number}",
            self.records, self.workers, self.lacking,
        )  # fmt: skip
        recording = Recording(to, machine, self.reach)
        task = self.tasks.start(recording.run(), name=f"console of {found.id}.{number}")
        self._recorded[found.id, number] = _Recorded(recording, task)
        self._growing.add(to.uuid)
        self._of_user[to.owner] += 1
        return recording

    async def end(self, found: RecipeSet) -> None:
        """Its machines are given back."""
        keys = [(found.id, number) for number in range(len(found.runs))]
        over = [self._recorded.pop(key) for key in keys if key in self._recorded]
        for each in over:
            each.task.cancel()
        if over:
            await asyncio.wait([each.task for each in over])
        for each in over:
            self._growing.discard(each.recording.to.uuid)
            self._of_user[each.recording.to.owner] -= 1
            self.ended(each.recording.to.uuid)

    def is_growing(self, record: UUID) -> bool:
        """Whether it is recorded now; asked in threads, too."""
        return record in self._growing

    def state(self, found: RecipeSet, number: int, known: KnownLab) -> str:
        """`recorded`, or why the console of a machine that a recipe has is not."""
        recorded = self._recorded.get((found.id, number))
        if recorded is not None:
            why = recorded.recording.why
        elif (machine := known.machines.get(found.runs[number].machine)) is None:
            why = "the machine is not registered any more"
        elif self._of_user[known.owner] >= MOST_OF_USER:
            why = why_none(machine) or f"{MOST_OF_USER} of its lab's owner are, the most at a time"
        else:
            why = why_none(machine) or NOT_YET
        return f"not recorded: {why}" if why else "recorded"

    async def purge(self, found: RecipeSet, known: KnownLab) -> None:
        """The logs of a set that has ended."""
        await self.records.purge(_group(found, known))


def _group(found: RecipeSet, known: KnownLab) -> str:
    """As that of its dynamic machines."""
    return record_group(known.owner, cluster_name(known.lab.name, found.id))
