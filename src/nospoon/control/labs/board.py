"""The labs of this daemon: requests wait, get machines, are watched and give them back.

The scheduler decides; here is what it decides on, stored before it is carried out. Whatever ends a
daemon, the next one reads the sets that have not ended and goes on with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import msgspec
import structlog

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.racks import NotMade, Racks
from nospoon.errors import Conflict, NospoonError
from nospoon.lab.scheduler import Build, Effect, Happened, MachineState, Remove, Scheduler
from nospoon.lab.work import RecipeSet, Run, SetState
from nospoon.model.lab import Lab
from nospoon.model.machine import PowerCommand
from nospoon.runtime.clock import Clock
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.store import labs as stored
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.labs import SetRow

log = structlog.get_logger()
LOOK = 5.0
"""Seconds after which leases are looked at, at the latest: clocks of machines are set."""
AGAIN = 10.0
"""Seconds until what could not be removed is removed again."""
KEPT = 30 * 86400.0
"""Seconds for which sets that ended are shown."""
FORGET, FORGET_AT_ONCE = 3600.0, 20
"""Seconds between two looks for such sets, and how many are forgotten at a time."""
MOST_HISTORY = 200
"""Events of one set that are kept: the last ones."""
MOST_QUEUED = 10_000
"""Recipes of one user whose sets have not ended."""
SECRET = 24
"""Bytes of a recipe's secret."""
BUCKETS = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Seconds; upper bounds of the histograms (Prometheus, histograms)."""


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        place = next((n for n, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
        self.counts[place] += 1
        self.total += seconds


@dataclass(slots=True)
class Measured:
    """Since the daemon started. `ended`: by (lab, result); `failures` by (lab, cause)."""

    queue: Histogram = field(default_factory=Histogram)
    build: Histogram = field(default_factory=Histogram)
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)


Notify = Callable[[KnownLab, RecipeSet, Happened], None]


class Board:
    """All labs and their sets. `clock`: Unix seconds."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        tasks: Tasks,
        racks: Racks,
        clock: Clock,
        notify: Notify = lambda _lab, _set, _event: None,
    ) -> None:
        """`notify`: called with every event of a set that has a lab, once it is stored."""
        self._database, self._cipher, self._tasks = database, cipher, tasks
        self._racks, self._clock, self._send = racks, clock, notify
        self.scheduler = Scheduler()
        self.known: dict[str, KnownLab] = {}
        self.measured = Measured()
        self.secrets: dict[str, tuple[str, int]] = {}
        self._recipes = Counter[int]()
        self._texts: dict[str, dict[int, bytes]] = {}
        self._clusters: dict[str, UUID] = {}
        self._effects: deque[Effect] = deque()
        self._events: dict[str, list[Happened]] = {}
        self._history: dict[str, list[tuple[float, int, str, str]]] = {}
        self._building: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._followers: dict[str, set[asyncio.Event]] = {}

    # labs come and go with the files of clusters

    def put(self, cluster_id: UUID, uid: int, cluster: str, labs: Sequence[Lab]) -> None:
        """The labs that a cluster's file has now. Call it before `start` for those of the store."""
        keys = {key_of(uid, cluster, lab.name): lab for lab in labs}
        for key in [key for key, id_ in self._clusters.items() if id_ == cluster_id]:
            if key not in keys:
                self._drop(key)
        for key, lab in keys.items():
            self.known[key] = KnownLab(key, uid, cluster, lab)
            self._clusters[key] = cluster_id
            self.scheduler.put_lab(key, lab)
        self._wake.set()

    def drop(self, cluster_id: UUID) -> None:
        """A cluster is gone, and its labs are."""
        for key in [key for key, id_ in self._clusters.items() if id_ == cluster_id]:
            self._drop(key)

    def _drop(self, key: str) -> None:
        del self._clusters[key], self.known[key]
        self.scheduler.drop_lab(key)

    def require_unused(self, cluster_id: UUID, staying: Iterable[str] = ()) -> None:
        """Raises `Conflict` for labs of a cluster, but those that stay, that have sets."""
        names = set(staying)
        for key, id_ in self._clusters.items():
            if id_ != cluster_id or self.known[key].lab.name in names:
                continue
            sets = [each.id for each in self.scheduler.sets.values() if _is_of(each, key)]
            if sets:
                raise Conflict(
                    f"lab {self.known[key].lab.name} has {len(sets)} recipe sets that have not "
                    f"ended: {', '.join(sets[:5])}",
                    hint="`nospoon lab drain` it and wait, or `nospoon request cancel` them.",
                )

    # life of a daemon

    async def start(self) -> None:
        """Go on with what the store has."""
        records = await self._database.call(stored.states)
        for (cluster_id, lab, machine), record in records.items():
            keys = [key for key, id_ in self._clusters.items() if id_ == cluster_id]
            key = next((key for key in keys if self.known[key].lab.name == lab), "")
            if not key:
                continue
            if machine:
                self.scheduler.machines[key, machine] = msgspec.convert(record, MachineState)
            elif record.get("drained"):
                self.scheduler.drained.add(key)
        rows = await self._database.call(stored.active)
        sets = []
        for row in rows:
            sets.append(self._opened(row))
            self._history[row.id] = list(row.history)
        for each in sets:
            self._note_secrets(each)
        self._effects += self.scheduler.restore(sets)
        self._tasks.start(self._keep(), name="keep labs")
        self._tasks.start(self._keep_few(), name="forget old recipe sets")

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

    async def _keep_few(self) -> None:
        """Sets that ended long ago are forgotten, and their console logs with them."""
        while True:
            try:
                forgotten = FORGET_AT_ONCE
                while forgotten:
                    forgotten = await self.forget_old(self._clock() - KEPT)
            except NospoonError as error:
                log.warning("old recipe sets are kept for now", why=str(error))
            await asyncio.sleep(FORGET)

    async def forget_old(self, before: float) -> int:
        """Some of those that were submitted before that and have ended. Returns how many."""
        rows = await self._database.read(stored.ended_before, before, most=FORGET_AT_ONCE)
        for row in rows:
            if row.lab in self.known:
                await self._racks.purge(self._opened(row), self.known[row.lab])
        await self._database.call(stored.forget, [row.id for row in rows])
        return len(rows)

    def _due(self) -> Sequence[Effect]:
        now = self._clock()
        return [*self.scheduler.expire(now), *self.scheduler.decide(now)]

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
            effects = what()
            self._effects += effects
            await self._store()

    async def submit(self, new: Sequence[RecipeSet], request_key: str) -> list[RecipeSet]:
        """Sets of one request wait from now on, with ids and secrets."""
        texts = await asyncio.to_thread(self._sealed_texts, new)
        async with self._turn:
            if request_key:
                uid = new[0].uid
                rows = await self._database.read(stored.by_key, uid=uid, key=request_key)
                if rows:
                    return [self.scheduler.sets.get(row.id) or self._opened(row) for row in rows]
            uid, more = new[0].uid, sum(len(each.runs) for each in new)
            if self._recipes[uid] + more > MOST_QUEUED:
                raise Conflict(
                    f"{self._recipes[uid]} recipes of yours have not ended: {MOST_QUEUED} may"
                )
            request, number = await self._database.call(stored.next_numbers)
            now = self._clock()
            made = []
            async for place, each in paced(list(enumerate(new))):
                runs = tuple(_kept(run) for run in each.runs)
                found = replace(
                    each, id=f"{request}.{place + 1}", number=number + place, runs=runs,
                    key=request_key,
                )  # fmt: skip
                self._texts[found.id] = texts[place]
                self._note_secrets(found)
                made.append(found)
                self._effects += self.scheduler.submit(found, now)
            await self._store()
            return [self.scheduler.sets[each.id] for each in made]

    async def _store(self) -> None:
        """What changed, and then what is to be done about it."""
        scheduler, now = self.scheduler, self._clock()
        for effect in self._effects:
            if isinstance(effect, Happened):
                event = (now, effect.recipe, effect.event, effect.message)
                self._history.setdefault(effect.set_id, []).append(event)
                self._events.setdefault(effect.set_id, []).append(effect)
                scheduler.changed.add(effect.set_id)
        todo = [each for each in self._effects if not isinstance(each, Happened)]
        self._effects = deque(todo)
        changed, machines = set(scheduler.changed), set(scheduler.changed_machines)
        known = [each for each in changed if each in scheduler.sets]
        rows = [self._row(scheduler.sets[each]) async for each in paced(known)]
        states = [
            (
                self._clusters[key],
                self.known[key].lab.name,
                machine,
                scheduler.state_of(key, machine),
            )
            for key, machine in machines
            if key in self._clusters
        ]
        texts = {row.id: kept for row in rows if (kept := self._texts.get(row.id))}
        if rows or states:
            await self._database.call(_save, rows, states, texts)
        for set_id in changed:
            self._texts.pop(set_id, None)
        scheduler.changed -= changed
        scheduler.changed_machines -= machines
        self._effects.clear()
        await self._notify(changed)
        for effect in todo:
            self._carry_out(effect)

    async def _notify(self, changed: set[str]) -> None:
        async for set_id in paced(changed):
            found = self.scheduler.sets.get(set_id)
            for event in self._events.pop(set_id, ()):
                if found is not None:
                    self._measure(found, event)
                    log.info("recipe set", set=set_id, recipe=event.recipe, what=event.event)
                    if found.lab in self.known:  # no other lab learns of it
                        self._send(self.known[found.lab], found, event)
            for waker in self._followers.get(set_id, ()):
                waker.set()
            if found is not None and found.state is SetState.ENDED:
                for run in found.runs:
                    self.secrets.pop(run.secret, None)
                self._recipes[found.uid] -= len(found.runs)
                self._history.pop(set_id, None)
        self.scheduler.forget_ended()

    def _measure(self, found: RecipeSet, event: Happened) -> None:
        lab = self.known[found.lab].shown if found.lab in self.known else ""
        now = self._clock()
        if event.event == "starting":
            self.measured.queue.add(now - found.submitted)
        elif event.event == "started":
            self.measured.build.add(now - found.started)
        elif event.event == "ended":
            self.measured.ended[lab, found.result] += 1
        if event.event in ("failed", "not started", "panic", "expired"):
            self.measured.failures[lab, event.event] += 1

    def _carry_out(self, effect: Effect) -> None:
        found = self.scheduler.sets[effect.set_id]
        if isinstance(effect, Build):
            task = self._tasks.start(self._build(found), name=f"make {found.id}")
            self._building[found.id] = task
        elif isinstance(effect, Remove):
            self._tasks.start(self._remove(found), name=f"remove {found.id}")

    async def _build(self, found: RecipeSet) -> None:
        known = self.known[found.lab]
        try:
            await self._racks.build(found, known)
        except NotMade as error:
            why, again = error.why, error.again
            await self._surely(
                lambda: self.scheduler.not_started(found.id, why, self._clock(), again=again)
            )
        else:
            await self._surely(lambda: self.scheduler.started(found.id, self._clock()))
        finally:
            self._building.pop(found.id, None)

    async def _remove(self, found: RecipeSet) -> None:
        building = self._building.get(found.id)
        if building is not None and building is not asyncio.current_task():
            building.cancel()
            await asyncio.wait([building])
        while why := await self._racks.remove(found, self.known[found.lab]):
            log.warning("a recipe set is not removed yet", set=found.id, why=why)
            self._note_trouble(found.id, why)
            await asyncio.sleep(AGAIN)
        await self._surely(lambda: self.scheduler.removed(found.id, self._clock()))

    def _note_trouble(self, set_id: str, why: str) -> None:
        found = self.scheduler.sets.get(set_id)
        if found is not None:
            self.scheduler.sets[set_id] = replace(found, why=f"not removed yet: {why}")

    async def _surely(self, what: Callable[[], Sequence[Effect]]) -> None:
        """Whatever the store says: the loop tries again what was not stored."""
        try:
            await self.do(what)
        except NospoonError as error:
            log.error("the state of a recipe set is not stored yet", why=str(error))
            self._wake.set()

    async def switch(self, found: RecipeSet, number: int, command: PowerCommand) -> str:
        """A chassis command for the machine of a recipe that runs."""
        if found.state is not SetState.RUNNING or found.runs[number].over:
            raise Conflict(f"recipe {found.id}.{number} has no machine that runs")
        return await self._racks.switch(found, number, self.known[found.lab], command)

    # what there is

    async def drain(self, known: KnownLab, *, drained: bool) -> None:
        """Start nothing in a lab, or start again."""
        async with self._turn:
            await self._database.call(
                stored.put_state,
                self._clusters[known.key], known.lab.name, "", {"drained": drained},
            )  # fmt: skip
            if drained:
                self.scheduler.drained.add(known.key)
            else:
                self.scheduler.drained.discard(known.key)
        self._wake.set()

    async def find(self, set_id: str) -> tuple[RecipeSet, int, Sequence[Any]] | None:
        """A set, its request's number and its history; also one that ended."""
        found = self.scheduler.sets.get(set_id)
        if found is not None:
            return found, request_of(set_id), list(self._history.get(set_id, ()))
        row = await self._database.read(stored.find, set_id)
        return (self._opened(row), row.request, row.history) if row is not None else None

    async def rows(self, most: int) -> list[tuple[SetRow, RecipeSet | None]]:
        """The sets that were submitted last, oldest first; None for one that has ended."""
        rows = await self._database.read(stored.newest, most=most)
        return [(row, self.scheduler.sets.get(row.id)) for row in rows]

    async def follow(self, set_id: str, after: int) -> AsyncIterator[tuple[int, Any]]:
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
                for number, event in enumerate(history[after:], after + 1):
                    yield number, event
                after = max(after, len(history))
                if found.state is SetState.ENDED:
                    return
                await waker.wait()
        finally:
            followers.discard(waker)
            if not followers:
                self._followers.pop(set_id, None)

    def _sealed_texts(self, new: Sequence[RecipeSet]) -> list[dict[int, bytes]]:
        return [
            {
                number: self._cipher.encrypt(run.asked.kickstart)
                for number, run in enumerate(each.runs)
                if run.asked.kickstart
            }
            for each in new
        ]

    async def kickstart_of(self, found: RecipeSet, number: int) -> str:
        """A recipe's own, "" for none."""
        if not found.runs[number].asked.has_kickstart:
            return ""
        text = await self._database.read(stored.text_of, found.id, number)
        return await asyncio.to_thread(self._cipher.decrypt, text) if text is not None else ""

    def _note_secrets(self, found: RecipeSet) -> None:
        self._recipes[found.uid] += len(found.runs)
        for number, run in enumerate(found.runs):
            self.secrets[run.secret] = (found.id, number)

    def _row(self, found: RecipeSet) -> SetRow:
        return SetRow(
            id=found.id,
            request=request_of(found.id),
            number=found.number,
            uid=found.uid,
            owner=found.owner,
            lab=found.lab,
            state=found.state,
            created=found.submitted,
            record=self._cipher.encrypt(msgspec.json.encode(found).decode()),
            key=found.key,
            summary={
                "recipes": len(found.runs),
                "priority": found.priority,
                "result": found.result,
                "why": found.why,
                "whiteboard": found.whiteboard,
            },
            history=self._history.get(found.id, [])[-MOST_HISTORY:],
        )

    def _opened(self, row: SetRow) -> RecipeSet:
        return msgspec.json.decode(self._cipher.decrypt(row.record), type=RecipeSet)


def _kept(run: Run) -> Run:
    """As it is kept: its kickstart is stored apart, and callbacks know its secret."""
    asked = replace(run.asked, kickstart="")
    return replace(run, asked=asked, secret=secrets.token_urlsafe(SECRET))


def _save(
    connection: Any,
    rows: Sequence[SetRow],
    states: Sequence[tuple[UUID, str, str, MachineState]],
    texts: Mapping[str, Mapping[int, bytes]],
) -> None:
    stored.put(connection, rows)
    for set_id, of_recipes in texts.items():
        for recipe, text in of_recipes.items():
            stored.put_text(connection, set_id, recipe, text)
    for cluster_id, lab, machine, state in states:
        stored.put_state(connection, cluster_id, lab, machine, msgspec.to_builtins(state))


def _is_of(found: RecipeSet, key: str) -> bool:
    return found.lab == key if found.lab else found.labs == (key,)


def key_of(uid: int, cluster: str, lab: str) -> str:
    return f"{uid}:{cluster}/{lab}"


def request_of(set_id: str) -> int:
    """The number of the request that a set is of."""
    return int(set_id.partition(".")[0])
