"""Carries out a plan: each move when what it waits for is done, so many at once per host.

Intent is journalled before each driver call and its outcome after it. A move that fails for what
may pass is tried again as its place declares; one that fails otherwise stops only what waits for
it. Nothing is rolled back here: the next plan starts from what is there.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Protocol, cast

from nospoon.engine.observe import Drivers
from nospoon.engine.progress import Emit, Failure, Outcome, Phase, Progress
from nospoon.errors import (
    MissingTool,
    NoComputeHost,
    NospoonError,
    OutOfSpace,
    Transient,
)
from nospoon.model.declared import CallLimits
from nospoon.model.resources.keys import Key
from nospoon.model.resources.resource import Resource, is_adopted
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import KINDS
from nospoon.plan.order.order import Half, Move, MoveId, moves
from nospoon.plan.order.steps import Action, Plan
from nospoon.providers.base import Adoption, Driver, MachineDriver
from nospoon.runtime import clock
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import listen

USUAL = CallLimits()
"""Of a place that declares nothing else."""


class Pace(Enum):
    """How much of a move its host is busy with, which says how many of them may be under way."""

    WORKS = auto()
    PAUSES = auto()
    """A claim of a machine: the most of it is a pause before its tag is read back."""
    WAITS = auto()


LONGEST_MESSAGE = 2000
"""Characters of a message: what a cloud or Ironic says may have megabytes, for each of 20,000
nodes, and is kept.
"""
MOST_NOTES = 50
"""Of one move: an Ironic may change a node's state every second for an hour."""
Lane = tuple[str, Pace]
"""A host's moves of one pace: none waits for the turn of a slower one."""


