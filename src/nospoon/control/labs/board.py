"""The labs of this daemon: requests wait, get machines, are watched and give them back.

The scheduler decides; here is what it decides on, stored before it is carried out. Whatever ends a
daemon, the next one reads the sets that have not ended and goes on with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import msgspec
import structlog

from nospoon.control.labs import records
from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.ended import KEPT, EndedSets
from nospoon.control.labs.known import KnownLabs, only_lab
from nospoon.control.labs.lists import Lists
from nospoon.control.labs.loads import Loads
from nospoon.control.labs.measured import Measured
from nospoon.control.labs.racks import Racks
from nospoon.control.labs.set_tasks import SetTasks
from nospoon.control.labs.webhooks import Hooks
from nospoon.errors import Conflict, NospoonError, NotFound
from nospoon.lab.effects import Build, Effect, Happened, Remove
from nospoon.lab.holdings import MachineState
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import HOLDING, RecipeSet, SetState
from nospoon.model.decoders import meet
from nospoon.model.machine import PowerCommand
from nospoon.model.principal import OwnerId
from nospoon.runtime.clock import Clock
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.store import lab_notices
from nospoon.store import labs as stored
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.lab_notices import Notice
from nospoon.store.labs import Noted

meet(MachineState)
log = structlog.get_logger()
LOOK = 5.0
"""Seconds after which leases are looked at, at the latest: clocks of machines are set."""
MOST_EXTENDED = 200
"""Events of a set beyond which an extension is none: a client may extend a lease for ever, and what
webhooks of its lab have not got by then would be left out for more.
"""


class Board:
    """All labs and their sets. `clock`: Unix seconds."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        tasks: Tasks,
        racks: Racks,
        workers: Workers,
        clock: Clock,
        hooks: Hooks,
    ) -> None:
        """`hooks` get every event of a set that has a lab."""
        self._noticed: list[tuple[KnownLab, Notice]] = []
        """Events that are stored with their sets, next."""
        self._unsent: list[Notice] = []
        """Of earlier daemons, and of those labs that are not known yet."""
        self._database, self._tasks, self._hooks = database, tasks, hooks
        self._records = records.Records(cipher)
        self._racks, self._workers, self._clock = racks, workers, clock
        self.slices = Slices()
        self.scheduler = Scheduler(at_once=False)
        self.labs = KnownLabs(self.scheduler, self._labs_changed)
        self.known = self.labs.known
        self.measured = Measured()
        self.secrets: dict[str, tuple[str, int]] = {}
        self.asked_from: dict[str, str] = {}
        """Secret -> the address from which its registered machine asked what to boot."""
        self._effects: deque[Effect] = deque()
        self._events: dict[str, list[Happened]] = {}
        self._history: dict[str, list[Noted]] = {}
        self._requests: dict[str, int] = {}
        self.lists = Lists(
            self.scheduler, self.slices, database, workers, self._records, self._requests
        )
        self._loads = Loads()
        self._keys: dict[tuple[int, str], list[str]] = {}
        self._numbers = (0, 0)
        self._unnoted: set[str] = set()
        self._labs_left = True
        self._at_work = SetTasks(self.scheduler, self.labs, racks, tasks, clock, self.do)
        self.ended = EndedSets(
            database=database, records=self._records, racks=racks, known=self.known, clock=clock
        )
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._followers: dict[str, set[asyncio.Event]] = {}
        self.sending = Slices()
        """Of what is sent to them."""

    def _labs_changed(self) -> None:
        """Sets that it leaves are ended by the loop."""
        self._labs_left = True
        self._wake.set()

    # life of a daemon

    async def start(self) -> None:
        """Go on with what the store has."""
        states = await self._database.call(stored.states)
        for (cluster_id, lab, machine), record in states.items():
            keys = [key for key, id_ in self.labs.clusters.items() if id_ == cluster_id]
            key = next((key for key in keys if self.known[key].lab.name == lab), "")
            if not key:
                continue
            if machine:
                self.scheduler.machines[key, machine] = msgspec.convert(record, MachineState)
            elif record.get("drained"):
                self.scheduler.drained.add(key)
        for key in {key for key, _ in self.scheduler.machines}:
            self.labs.restored(key)
        rows = await self._database.call(stored.active)
        sets = []
        for row in rows:
            try:
                sets.append(self._records.opened(row))
            except (msgspec.DecodeError, NospoonError) as error:
                # one record must not keep the daemon from starting; its machines stay
                log.error("a recipe set cannot be read: it is left as it is", set=row.id,
                          why=str(error))  # fmt: skip
                continue
            self._history[row.id] = list(row.history)
            self._note(sets[-1], row.request)
        self._effects += self.scheduler.restore(sets)
        await self._database.call(lab_notices.remove_old, self._clock() - KEPT)
        self._unsent = await self._database.read(lab_notices.waiting)
        self._send_again()
        self._tasks.start(self._keep(), name="keep labs")
        self._tasks.start(self.ended.tidy(), name="forget old recipe sets")

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.do(self._due)
            except NospoonError as error:
                log.warning("labs wait", why=str(error))
                await asyncio.sleep(1)
            except Exception:  # whatever it is, other sets must not wait for ever
                log.exception("labs wait")
                await asyncio.sleep(1)

    def _due(self) -> Sequence[Effect]:
        now, scheduler = self._clock(), self.scheduler
        effects = list(scheduler.expire(now))
        if self._labs_left:
            for set_id in scheduler.orphaned():
                effects += scheduler.cancel(set_id, "its lab is gone", now)
            self._labs_left = False
            self.measured.keep({each.shown for each in self.known.values()})
            self._send_again()
            self._at_work.renew_logins()
        scheduler.undecided = True
        return effects

    def _pause(self) -> float:
        deadline = self.scheduler.deadline
        left = LOOK if deadline is None else deadline - self._clock()
        return min(LOOK, max(0.01, left))

    # what happens

    async def do(self, what: Callable[[], Sequence[Effect]]) -> None:
        """Let the scheduler decide, store it, and carry it out. Raises `NospoonError` where it is
        not stored: it is, and is carried out, as soon as the store answers.
        """
        async with self._turn:
            try:
                self._effects += what()
                await self._settle()
            except BaseException:
                self._wake.set()
                raise

    async def _settle(self) -> None:
        """Decide and store. Who waits for it may leave meanwhile: the loop goes on with it."""
        if self.scheduler.undecided:
            turn = self.slices.begin("decide")
            await turn.rest()
            for _ in self.scheduler.deciding(self._clock(), self._effects):
                try:
                    await turn.rest()
                except BaseException:
                    self.scheduler.undecided = True
                    raise
        await self._store()

    async def submit(self, new: Sequence[RecipeSet], request_key: str) -> list[RecipeSet]:
        """Sets of one request wait from now on, with ids and secrets."""
        async with self._turn:
            user = new[0].submitter
            if request_key and (before := await self.submitted(user, request_key)):
                return before
            self._loads.require_room(user, new)
            stored_last = await self._database.read(stored.next_numbers)
            request, number = map(max, zip(stored_last, self._numbers, strict=True))
            self._numbers = (request + 1, number + len(new))
            now, made, turn = self._clock(), list[str](), self.slices.begin(user)
            try:
                for place, each in enumerate(new):
                    await turn.rest()
                    runs = tuple(
                        replace(run, secret=secrets.token_urlsafe(24)) for run in each.runs
                    )
                    found = replace(
                        each, id=f"{request}.{place + 1}", number=number + place, runs=runs,
                        key=request_key,
                    )  # fmt: skip
                    self._note(found, request)
                    made.append(found.id)
                    self._effects += self.scheduler.submit(found, now)
                await self._settle()
            except BaseException:
                self._wake.set()
                raise
            return [self.scheduler.sets[each] for each in made if each in self.scheduler.sets]

    async def submitted(self, owner: OwnerId, key: str) -> list[RecipeSet]:
        """What a user submitted under a key, whether or not it is stored yet."""
        if ids := self._keys.get((owner, key)):
            found = [self.scheduler.sets[each] for each in ids if each in self.scheduler.sets]
            if len(found) == len(ids):
                return found
        rows = await self._database.read(stored.by_key, submitter=owner, key=key)
        return [self.scheduler.sets.get(row.id) or self._records.opened(row) for row in rows]

    async def _store(self) -> None:
        """Stores what changed, and then carries out the effects."""
        scheduler, now = self.scheduler, self._clock()
        for effect in self._effects:
            if isinstance(effect, Happened):
                event = (now, effect.recipe, effect.event, effect.message)
                history = self._history.setdefault(effect.set_id, [])
                if effect.event != "extended" or len(history) < MOST_EXTENDED:
                    history.append(event)
                    self._noticed += self._notice_of(effect)
                self._events.setdefault(effect.set_id, []).append(effect)
                scheduler.changed.add(effect.set_id)
        todo = [each for each in self._effects if not isinstance(each, Happened)]
        self._effects = deque(todo)
        changed, machines = set(scheduler.changed), set(scheduler.changed_machines)
        found = [
            (scheduler.sets[each], self._requests[each], tuple(self._history.get(each, ())))
            for each in changed
            if each in scheduler.sets
        ]
        states = [
            (
                self.labs.clusters[key],
                self.known[key].lab.name,
                machine,
                scheduler.state_of(key, machine),
            )
            for key, machine in machines
            if key in self.labs.clusters
        ]
        if found or states:
            # kickstarts are long: neither the event loop nor the store's thread encrypts them
            rows = await self._workers.run(0, self._records.rows, found)
            new = [notice for _, notice in self._noticed]
            await self._database.call(records.save, rows, states, new)
        scheduler.changed -= changed
        scheduler.changed_machines -= machines
        self._effects.clear()
        self._unnoted |= changed
        self._send_again()  # what happened before
        noticed, self._noticed = self._noticed, []
        for known, notice in noticed:
            self._hooks.send(known, notice)
        for effect in todo:
            self._carry_out(effect)
        await self._notify()

    def _notice_of(self, event: Happened) -> list[tuple[KnownLab, Notice]]:
        """For the webhooks of its set's only lab: no other one learns of it."""
        found = self.scheduler.sets.get(event.set_id)
        known = self.known.get(only_lab(found)) if found is not None else None
        if found is None or known is None:
            return []
        notice = self._hooks.notice(known, found, event)
        return [(known, notice)] if notice is not None else []

    def _send_again(self) -> None:
        """What earlier daemons did not get rid of, as soon as its lab is known."""
        unsent, self._unsent = self._unsent, []
        for notice in unsent:
            if notice.lab in self.known:
                self._hooks.send(self.known[notice.lab], notice)
            else:
                self._unsent.append(notice)

    async def _notify(self) -> None:
        turn = self.slices.begin("notify")
        while self._unnoted:
            set_id = self._unnoted.pop()
            found = self.scheduler.sets.get(set_id)
            for event in self._events.pop(set_id, ()):
                if found is not None:
                    known = self.known.get(only_lab(found))
                    lab = known.shown if known is not None else ""
                    self.measured.note(lab, found, event, self._clock())
                    log.info("recipe set", set=set_id, recipe=event.recipe, what=event.event)
            for waker in self._followers.get(set_id, ()):
                waker.set()
            if found is not None and found.state is SetState.ENDED:
                self._forget(found)
            await turn.rest()

    def _note(self, found: RecipeSet, request: int) -> None:
        self._requests[found.id] = request
        self._loads.add(found)
        if found.key:
            self._keys.setdefault((found.submitter, found.key), []).append(found.id)
        for number, run in enumerate(found.runs):
            self.secrets[run.secret] = (found.id, number)

    def _forget(self, found: RecipeSet) -> None:
        """It has ended, and that is stored."""
        for run in found.runs:
            self.secrets.pop(run.secret, None)
            self.asked_from.pop(run.secret, None)
        self._loads.drop(found.id)
        for by_id in (self._history, self._requests):
            by_id.pop(found.id, None)
        self._keys.pop((found.submitter, found.key), None)
        self.scheduler.forget_ended([found.id])
        self.ended.add()

    def _carry_out(self, effect: Effect) -> None:
        found = self.scheduler.sets.get(effect.set_id)
        if found is None:
            return
        if isinstance(effect, Build):
            self._at_work.build(found)
        elif isinstance(effect, Remove):
            self._at_work.remove(found)

    async def switch(self, found: RecipeSet, number: int, command: PowerCommand) -> str:
        """A chassis command for the machine of a recipe that runs."""
        if found.state is not SetState.RUNNING or found.runs[number].over:
            raise Conflict(f"recipe {found.id}.{number} has no machine that runs")
        return await self._racks.switch(found, number, self.labs.known_of(found), command)

    # what there is

    async def drain(self, known: KnownLab, *, drained: bool) -> None:
        """Start nothing in a lab, or start again."""
        async with self._turn:
            if known.key not in self.labs.clusters:
                raise NotFound(f"lab {known.shown} is gone")
            await self._database.call(
                stored.put_state,
                self.labs.clusters[known.key], known.lab.name, "", {"drained": drained},
            )  # fmt: skip
            if drained:
                self.scheduler.drained.add(known.key)
            else:
                self.scheduler.drained.discard(known.key)
        self._wake.set()

    async def find(self, set_id: str) -> tuple[RecipeSet, int, Sequence[Noted]] | None:
        """A set, its request's number and its history; also one that ended."""
        found = self.scheduler.sets.get(set_id)
        if found is not None:
            return found, self._requests[set_id], list(self._history.get(set_id, ()))
        row = await self._database.read(stored.find, set_id)
        return (self._records.opened(row), row.request, row.history) if row is not None else None

    async def follow(self, set_id: str, after: int) -> AsyncIterator[tuple[int, Noted]]:
        """(number, event) of a set from its `after`-th on, until it has ended."""
        waker = asyncio.Event()
        followers = self._followers.setdefault(set_id, set())
        followers.add(waker)
        try:
            while True:
                waker.clear()
                known = await self.find(set_id)
                if known is None:
                    return
                found, _, history = known
                work = self.sending.begin(found.submitter)
                for number, event in enumerate(history[after:], after + 1):
                    if not work.share():
                        await work.rest()
                    yield number, event
                after = max(after, len(history))
                if found.state is SetState.ENDED:
                    return
                await waker.wait()
        finally:
            followers.discard(waker)
            if not followers:
                self._followers.pop(set_id, None)

    def trouble(self, set_id: str) -> str:
        """Why something is still there of a set that is being removed, "" for nothing known."""
        return self._at_work.trouble.get(set_id, "")

    def console_of(self, found: RecipeSet, number: int) -> str:
        """Of a recipe's machine: `recorded`, or why its console is not; "" while it has none."""
        if found.state not in HOLDING or found.runs[number].over:
            return ""
        return self._racks.console_of(found, number, self.labs.known_of(found))

    async def refusals(self, known: KnownLab) -> dict[str, str]:
        """Why no machine of a flavor can be made now, by the flavor's name."""
        return await self._racks.refusals(known)

    def out(self, key: str) -> list[RecipeSet]:
        """Sets that have machines of a lab."""
        return self.scheduler.holding(key)
