"""Work that takes longer than a request: kept as Tasks until newer ones take their place."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

from nospoon.errors import NospoonError, Unfetchable
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.redfish.messages import errors

log = RateLimitedLog()
LOGGED = 500
"""Characters of a task's name, and of why it failed, in the log."""
LONGEST, LONGEST_WHY = 500, 1000
"""Characters of a task's name, by which asyncio knows it, too; and each of why it failed, what to
do, and the URL.
"""
KEPT = 16
"""Tasks of one system, with those that run; ended ones give way, those of no other system do."""
RUNNING = 64
"""Tasks of one system that run at a time; further ones are refused."""


UNEXPECTED = NospoonError("the task ended with an unexpected error", hint="The daemon's log has it")
Changed = Callable[["Job"], None]
"""Told of a Task that began or ended."""


@dataclass(slots=True)
class Job:
    """One Task. `error`: why it failed, None while it runs and when it worked.

    `shows_task`: its monitor goes on showing it after its end, also when it failed; clients of
    updates (sushy, Ironic) read from there how it ended.
    """

    system: UUID
    name: str
    id: str = field(default_factory=lambda: uuid4().hex)
    started: float = field(default_factory=clock.unix)
    ended: float | None = None
    error: NospoonError | None = None
    task: asyncio.Task[None] | None = None
    shows_task: bool = False

    @property
    def state(self) -> str:
        """Redfish's TaskState."""
        if self.ended is None:
            return "Running"
        return "Exception" if self.error is not None else "Completed"


class Jobs:
    """All Tasks of the Redfish services."""

    def __init__(self, tasks: Tasks, changed: Changed) -> None:
        self._tasks, self._changed = tasks, changed
        self._jobs: dict[str, Job] = {}
        self._of: dict[UUID, dict[str, Job]] = {}

    def start(
        self,
        system: UUID,
        name: str,
        work: Coroutine[object, object, None],
        *,
        shows_task: bool = False,
    ) -> Job:
        """Begin; the system's oldest that has ended gives way. Raises `RedfishError`."""
        job, own = Job(system, name[:LONGEST], shows_task=shows_task), self._of.get(system, {})
        over = [each.id for each in own.values() if each.ended is not None]
        if len(own) - len(over) >= RUNNING:
            work.close()
            raise errors.too_many_requests()
        for old in over[: max(0, len(own) - KEPT + 1)]:
            del self._jobs[old], own[old]
        self._of[system] = own
        self._jobs[job.id] = own[job.id] = job
        self._changed(job)
        job.task = self._tasks.start(self._run(job, work), name=f"{job.name} {system}")
        return job

    async def _run(self, job: Job, work: Coroutine[object, object, None]) -> None:
        error: NospoonError | None = UNEXPECTED  # what no one expected is logged by `Tasks`
        try:
            await work
            error = None
        except NospoonError as known:
            task, why = job.name[:LOGGED], str(known)[:LOGGED]
            log.warning("a Redfish task failed", task=task, why=why)
            error = _kept(known)
        finally:
            job.error = error
            job.ended = clock.unix()
            self._changed(job)

    def forget(self, system: UUID) -> None:
        """It is gone: no one may see its tasks any more."""
        for id_ in self._of.pop(system, ()):
            del self._jobs[id_]

    def all(self) -> list[Job]:
        """Those of all systems, oldest first: thousands, where there are many systems."""
        return list(self._jobs.values())

    def get(self, id_: str, sees: Callable[[UUID], bool]) -> Job | None:
        found = self._jobs.get(id_)
        return found if found is not None and sees(found.system) else None


def _kept(error: NospoonError) -> NospoonError:
    """Without its traceback and causes, which keep what was at work: a buffer of a download; and
    without the rest of a long URL, of which a client may give thousands.
    """
    error.__cause__ = error.__context__ = None
    error.message, error.hint = error.message[:LONGEST_WHY], error.hint[:LONGEST_WHY]
    error.args = (error.message,)
    if isinstance(error, Unfetchable):
        error.url = error.url[:LONGEST_WHY]
    return error.with_traceback(None)


def when(unix: float) -> str:
    """A time as Redfish writes it (RFC 3339, UTC)."""
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