class Journal(Protocol):
    """Makes intent and outcome durable."""

    async def intend(self, key: Key, half: Half, token: str) -> int: ...

    async def conclude(self, entry: int, error: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much happens at once on one host, and how calls are repeated.

    `places`: what hosts declare, by their names. `per_host`: calls at once, where a request chooses
    it. `pausing`: how many claims of machines at once. `waiting`: how many moves at once that only
    wait for what others do. `patience`: for how many seconds calls are repeated of an Ironic that
    is away.
    """

    places: Mapping[str, CallLimits] = field(default_factory=dict)
    per_host: int | None = None
    pausing: int = 64
    waiting: int = 256
    patience: float = 0.0

    def at(self, host: str) -> CallLimits:
        return self.places.get(host, USUAL)

    def of(self, lane: Lane) -> int:
        host, pace = lane
        works = self.per_host or self.at(host).at_once
        return {Pace.WORKS: works, Pace.PAUSES: self.pausing, Pace.WAITS: self.waiting}[pace]

    def pauses(self, key: Key) -> Iterator[float]:
        """Seconds before each further try of a call, where its place says no other."""
        place = self.at(key.place)
        if not KINDS[key.kind].outside:
            yield from place.pauses
            return
        until = clock.monotonic() + self.patience
        while clock.monotonic() < until:
            yield min(place.pauses, default=0.0)


async def execute(
    plan: Plan,
    *,
    drivers: Drivers,
    tag: OwnerTag,
    journal: Journal,
    emit: Emit,
    limits: Limits | None = None,
    calls: Tasks | None = None,
) -> Outcome:
    """Carry out every move. Cancelling lets no driver call begin any more, and hears out those that
    were begun; to break them off, close their tasks, `calls`.
    """
    of_calls = calls or Tasks("engine")
    run = await asyncio.to_thread(  # ten thousand nodes have forty thousand moves
        lambda: _Run(moves(plan), drivers, tag, journal, emit, limits or Limits(), of_calls)
    )
    return await run.all()


class _Run:
    """Moves that wait for nothing more lie in their host's queue; some workers a host take them."""

    def __init__(
        self,
        moves: Mapping[MoveId, Move],
        drivers: Drivers,
        tag: OwnerTag,
        journal: Journal,
        emit: Emit,
        limits: Limits,
        calls: Tasks,
    ) -> None:
        self.moves = moves
        self.drivers, self.tag, self.journal = drivers, tag, journal
        self.emit, self.limits = emit, limits
        self.outcome = Outcome(total=len(self.moves))
        self.calls = calls
        self.left = len(moves)
        self.away = set[str]()
        self.blocked = {id_: len(move.waits) for id_, move in moves.items()}
        self.doomed: set[MoveId] = set()
        self.waiting: defaultdict[MoveId, list[Move]] = defaultdict(list)
        self.ready: defaultdict[Lane, asyncio.Queue[Move | None]] = defaultdict(asyncio.Queue)
        self.amounts = Counter(_lane(move) for move in moves.values())
        for move in moves.values():
            for id_ in move.waits:
                self.waiting[id_].append(move)
            if not move.waits:
                self.ready[_lane(move)].put_nowait(move)

    async def all(self) -> Outcome:
        async with self.calls, asyncio.TaskGroup() as group:
            for lane, amount in self.amounts.items():
                for number in range(min(amount, self.limits.of(lane))):
                    group.create_task(self._work(self.ready[lane]), name=f"{lane[0]} {number}")
        return self.outcome

    async def _work(self, ready: asyncio.Queue[Move | None]) -> None:
        while (move := await ready.get()) is not None:
            await self._over(move, succeeded=move.id not in self.doomed and await self._try(move))
        ready.put_nowait(None)  # the next worker ends, too

    async def _over(self, move: Move, *, succeeded: bool) -> None:
        """What waited for nothing else is ready now, or skipped: of a pool, all of its host."""
        async for other in paced(self.waiting[move.id]):
            self.blocked[other.id] -= 1
            if not succeeded:
                self.doomed.add(other.id)
            if self.blocked[other.id]:
                continue
            if other.id in self.doomed:
                self.outcome.skipped += 1
                self._tell(Phase.SKIPPED, other, "waits for something that failed")
            self.ready[_lane(other)].put_nowait(other)
        self.left -= 1
        if not self.left:
            for queue in self.ready.values():
                queue.put_nowait(None)

    async def _try(self, move: Move) -> bool:
        self._tell(Phase.STARTED, move, _verb(move))
        try:
            entry = await self.journal.intend(move.key, move.half, self.tag.token)
            error = await self._call(move)
            passes = isinstance(error, OutOfSpace)
            await self.journal.conclude(entry, _why(error))
        except NospoonError as failed:  # of the journal: the next plan starts from what is there
            error, passes = failed, False
        if error is not None:
            why = _why(error)
            nowhere = isinstance(error, NoComputeHost)
            failure = Failure(str(move.key), move.step.node, why, passes, nowhere)
            self.outcome.failures.append(failure)
            self._tell(Phase.FAILED, move, why)
            return False
        self.outcome.done += 1
        self._tell(Phase.DONE, move, _verb(move))
        return True

    async def _call(self, move: Move) -> Exception | None:
        """What the driver raised at last, of what drivers may raise, after other tries of what may
        pass. While Ironic restarts, all of its nodes wait; the first of them says so.

        A call that was begun is heard out when we are cancelled: what it does on its host would go
        on unseen, and be in the way of what comes next. One that only waits for others does nothing
        there, and may wait for an hour: it is cancelled, too.
        """
        key, kind = move.key, KINDS[move.key.kind]
        pauses, desired = self.limits.pauses(key), move.step.desired
        others = iter(desired.alternatives if desired is not None else ())
        while True:
            call, name = self._act(move, desired), f"the call for {key}"
            try:
                await self.calls.heard_out(call, name=name, cancels=kind.waits)
            except NoComputeHost as error:
                if desired is None or (other := next(others, None)) is None:
                    return error
                again = f"It is created once more {other.words}."
                self._tell(Phase.RETRYING, move, f"{str(error).rstrip('. ')}. {again}")
                desired = replace(desired, shape=other.shape)
            except Transient as error:
                if (usual := next(pauses, None)) is None:
                    return error
                pause = self.limits.at(key.place).pause(usual, error.retry_after)
                long = f"for up to {self.limits.patience:.0f}"
                again = f"Trying again {long if kind.outside else f'in {pause:.0f}'} s."
                if key.place not in self.away:
                    self._tell(Phase.RETRYING, move, f"{str(error).rstrip('.')}. {again}")
                if kind.outside:
                    self.away.add(key.place)
                await asyncio.sleep(pause)
            except (NospoonError, OSError) as error:
                return error
            else:
                return None

    async def _act(self, move: Move, desired: Resource | None) -> None:
        """The driver's call, in a task of its own."""
        left = iter(range(MOST_NOTES))

        def note(text: str) -> None:
            if next(left, None) is not None:
                self._tell(Phase.NOTE, move, text)

        listen(note)
        step, key = move.step, move.key
        driver = self.drivers.get((key.place, key.kind))
        if driver is None:
            raise MissingTool(f"nothing here makes a {key.kind} on {key.place}")
        if move.half is Half.REMOVE:
            assert step.observed is not None, "only what was observed is removed"
            adopted = is_adopted(step.observed.shape)
            await (_adoption(driver).release if adopted else driver.delete)(step.observed)
            return
        assert desired is not None, "only what is desired is made"
        tag = replace(self.tag, note=desired.note)
        if step.action is Action.CHANGE and desired is step.desired:  # else it was deleted
            assert step.observed is not None, "only what was observed is changed"
            await driver.change(step.observed, desired, tag)
        else:
            adopted = is_adopted(desired.shape)
            await (_adoption(driver).claim if adopted else driver.create)(desired, tag)

    def _tell(self, phase: Phase, move: Move, message: str) -> None:
        over = self.outcome.done + len(self.outcome.failures) + self.outcome.skipped
        what, node = str(move.key), move.step.node
        message = message[:LONGEST_MESSAGE]
        self.emit(Progress(phase, message, what, node, over, self.outcome.total))


def _adoption(driver: Driver) -> Adoption:
    adoption = cast("MachineDriver", driver).adoption  # what drives machines
    assert adoption is not None, "machines are found to adopt where they can be claimed alone"
    return adoption


def _why(error: Exception | None) -> str:
    """Why a call failed, "" where it did not."""
    why = str(error) if error is not None else ""
    if isinstance(error, OSError):  # a file or socket of this machine, in a driver that lives here
        where = f"{error.filename}: " if error.filename else ""
        why = f"{where}{error.strerror or error}"
    return why[:LONGEST_MESSAGE]


def _lane(move: Move) -> Lane:
    if KINDS[move.key.kind].waits:
        return move.key.place, Pace.WAITS
    step = move.step
    claims = (
        move.half is Half.MAKE
        and step.action is not Action.CHANGE
        and step.desired is not None
        and is_adopted(step.desired.shape)
    )
    return move.key.place, Pace.PAUSES if claims else Pace.WORKS


def _verb(move: Move) -> str:
    if move.half is Half.REMOVE and move.step.action is not Action.DELETE:
        return "delete"
    return move.step.verb
