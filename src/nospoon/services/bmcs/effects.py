"""Carrying out what aggregates want: one thing after the other for each BMC, and BMCs beside one
another.

What talks to a machine waits for what was told it before. What must be durable is saved before
anything that follows; what a client asked for and could not be saved is not so, and no one is told
that it is. What a machine did is so, and answered, even where it could not be saved; that is tried
again.

Of a BMC that is gone nothing is carried out, for another may be served in its place. Who waits is
answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from nospoon.bmc.faults import POWER, POWER_LATE
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.messages import (
    Answer,
    Append,
    BootTold,
    CommandEnded,
    Drive,
    Effect,
    EndSessions,
    Erase,
    Event,
    Persist,
    Request,
    SetBoot,
    Verdict,
)
from nospoon.bmc.runtime import Runtime
from nospoon.errors import Gone, HostUnreachable, NospoonError, ProviderError
from nospoon.model.machine import Outcome, PowerCommand
from nospoon.runtime import clock
from nospoon.runtime.log_rate import RateLimitedLog
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.ports import Machines, RuntimeStore
from nospoon.services.bmcs.served import Served

log = RateLimitedLog()
"""Clients may ask as often as they like for what fails."""

Resolve = Callable[[Answer], None]
Noted = Callable[[Served, Append | Erase], None]
"""Told of each change of a log."""
Saved = Callable[[Served, Runtime], None]
"""Told after runtime state was saved, with what it was before."""
End = Callable[[Served], None]
"""Ends all sessions of a BMC."""
SAVE_WITHIN = 5.0
"""Seconds that a client is kept waiting for a store that does not answer (ipmitool(1) gives up
after ten).
"""
SAVE_AGAIN = 30.0
"""Seconds until what happened is stored that could not be."""
LONGEST_WHY = 1000
"""Characters of why a power command failed, of which a BMC's log may have 512: errors may repeat
what a client, or a cloud, wrote.
"""
WAITING = 256
"""Effects of one BMC that wait, while further requests are answered."""
AT_ONCE = Answer | Append | Erase | EndSessions
STOPS = frozenset({PowerCommand.OFF, PowerCommand.SOFT, PowerCommand.CYCLE})


class Effects:
    """Feeds aggregates, and carries out their effects. Everything happens on the loop's thread."""

    def __init__(
        self,
        machines: Machines,
        store: RuntimeStore,
        tasks: Tasks,
        *,
        saved: Saved,
        noted: Noted,
        end: End,
        save_within: float = SAVE_WITHIN,
        save_again: float = SAVE_AGAIN,
    ) -> None:
        self._machines, self._store, self._tasks = machines, store, tasks
        self._saved, self._noted = saved, noted
        self._end_sessions = end
        self._save_within, self._save_again = save_within, save_again
        self._hangs = False
        self._waiting: dict[int, Resolve] = {}
        self._tickets = 0

    @property
    def now(self) -> float:
        """Of the aggregates' clock."""
        return asyncio.get_running_loop().time()

    def ask(self, served: Served, event: Callable[[int], Event]) -> asyncio.Future[Answer]:
        """Feed an event that carries a ticket, at once; its answer comes."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def resolve(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        if served.gone:
            resolve(Answer(0, Verdict.GONE, "the BMC is not there any more"))
        else:
            self.feed(served, event(self.ticket(resolve)))
        return future

    def ticket(self, resolve: Resolve) -> int:
        """Whose answer calls `resolve`."""
        self._tickets += 1
        self._waiting[self._tickets] = resolve
        return self._tickets

    def feed(self, served: Served, event: Event) -> None:
        """Tell the aggregate, and carry out what it wants. A request is refused where too much
        waits already: clients may send more than can be made durable.
        """
        if len(served.effects) >= WAITING and isinstance(event, Request) and event.ticket:
            reason = "too many changes of this BMC wait to be stored"
            self._at_once(served, Answer(event.ticket, Verdict.BUSY, reason))
            return
        served.aggregate.state.epoch = clock.unix() - served.now()
        effects = served.aggregate.receive(event, served.now())
        self._queue(served, effects if isinstance(event, Request) else _happened(effects))

    def _queue(self, served: Served, effects: Iterable[Effect]) -> None:
        """Carry out effects in order. What does not wait, with nothing before it, needs no task."""
        if served.gone:
            effects = [each for each in effects if isinstance(each, Answer)]
        served.effects.extend(effects)
        if served.turn is None:
            while served.effects and isinstance(served.effects[0], AT_ONCE):
                self._at_once(served, served.effects.popleft())
            if served.effects:
                served.turn = self._tasks.start(self._carry_out(served), name="bmc effects")
        self._set_timer(served)

    async def _carry_out(self, served: Served) -> None:
        try:
            while served.effects:
                await self._effect(served, served.effects.popleft())
        finally:
            served.turn = None

    async def _effect(self, served: Served, effect: Effect) -> None:
        match effect:
            case Persist():
                await self._persist(served, effect)
            case Drive():
                self._in_turn(served, lambda: self._drive(served, effect), name="power")
            case SetBoot():
                self._in_turn(served, lambda: self._set_boot(served, effect), name="boot")
            case Append() | Erase() | Answer() | EndSessions():
                self._at_once(served, effect)

    async def _persist(self, served: Served, effect: Persist) -> None:
        """What was asked for and could not be made durable is not acknowledged, and not so. A store
        that hangs may do so later: then what holds is saved once more.
        """
        if effect.happened and self._hangs and served.again is not None:
            self._holds(served, effect.runtime)
            return
        try:
            async with asyncio.timeout(self._save_within):
                await self._store.save(served.bmc.uuid, effect.runtime)
        except Exception as error:
            log.exception(
                "BMC state not saved",
                node=served.config.node,
                machine=str(served.config.machine.uuid),
            )
            self._hangs = isinstance(error, TimeoutError)
            if effect.happened:
                self._holds(served, effect.runtime)
                self._save_later(served)
                return
            served.aggregate.revert(served.saved)
            if self._hangs:
                self._save_later(served)
            cause = "does the database answer" if self._hangs else "is the disk full"
            reason = f"the state could not be stored: {cause}? The daemon's log has the cause"
            served.effects = deque(
                Answer(each.ticket, Verdict.FAILED, reason) if isinstance(each, Answer) else each
                for each in served.effects
                if not isinstance(each, Persist | SetBoot)
            )
        else:
            self._hangs = False
            if served.again is not None:
                served.again.cancel()
                served.again = None
            self._holds(served, effect.runtime)

    def _holds(self, served: Served, runtime: Runtime) -> None:
        before, served.saved = served.saved, runtime
        self._saved(served, before)

    def _save_later(self, served: Served) -> None:
        if served.again is None and not served.gone:
            loop = asyncio.get_running_loop()
            served.again = loop.call_later(self._save_again, self._save_now, served)

    def _save_now(self, served: Served) -> None:
        """With nothing under way: what waits to be stored may not be so in the end."""
        served.again = None
        if served.turn is None:
            self._queue(served, [Persist(served.saved, happened=True)])
        else:
            self._save_later(served)

    def _in_turn(self, served: Served, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        """Talk to the machine once everything told before was told."""
        before = served.lane

        async def run() -> None:
            if before is not None:
                await asyncio.wait([before])
            await work()

        def ended(task: asyncio.Task[None]) -> None:
            if served.lane is task:
                served.lane = None

        served.lane = self._tasks.start(run(), name=f"{name} {served.config.node}")
        served.lane.add_done_callback(ended)

    def _at_once(self, served: Served, effect: Effect) -> None:
        match effect:
            case Append(record=record):
                self._store.append(served.bmc.uuid, record)
                self._noted(served, effect)
            case Erase(number=number):
                self._store.erase(served.bmc.uuid, number)
                self._noted(served, effect)
            case Answer(ticket=ticket):
                resolve = self._waiting.pop(ticket, None)
                if resolve is not None:
                    resolve(effect)
            case EndSessions():
                self._end_sessions(served)
            case Persist() | Drive() | SetBoot():
                raise AssertionError("these wait")

    async def _drive(self, served: Served, effect: Drive) -> None:
        verdict, reason, lied, outcome = Verdict.DONE, "", False, Outcome.CHANGED
        command = effect.command
        try:
            acts = not effect.unplugs and not effect.believed
            lied = acts and await self._lies(served, command)
            power = self._machines.power
            if not lied:
                outcome = await power(served.bmc.uuid, command, effect.boot)
        except Gone as error:
            verdict, reason = Verdict.GONE, str(error)
        except HostUnreachable as error:
            verdict, reason = Verdict.UNREACHABLE, str(error)
        except NospoonError as error:
            verdict, reason = Verdict.FAILED, str(error)
        reason = reason[:LONGEST_WHY]
        if reason:
            log.warning(
                "power failed",
                of=str(served.bmc.uuid),
                node=served.config.node,
                machine=str(served.config.machine.uuid),
                why=reason,
            )
        self.feed(served, CommandEnded(verdict, reason, lied=lied, outcome=outcome))

    async def _lies(self, served: Served, command: PowerCommand) -> bool:
        """A fault on demand: whether nothing is to be done, and that be called success."""
        late = served.strike(POWER_LATE, served.now()) if command in STOPS else None
        if late is not None:
            await served.wait_badly(late.seconds)
        fault = served.strike(POWER, served.now())
        if fault is not None and fault.kind is FaultKind.POWER_STUCK:
            raise ProviderError("power is stuck (an injected fault)")
        return fault is not None

    async def _set_boot(self, served: Served, effect: SetBoot) -> None:
        try:
            await self._machines.set_boot(served.bmc.uuid, effect.boot)
        except NospoonError as error:
            log.warning(
                "boot order not sent",
                of=str(served.bmc.uuid),
                node=served.config.node,
                machine=str(served.config.machine.uuid),
                why=str(error),
            )
        else:
            self.feed(served, BootTold(effect.edition))

    def _set_timer(self, served: Served) -> None:
        deadline = served.aggregate.deadline
        if served.timer is not None:
            served.timer.cancel()
            served.timer = None
        if deadline is not None and not served.gone:
            loop = asyncio.get_running_loop()
            served.timer = loop.call_at(deadline, self._expired, served)

    def _expired(self, served: Served) -> None:
        served.timer = None
        self._queue(served, _happened(served.aggregate.expire(served.now())))


def _happened(effects: Iterable[Effect]) -> Iterable[Effect]:
    return [
        Persist(each.runtime, happened=True) if isinstance(each, Persist) else each
        for each in effects
    ]
