"""Operations: long work with a state, events that can be followed, and a way to cancel it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import msgspec
import structlog
from sqlalchemy import Connection

from nospoon.control.operations.results import encoded
from nospoon.engine.progress import Phase, Progress
from nospoon.errors import Conflict, NospoonError, NotFound
from nospoon.model.principal import OwnerId
from nospoon.runtime import storage
from nospoon.runtime.clock import Clock
from nospoon.runtime.freeing import free
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import listen
from nospoon.store import operations as stored
from nospoon.store.database import Database
from nospoon.store.encoded import Encoded
from nospoon.store.operations import OperationRow, OperationState

log = structlog.get_logger()

Event = Mapping[str, Any]
AS_IT_IS = "cancelled; `up` or `down` goes on from here"
CANCELLED = {
    "snapshot": "cancelled; no snapshot was taken, and the nodes continue to run",
    "restore": "cancelled; restore it again to have all nodes of one moment",
    "delete snapshot": "cancelled; delete it again",
    "reap": "cancelled; what was not removed yet is kept",
    "inventory": "cancelled; the machine is off, and what was known of it stays",
    "verify": "cancelled; the nodes are left as they were found",
    "fetch": "cancelled; what has arrived whole is kept for a while",
}
"""Kind of operation -> what is said when it was cancelled, where that is not `AS_IT_IS`."""
ENDING = 15.0
"""Seconds that operations have to undo things when the daemon ends."""
AGAIN = 5.0
"""Seconds until an end that could not be stored is stored again."""
MOST_RUNNING = 32
"""Operations of one user that are under way."""
LONGEST_END = 64 << 10
"""Characters of an error that ends an operation."""
PAUSE = 0.02
"""Seconds between two steps in which what is old is forgotten: each takes the store for as long."""
KEPT = 1.0
"""Seconds after which events are stored, at the latest."""
AT_ONCE = 200
"""Events that are read, and sent, at a time."""
COALESCED = 0.05
"""Seconds in which events are gathered: people read no faster, and each sending costs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation's work ended. `result` is JSON for its caller; its lists are freed when it
    is stored.
    """

    state: OperationState
    message: str
    result: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _End:
    """How it ended, as it is stored: `result` apart, so that nothing else holds it."""

    ended: Ended
    result: Encoded


@dataclass(slots=True)
class Running:
    """An operation at work: what it has told so far, how many of these are stored, who listens.

    `worked`: its work is over, and its end is being stored; no one can cancel that. `calls`: to
    hosts, as its engine makes them.
    """

    row: OperationRow
    events: list[Event] = field(default_factory=list)
    stored: int = 0
    task: asyncio.Task[object] | None = None
    worked: bool = False
    ended: Ended | None = None
    wakers: set[asyncio.Event] = field(default_factory=set)
    calls: Tasks = field(default_factory=lambda: Tasks("engine"))

    def emit(self, progress: Progress) -> None:
        """Tell a fact to everybody who follows."""
        self.events.append({"seq": len(self.events) + 1, **msgspec.to_builtins(progress)})
        for waker in self.wakers:
            waker.set()

    def note(self, message: str) -> None:
        self.emit(Progress(Phase.NOTE, message))


Work = Callable[[Running], Awaitable[Ended]]


class Operations:
    """Starts, follows, cancels and remembers operations; one at a time per cluster."""

    def __init__(
        self, database: Database, tasks: Tasks, clock: Clock, *, after: Callable[[], None]
    ) -> None:
        """`after`: called whenever one has ended."""
        self._database, self._tasks, self._clock = database, tasks, clock
        self._after = after
        self.slices = Slices()
        """Of what is sent to followers: hundreds may follow tens of thousands of events."""
        self._running: dict[UUID, Running] = {}
        self._busy: dict[UUID, OperationRow] = {}
        self._forgetting = set[OwnerId]()

    def require_free(self, cluster_id: UUID) -> None:
        """Raises `Conflict` when an operation on this cluster is under way."""
        row = self._busy.get(cluster_id)
        if row is not None:
            seconds = self._clock() - row.created
            raise Conflict(
                f"cluster {row.cluster}: `{row.kind}` by user {row.owner} has been running for "
                f"{seconds:.0f} s (operation {row.id})",
                hint=f"Follow it with `nospoon operation watch {row.id}`, or cancel it.",
            )

    def current(self, cluster_id: UUID) -> str:
        """'up 3f…' while an operation on this cluster is under way, else ""."""
        row = self._busy.get(cluster_id)
        return f"{row.kind} {row.id}" if row is not None else ""

    async def start(
        self,
        kind: str,
        *,
        cluster_id: UUID,
        cluster: str,
        owner: OwnerId,
        work: Work,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> OperationRow:
        """Begin an operation in the background. Raises `Conflict` when the cluster is busy, or very
        many of the user's are.
        `first` is done before, when no other can begin any more; if it fails, nothing has begun.
        """
        busy = self._busy.get(cluster_id)
        if busy is not None and busy.owner != owner:
            raise Conflict(f"the id {cluster_id} was given to another cluster meanwhile")
        self.require_free(cluster_id)
        if sum(each.owner == owner for each in self._busy.values()) >= MOST_RUNNING:
            raise Conflict(
                f"{MOST_RUNNING} operations of user {owner} are under way, as many as may be",
                hint="Wait until one of them has ended, or cancel one: `nospoon operation list`.",
            )
        row = OperationRow(
            id=uuid4(),
            kind=kind,
            cluster_id=cluster_id,
            cluster=cluster,
            owner=owner,
            state=OperationState.RUNNING,
            created=self._clock(),
        )
        self._busy[cluster_id] = row
        try:
            if first is not None:
                await first()
            await self._database.call(stored.begin, row)
        except BaseException:
            del self._busy[cluster_id]
            raise
        running = Running(row)
        self._running[row.id] = running
        running.task = self._tasks.start(self._carry_out(running, work), name=f"{kind} {cluster}")
        running.task.add_done_callback(lambda _: self._release(running))
        await asyncio.sleep(0)  # its first step: what is cancelled before that does not even end
        return row

    async def _carry_out(self, running: Running, work: Work) -> None:
        keeper = self._tasks.start(self._keep(running), name=f"keep events of {running.row.id}")
        listen(running.note)
        try:
            ended = await work(running)
        except NospoonError as error:
            ended = Ended(OperationState.FAILED, str(error)[:LONGEST_END])
        except asyncio.CancelledError:
            ended = Ended(OperationState.CANCELLED, CANCELLED.get(running.row.kind, AS_IT_IS))
        except Exception as error:
            log.exception("operation broke", operation=str(running.row.id))
            why = storage.as_refusal(error) or f"internal error: {error!r}; see the daemon's log"
            ended = Ended(OperationState.FAILED, str(why))
        running.worked = True
        keeper.cancel()
        await asyncio.wait([keeper])
        end = _End(Ended(ended.state, ended.message), await encoded(ended.result))
        held = [ended.result]
        del ended
        await free(held)
        await self._finish(running, end)

    async def _keep(self, running: Running) -> None:
        """Store events while they come, so that a daemon's sudden end takes few of them away."""
        while True:
            await asyncio.sleep(KEPT)
            with contextlib.suppress(NospoonError):  # the next time, or the end, tells of it
                await self._store(running)

    async def _store(self, running: Running, end: _End | None = None) -> None:
        fresh = running.events[running.stored :]
        if fresh or end is not None:
            running.stored += len(fresh)  # now: what was begun is done, also when we are cancelled
            try:
                await self._database.call(_save, running.row.id, fresh, end, self._clock())
            except NospoonError:
                running.stored -= len(fresh)
                raise

    async def _finish(self, running: Running, end: _End) -> None:
        row = running.row
        try:
            await self._store(running, end)
        except NospoonError as error:
            log.error("the end of an operation is not stored yet", why=str(error))
            self._tasks.start(self._store_later(running, end), name=f"store {row.id}")
        running.ended = end.ended
        if row.owner not in self._forgetting:
            self._forgetting.add(row.owner)
            self._tasks.start(self._forget_old(row.owner), name=f"forget operations of {row.owner}")
        log.info("operation ended", operation=str(row.id), kind=row.kind, state=end.ended.state)

    async def _forget_old(self, owner: OwnerId) -> None:
        """What is too much of a user's, a little at a time: others' changes are stored between."""
        try:
            while await self._database.call(stored.forget_some, owner):  # noqa: ASYNC110  (a pace)
                await asyncio.sleep(PAUSE)
        except NospoonError as error:
            log.warning("old operations are kept for now", owner=owner, why=str(error))
        finally:
            self._forgetting.discard(owner)

    def _release(self, running: Running) -> None:
        """Whatever happened meanwhile, the cluster is free again and followers see an end."""
        if running.ended is None:
            running.ended = Ended(OperationState.INTERRUPTED, "the daemon ended")
        for waker in running.wakers:
            waker.set()
        del self._running[running.row.id], self._busy[running.row.cluster_id]
        running.task = None  # whose context has the running one
        self._after()

    async def _store_later(self, running: Running, end: _End) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            with contextlib.suppress(NospoonError):
                return await self._store(running, end)

    async def follow(self, id: UUID, *, after: int = 0) -> AsyncIterator[list[Event]]:  # noqa: A002
        """Events after `after`, some at a time; the last is `{"state", "message"}`."""
        running = self._running.get(id)
        if running is None:
            async for some in self._replay(id, after):
                yield some
            return
        waker = asyncio.Event()
        running.wakers.add(waker)
        work = self.slices.begin(running.row.owner)
        try:
            while True:
                waker.clear()
                while fresh := running.events[after : after + AT_ONCE]:
                    if not work.share():
                        await work.rest()
                    yield fresh
                    after += len(fresh)
                if running.ended is not None:
                    break
                await waker.wait()
                await asyncio.sleep(COALESCED)
        finally:
            running.wakers.discard(waker)
        yield [_final(running.ended)]

    async def _replay(self, id: UUID, after: int) -> AsyncIterator[list[Event]]:  # noqa: A002
        row = await self.brief(id)
        read = partial(stored.events_since, most=AT_ONCE)
        work = self.slices.begin(row.owner)
        while kept := await self._database.read(read, id, after):
            if not work.share():
                await work.rest()
            yield [data for _, _, data in kept]
            after = kept[-1][0]
        yield [_final(Ended(row.state, row.message))]

    async def get(self, id: UUID) -> OperationRow:  # noqa: A002
        row = await self._database.read(stored.get, id)
        if row is None:
            raise NotFound(f"no operation {id}")
        return row

    async def brief(self, id: UUID) -> OperationRow:  # noqa: A002
        """Without its result."""
        row = await self._database.read(stored.brief, id)
        if row is None:
            raise NotFound(f"no operation {id}")
        return row

    async def result_text(self, id: UUID) -> str:  # noqa: A002
        """The result of one that has ended, in JSON."""
        return await self._database.read(stored.result_text, id)

    async def result_size(self, id: UUID) -> int:  # noqa: A002
        """Characters of `result_text`."""
        return await self._database.read(stored.result_size, id)

    async def list(self, owner: OwnerId | None) -> list[OperationRow]:
        return await self._database.read(stored.all_operations, owner=owner)

    async def cancel(self, id: UUID) -> None:  # noqa: A002
        """Stop an operation; returns when the driver calls that were under way have ended.

        Raises `Conflict` when it has ended.
        """
        running = self._running.get(id)
        if running is None or running.task is None:
            row = await self.brief(id)
            raise Conflict(f"{row.kind} {row.cluster} has ended already: {row.state}")
        if not running.worked:
            running.task.cancel()
        await asyncio.wait([running.task])

    async def end(self, *, patience: float = ENDING) -> None:
        """The daemon ends: cancel all, and wait until they have undone what they undo, for so many
        seconds. Hosts and BMCs must answer meanwhile: calls of those that do not are broken off.
        """
        tasks = [each.task for each in self._running.values() if each.task is not None]
        for running in self._running.values():
            if running.task is not None and not running.worked:
                running.task.cancel()
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=patience)
        late = [each for each in self._running.values() if each.task in tasks and not each.worked]
        if not late:
            return
        for each in late:
            log.warning("calls to hosts are broken off", operation=str(each.row.id))
        closing = [self._tasks.start(each.calls.close(), name="break off calls") for each in late]
        await asyncio.wait([*tasks, *closing], timeout=patience)


def _save(
    connection: Connection, operation: UUID, events: list[Event], end: _End | None, now: float
) -> None:
    stored.add_events(connection, operation, at=now, added=events)
    if end is not None:
        state, message, result = end.ended.state, end.ended.message, end.result
        stored.finish(connection, operation, state=state, message=message, result=result, now=now)


def _final(ended: Ended) -> Event:
    return {"state": ended.state, "message": ended.message}
