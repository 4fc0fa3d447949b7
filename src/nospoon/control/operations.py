"""Operations: long work with a state, events that can be followed, and a way to cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID, uuid4

import structlog

from nospoon.engine.progress import Phase, Progress
from nospoon.errors import Conflict, NospoonError, NotFound
from nospoon.runtime.clock import Clock
from nospoon.runtime.tasks import Tasks
from nospoon.store import operations as stored
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow, OperationState

log = structlog.get_logger()

Event = Mapping[str, Any]
COALESCED = 0.05
"""Seconds in which events are gathered: people read no faster, and each sending costs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation's work ended. `result` is JSON for its caller."""

    state: OperationState
    message: str
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Running:
    """An operation at work: what it has told so far, and who listens."""

    row: OperationRow
    events: list[Event] = field(default_factory=list)
    task: asyncio.Task[Any] | None = None
    ended: Ended | None = None
    wakers: set[asyncio.Event] = field(default_factory=set)

    def emit(self, progress: Progress) -> None:
        """Tell a fact to everybody who follows."""
        self.events.append({"seq": len(self.events) + 1, **asdict(progress)})
        for waker in self.wakers:
            waker.set()

    def note(self, message: str) -> None:
        self.emit(Progress(Phase.NOTE, message))


Work = Callable[[Running], Awaitable[Ended]]


class Operations:
    """Starts, follows, cancels and remembers operations; one at a time per cluster."""

    def __init__(self, database: Database, tasks: Tasks, clock: Clock) -> None:
        self._database, self._tasks, self._clock = database, tasks, clock
        self._running: dict[UUID, Running] = {}
        self._busy: dict[UUID, OperationRow] = {}

    def require_free(self, cluster_id: UUID) -> None:
        """Raises `Conflict` when an operation on this cluster is under way."""
        row = self._busy.get(cluster_id)
        if row is not None:
            seconds = self._clock() - row.created
            raise Conflict(
                f"cluster {row.cluster}: `{row.kind}` by user {row.uid} has been running for "
                f"{seconds:.0f} s (operation {row.id})",
                hint=f"Follow it with `nospoon operation watch {row.id}`, or cancel it.",
            )

    def current(self, cluster_id: UUID) -> str:
        """'up 3f…' while an operation on this cluster is under way, else ""."""
        row = self._busy.get(cluster_id)
        return f"{row.kind} {row.id}" if row is not None else ""

    async def start(
        self, kind: str, *, cluster_id: UUID, cluster: str, uid: int, work: Work
    ) -> OperationRow:
        """Begin an operation in the background. Raises `Conflict` when the cluster is busy."""
        self.require_free(cluster_id)
        row = OperationRow(
            id=uuid4(),
            kind=kind,
            cluster_id=cluster_id,
            cluster=cluster,
            uid=uid,
            state=OperationState.RUNNING,
            created=self._clock(),
        )
        self._busy[cluster_id] = row
        try:
            await self._database.call(stored.begin, row)
        except BaseException:
            del self._busy[cluster_id]
            raise
        running = Running(row)
        self._running[row.id] = running
        running.task = self._tasks.start(self._carry_out(running, work), name=f"{kind} {cluster}")
        return row

    async def _carry_out(self, running: Running, work: Work) -> None:
        try:
            ended = await work(running)
        except NospoonError as error:
            ended = Ended(OperationState.FAILED, str(error))
        except asyncio.CancelledError:
            ended = Ended(OperationState.CANCELLED, "cancelled; `up` or `down` goes on from here")
        except Exception as error:
            log.exception("operation broke", operation=str(running.row.id))
            ended = Ended(OperationState.FAILED, f"internal error: {error!r}; see the daemon's log")
        await self._finish(running, ended)

    async def _finish(self, running: Running, ended: Ended) -> None:
        row = running.row
        await self._database.call(_save, row.id, running.events, ended, self._clock())
        running.ended = ended
        log.info("operation ended", operation=str(row.id), kind=row.kind, state=ended.state)
        for waker in running.wakers:
            waker.set()
        del self._running[row.id], self._busy[row.cluster_id]

    async def follow(self, id: UUID, *, after: int = 0) -> AsyncIterator[list[Event]]:  # noqa: A002
        """Events after `after`, some at a time; the last is `{"state", "message", "result"}`."""
        running = self._running.get(id)
        if running is None:
            yield await self._replay(id, after)
            return
        waker = asyncio.Event()
        running.wakers.add(waker)
        try:
            while True:
                waker.clear()
                if fresh := running.events[after:]:
                    yield fresh
                    after += len(fresh)
                if running.ended is not None:
                    break
                await waker.wait()
                await asyncio.sleep(COALESCED)
        finally:
            running.wakers.discard(waker)
        yield [*running.events[after:], _final(running.ended)]

    async def _replay(self, id: UUID, after: int) -> list[Event]:  # noqa: A002
        row = await self.get(id)
        kept = await self._database.call(stored.events_since, id, after)
        return [*(data for _, _, data in kept), _final(Ended(row.state, row.message, row.result))]

    async def get(self, id: UUID) -> OperationRow:  # noqa: A002
        row = await self._database.call(stored.get, id)
        if row is None:
            raise NotFound(f"no operation {id}")
        return row

    async def list(self, uid: int | None) -> list[OperationRow]:
        return await self._database.call(stored.all_operations, uid=uid)

    async def cancel(self, id: UUID) -> None:  # noqa: A002
        """Stop an operation; driver calls under way are cancelled too.

        Raises `Conflict` when it has ended.
        """
        running = self._running.get(id)
        if running is None or running.task is None:
            row = await self.get(id)
            raise Conflict(f"{row.kind} {row.cluster} has ended already: {row.state}")
        running.task.cancel()
        await asyncio.wait([running.task])


def _save(connection: Any, id: UUID, events: list[Event], ended: Ended, now: float) -> None:  # noqa: A002
    for event in events:
        stored.add_event(connection, id, seq=event["seq"], at=now, data=event)
    stored.finish(
        connection, id, state=ended.state, message=ended.message, result=ended.result, now=now
    )


def _final(ended: Ended) -> Event:
    return {"state": ended.state, "message": ended.message, "result": dict(ended.result)}
