"""The scheduler of labs: recipe sets wait, get all of their machines at once, and give them back.

A pure machine with a clock from outside: each call takes an event and returns effects for its
caller to carry out. A set starts as a whole, so two sets never hold half of each other's machines.
The sets that are first in the order have their machines kept for them, so no set waits for ever
while leases end. Limits hold at every moment: what is being removed still counts.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, MutableSequence, MutableSet, Sequence
from dataclasses import dataclass, replace

from nospoon.lab.assign import NOTHING, Free, Grant, assign
from nospoon.lab.consoles import MOST_PANICS
from nospoon.lab.held import Held, fits_ever, wanted
from nospoon.lab.longest import Entry, Longest
from nospoon.lab.queues import Queue, Queues
from nospoon.lab.retry import after_failure, avoided_in, in_turn, is_open, queued_again
from nospoon.lab.shortage import Need, Shortages
from nospoon.lab.work import (
    OVER,
    UNLEASED,
    Again,
    Cause,
    Options,
    RecipeSet,
    Report,
    Run,
    SetState,
    Size,
    Stage,
)
from nospoon.model.lab import GIB, Inventory, Lab

LOOKAHEAD = 64
"""Sets of a lab that cannot start, behind which others are looked at: what they need is kept for
them.
"""
_GONE = Lab("gone")
"""In place of a lab whose file is gone: only removals are left of its sets."""
_NOT_STARTED = {
    Again.CAPACITY: Cause.NO_CAPACITY,
    Again.NEVER: Cause.PLAN_REFUSED,
    Again.LATER: Cause.PROVISION_FAILED,
}
_TIMEOUTS = {Stage.BOOTING: Cause.BOOT_TIMEOUT, Stage.INSTALLING: Cause.INSTALL_TIMEOUT}
MOST_DEADLINES = 10_000
"""After which those that are not any more are forgotten."""
MOST_SHORT = 1000
"""The same, of sets that wait for capacity of a lab's host or cloud."""
WAITING = ""
"""In place of a set's id: a deadline of those that wait for capacity."""
MOST_EARLY = 5
"""Reports of a machine that wait until its set has started."""
LOOPS = 3
"""Times that a machine may fetch what installs it: one that asks again did not boot its disk."""


@dataclass(frozen=True, slots=True)
class Build:
    """Make and start the machines of a set; then call `started` or `not_started`."""

    set_id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove its dynamic machines and stop its registered ones; then call `removed`."""

    set_id: str


@dataclass(frozen=True, slots=True)
class Happened:
    """For those who follow a set. `recipe`: its number, -1 for the set as a whole. `cause`: of a
    failure, None for what is none.
    """

    set_id: str
    recipe: int
    event: str
    message: str = ""
    cause: Cause | None = None


Effect = Build | Remove | Happened


@dataclass(frozen=True, slots=True)
class MachineState:
    """Of a registered machine. `failures`: in a row. `broken`: why it is loaned to no one, "" for a
    machine that is. `reserved`: the person who has it without a recipe. `found`: its inventory.
    """

    failures: int = 0
    broken: str = ""
    reserved: str = ""
    found: Inventory | None = None

    @property
    def free(self) -> bool:
        return not self.broken and not self.reserved


class Scheduler:
    """All labs and all sets that have not ended. `changed`: ids of sets, and (lab, machine), whose
    state must be stored before an effect is carried out. `at_once`: what may start a set decides
    at once; else it sets `undecided`, and its caller goes through `deciding`.
    """

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once, self.undecided = at_once, False
        self.labs: dict[str, Lab] = {}
        self.sets: dict[str, RecipeSet] = {}
        self.machines: dict[tuple[str, str], MachineState] = {}
        self.drained: set[str] = set()
        self.changed: set[str] = set()
        self.changed_machines: set[tuple[str, str]] = set()
        self.probed: set[tuple[str, str]] = set()
        """Machines, by (lab, machine), whose inventory is taken now."""
        self.shortages = Shortages()
        self._queues = Queues()
        self._longest = Longest()
        self._free: dict[str, Free] = {}
        self._busy: dict[str, dict[str, str]] = {}
        self._idle_in: dict[str, frozenset[str]] = {}
        self._reserved: dict[str, Counter[str]] = {}
        self._holding: dict[str, set[str]] = {}
        self._owned: dict[str, Counter[str]] = {}
        self._why: dict[str, str] = {}
        self._fitting: dict[tuple[str, str], bool] = {}
        """(set, lab) -> whether it starts there once all leases are over, of those that could not
        when they were looked at. Files change labs, and people reserve and repair machines.
        """
        self._deadlines: list[tuple[float, str]] = []
        self._most_deadlines = MOST_DEADLINES

    # what there is

    def put_lab(self, key: str, lab: Lab) -> None:
        """A new lab, or one whose file changed: what is leased stays."""
        self.labs[key] = lab
        self.shortages.forget_lab(key)
        self._fitting.clear()
        self._idle_in.pop(key, None)
        self._reserved.pop(key, None)
        self._busy.setdefault(key, {})
        self._owned.setdefault(key, Counter())
        self._free[key] = Free.of(lab.limits)
        for each in self.holding(key):
            for run in each.runs:
                if run.size is not None:
                    self._free[key] = self._free[key].without(run.size)

    def drop_lab(self, key: str) -> None:
        """Its file is gone: `orphaned` finds the sets that it leaves."""
        self.labs.pop(key, None)
        self.shortages.forget_lab(key)
        self._idle_in.pop(key, None)
        self._reserved.pop(key, None)

    def orphaned(self) -> list[str]:
        """Ids of sets whose lab is gone, or all labs that they could have machines in."""
        return [
            each.id
            for each in self.sets.values()
            if each.state in (SetState.QUEUED, SetState.STARTING, SetState.RUNNING)
            and not any(key in self.labs for key in ((each.lab,) if each.lab else each.labs))
        ]

    def restore(self, sets: Iterable[RecipeSet]) -> list[Effect]:
        """What was stored when a daemon ended: what was begun is carried out again."""
        effects: list[Effect] = []
        for each in sorted(sets, key=lambda each: each.number):
            self.sets[each.id] = each
            if each.state is SetState.QUEUED:
                self._enqueue(each)
            else:
                self._take(each)
                self._remember_deadlines(each)
            if each.state is SetState.STARTING:
                self._try(each)
                effects.append(Build(each.id))
            elif each.state is SetState.ENDING:
                effects.append(Remove(each.id))
        return effects

    @property
    def deadline(self) -> float | None:
        """When `expire` has something to do, at the earliest; Unix seconds."""
        return self._deadlines[0][0] if self._deadlines else None

    def queued(self) -> list[RecipeSet]:
        """In the order in which they would start, if all fitted."""
        return [self.sets[set_id] for set_id in self.in_order() if set_id]

    def queued_in(self, key: str) -> int:
        """How many sets wait that a lab may serve."""
        return self._queues.amounts[key]

    def holding(self, key: str) -> list[RecipeSet]:
        """Sets that have machines of a lab."""
        return [self.sets[each] for each in self._holding.get(key, ()) if each in self.sets]

    def reason(self, set_id: str) -> str:
        """Why a set waits."""
        found = self.sets[set_id]
        if found.state is not SetState.QUEUED:
            return ""
        why = self._why.get(set_id, "others are before it")
        return self._short(why) if why in self.labs else why

    def holder(self, lab: str, machine: str) -> str:
        """Id of the set that has a registered machine, "" for none."""
        return self._busy.get(lab, {}).get(machine, "")

    def free(self, lab: str) -> Free:
        return self._free[lab]

    def has(self, key: str, owner: str) -> int:
        """Machines of a lab that an owner has, those that are reserved included."""
        if key not in self._reserved:
            machines = self.labs.get(key, _GONE).machines
            self._reserved[key] = Counter(self.state_of(key, m.name).reserved for m in machines)
        return self._owned[key][owner] + self._reserved[key][owner]

    # what happens

    def submit(self, new: RecipeSet, now: float) -> list[Effect]:
        """It waits from now on; `new.runs` have their options by lab."""
        self._save(replace(new, submitted=now, state=SetState.QUEUED))
        self._enqueue(self.sets[new.id])
        return [Happened(new.id, -1, "queued"), *self._decide(now)]

    def decide(self, now: float) -> list[Effect]:
        """Start the sets for which there are machines."""
        effects: list[Effect] = []
        for _ in self.deciding(now, effects):
            pass
        return effects

    def deciding(self, now: float, effects: MutableSequence[Effect]) -> Iterator[None]:
        """The same, which may be left at each step. Meanwhile nothing else may be called that
        changes a set.
        """
        self.undecided = False
        held = Held(dict(self._free), {key: self._idle(key) for key in self.labs})
        passed, short, left = Counter[str](), Counter[str](), set(self._queues.amounts)
        for set_id in self.in_order(held.first):
            if not set_id:
                yield
                continue
            found = self.sets[set_id]
            if held.exhausted or not left:
                if not passed:  # it is the first that waits
                    known = (key for key in found.labs if key in self.labs)
                    self._why[found.id] = next(known, found.why)
                break
            labs = [key for key in found.labs if key in left]
            place = None
            if not labs:  # of another lab: what waits there holds up no other one
                yield
                continue
            held.short.clear()
            if tried := [key for key in labs if is_open(found, key, now)]:
                place = self._place(found, tried, held, now)
            else:
                self._why[found.id] = found.why
            if place is None:
                short.update(held.short)
                fits = (key for key in labs if self._fitting.get((set_id, key), True))
                passed.update(key for key in fits if key not in held.short)
                left -= {
                    key for key in labs if passed[key] >= LOOKAHEAD or short[key] >= MOST_SHORT
                }
            else:
                self._dequeue(found)
                effects.extend(self._start(found, *place, now, held))
            yield

    def _decide(self, now: float) -> list[Effect]:
        if self.at_once:
            return self.decide(now)
        self.undecided = True
        return []

    def started(self, set_id: str, now: float) -> list[Effect]:
        """All machines of a set were made and started."""
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.STARTING:
            return []
        lab = self._lab_of(found)
        runs = tuple(self._booting(run, lab, now) for run in found.runs)
        if _has_dynamic(found):
            self.shortages.started(found.lab, set_id)
        self._longest.started(found.lab, set_id)
        for run in runs:
            if run.machine and run.stage is Stage.READY:  # nothing installs it
                self._set_machine(found.lab, run.machine, failures=0)
        self._save(replace(found, state=SetState.RUNNING, runs=runs, why=""))
        self._remember_deadlines(self.sets[set_id])
        effects: list[Effect] = [
            Happened(set_id, -1, "started"),
            *(Happened(set_id, n, str(run.stage)) for n, run in enumerate(runs)),
        ]
        for number, run in enumerate(found.runs):
            for report in run.early:
                effects += self.reported(set_id, number, report, now)
        if found.lab in self.shortages.short():  # there may be capacity for more of them
            effects += self._decide(now)
        return effects

    def reported(self, set_id: str, recipe: int, report: Report, now: float) -> list[Effect]:
        """A machine reports of its installation. One that starts from an image may be faster than
        the others of its set: what it reports then counts when all of them were started.
        """
        found = self.sets.get(set_id)
        if found is not None and found.state is SetState.STARTING and recipe < len(found.runs):
            run = found.runs[recipe]
            if not run.over and len(run.early) < MOST_EARLY:
                run = replace(run, early=(*run.early, report))
                self._save(found.with_run(recipe, run))
            return []
        match report.event:
            case "started":
                return self.install_started(set_id, recipe, now)
            case "done":
                return self.installed(set_id, recipe, now)
            case "failed":
                return self.install_failed(set_id, recipe, report.why, now)

    def not_started(
        self,
        set_id: str,
        why: str,
        now: float,
        *,
        again: Again,
        cause: Cause | None = None,
        machines: Sequence[str] = (),
    ) -> list[Effect]:
        """Its machines could not be made. `cause`: where `again` does not say it; `machines`:
        registered ones whose BMCs failed.
        """
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.STARTING:
            return []
        need = Need.of(run.size for run in found.runs if not run.over)
        if again is Again.CAPACITY and not need.machines:
            again = Again.LATER  # no machine that is given back makes room for registered ones
        if again is Again.CAPACITY:
            until, alone = self.shortages.found_none(found.lab, set_id, need, why, now)
            if alone:  # others than the lab's sets have what it lacks
                self._longest.forget(set_id)
            heapq.heappush(self._deadlines, (until, WAITING))
        for each in machines:
            self._count_failure(found.lab, each, why)
        found = after_failure(found, why, now, again=again, known=self.labs, machines=machines)
        event = Happened(set_id, -1, "not started", why, cause or _NOT_STARTED[again])
        return [event, *self._end(found, "failed")]

    def install_started(self, set_id: str, recipe: int, now: float) -> list[Effect]:
        """The installer reported: a machine that does so again and again boots no disk."""
        found, run = self._run(set_id, recipe)
        if found is None or run is None or run.stage not in (Stage.BOOTING, Stage.INSTALLING):
            return []
        lab = self._lab_of(found)
        fetched = run.fetched + 1
        if fetched > LOOPS:
            why = f"the installer started {fetched} times: it does not boot from its disk"
            return self._fail(found, recipe, why, now, Cause.INSTALL_LOOP)
        run = replace(run, fetched=fetched)
        if run.stage is Stage.BOOTING:
            expires = now + lab.timeouts.install
            run = replace(run, stage=Stage.INSTALLING, since=now, expires=expires)
        self._save(found.with_run(recipe, run))
        self._remember_deadlines(self.sets[set_id])
        return [Happened(set_id, recipe, "installing")] if fetched == 1 else []

    def installed(self, set_id: str, recipe: int, now: float) -> list[Effect]:
        """The installer is done: from now on the lease counts."""
        found, run = self._run(set_id, recipe)
        if found is None or run is None or run.stage not in (Stage.BOOTING, Stage.INSTALLING):
            return []
        run = self._ready(run, self._lab_of(found), now)
        if run.machine:
            self._set_machine(found.lab, run.machine, failures=0)
        self._save(found.with_run(recipe, run))
        self._remember_deadlines(self.sets[set_id])
        return [Happened(set_id, recipe, "ready")]

    def install_failed(self, set_id: str, recipe: int, why: str, now: float) -> list[Effect]:
        found, run = self._run(set_id, recipe)
        if found is None or run is None or run.stage not in (Stage.BOOTING, Stage.INSTALLING):
            return []
        return self._fail(found, recipe, why, now, Cause.INSTALL_FAILED)

    def panicked(
        self, set_id: str, recipe: int, line: str, now: float, *, number: int = 1, end: int = 0
    ) -> list[Effect]:
        """The console shows the recipe's panic of this number, before offset `end`: one event for
        each, of `MOST_PANICS`. The first one shortens the lease.
        """
        found, run = self._run(set_id, recipe)
        if found is None or run is None or run.over:
            return []
        before = max(run.panics, bool(run.panic))  # earlier versions kept only the first
        if not before < number <= MOST_PANICS:
            return []
        run = replace(run, panic=run.panic or line, panics=number, panic_end=end)
        if not before and not run.asked.panic_ignored:
            left = 0.0 if run.asked.ends_on_panic else self._lab_of(found).timeouts.panic
            run = replace(run, expires=min(run.expires or now + left, now + left))
        self._save(found.with_run(recipe, run))
        self._remember_deadlines(self.sets[set_id])
        event = Happened(set_id, recipe, "panic", line, Cause.KERNEL_PANIC)
        return [event, *self.expire(now)]

    def extend(
        self, set_id: str, seconds: float, now: float, *, add: bool, recipe: int | None = None
    ) -> list[Effect]:
        """Leases end so many seconds from now, or later by them (`add`); 0 ends them now. A lease
        that did not begin will be so long.
        """
        found = self.sets.get(set_id)
        if found is None or found.over:
            return []
        for number, run in enumerate(found.runs):
            if (recipe is not None and number != recipe) or run.over:
                continue
            if run.stage not in UNLEASED:
                changed = replace(run, expires=(run.expires if add else now) + seconds)
            elif seconds or add:
                length = seconds + (self.seconds_of(found, run) if add else 0)
                changed = replace(run, asked=replace(run.asked, seconds=length))
            else:
                changed = replace(run, stage=Stage.EXPIRED, since=now)
            found = found.with_run(number, changed)
        self._save(found)
        self._remember_deadlines(found)
        effects: list[Effect] = [Happened(set_id, -1 if recipe is None else recipe, "extended")]
        if found.state is not SetState.RUNNING:
            effects += self._end_if_over(set_id, "expired", now)
        return [*effects, *self.expire(now)]

    def seconds_of(self, found: RecipeSet, run: Run) -> float:
        """Of a lease that did not begin: what was asked for, or what the lab has; of several that
        may serve it, the first.
        """
        labs = (self.labs[key] for key in (found.lab, *found.labs) if key in self.labs)
        return run.asked.seconds or next(labs, _GONE).lease

    def release(self, set_id: str, recipe: int | None, now: float) -> list[Effect]:
        """A lease, or all of a set, is over; the set ends with the last of them."""
        found = self.sets.get(set_id)
        if found is None or found.over:
            return []
        effects: list[Effect] = []
        for number, run in enumerate(found.runs):
            if recipe in (None, number) and not run.over:
                found = found.with_run(number, replace(run, stage=Stage.RELEASED, since=now))
                effects.append(Happened(set_id, number, "released"))
        self._save(found)
        return [*effects, *self._end_if_over(set_id, "completed", now)]

    def cancel(self, set_id: str, why: str, now: float) -> list[Effect]:
        """At any moment: what it has is removed."""
        found = self.sets.get(set_id)
        if found is None or found.state is SetState.ENDED:
            return []
        if found.state is SetState.ENDING:
            if found.requeue:
                self._waits_no_more(set_id)
                found = replace(found, requeue=False, result="cancelled", why=why)
                self._save(_all_over(found, Stage.CANCELLED, now))
            return []
        found = replace(_all_over(found, Stage.CANCELLED, now), why=why)
        if found.state is SetState.QUEUED:
            self._dequeue(found)
            self._waits_no_more(set_id)
            self._save(replace(found, state=SetState.ENDED, result="cancelled", ended=now))
            self._why.pop(set_id, None)
            return [Happened(set_id, -1, "cancelled", why), *self._decide(now)]
        return [Happened(set_id, -1, "cancelled", why), *self._end(found, "cancelled")]

    def removed(self, set_id: str, now: float) -> list[Effect]:
        """Nothing of a set is left: its machines are for others."""
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.ENDING:
            return []
        self._give_back(found)
        if _has_dynamic(found):
            self.shortages.given_back(found.lab, set_id, self._beside(found.lab))
        if found.requeue:
            found = queued_again(found, now)
            self._save(found)
            self._enqueue(found)
            if found.not_before > now:
                heapq.heappush(self._deadlines, (found.not_before, set_id))
            return [Happened(set_id, -1, "queued", found.why), *self._decide(now)]
        self._waits_no_more(set_id)
        self._save(replace(found, state=SetState.ENDED, ended=now))
        return [Happened(set_id, -1, "ended", found.result), *self._decide(now)]

    def expire(self, now: float) -> list[Effect]:
        """Leases that are over; the sets whose leases all are, end."""
        effects: list[Effect] = []
        decide = False
        while self._deadlines and self._deadlines[0][0] <= now:
            _, set_id = heapq.heappop(self._deadlines)
            decide = decide or set_id == WAITING
            found = self.sets.get(set_id)
            if found is None:
                continue
            if found.state is SetState.QUEUED:
                decide = True  # it may be started again now
            elif found.state is SetState.RUNNING:
                effects += self._expire(found, now)
        return [*effects, *(self._decide(now) if decide else [])]

    # registered machines

    def reserve(self, lab: str, machine: str, owner: str) -> None:
        """Loaned to a person, without a recipe; "" gives it back."""
        self._set_machine(lab, machine, reserved=owner)

    def set_broken(self, lab: str, machine: str, why: str) -> None:
        """Not loaned any more; "": repaired."""
        self._set_machine(lab, machine, broken=why, failures=0)

    def probe(self, lab: str, machine: str) -> None:
        """No set gets it until `leave`."""
        self.probed.add((lab, machine))
        self._idle_in.pop(lab, None)

    def leave(self, lab: str, machine: str, found: Inventory | None) -> None:
        """Its inventory has been taken; None: in vain, and what was known stays."""
        self.probed.discard((lab, machine))
        self._idle_in.pop(lab, None)
        if found is not None:
            self._set_machine(lab, machine, found=found)

    def state_of(self, lab: str, machine: str) -> MachineState:
        return self.machines.get((lab, machine), MachineState())

    # inside

    def in_order(self, first: MutableSet[str] | None = None) -> Iterator[str]:
        """Ids of those that wait when it begins: priorities first; among equals, those that waited
        for longest while others were served, which are added to `first`; then owners with fewer
        machines in the labs that they wait for, as any user may act for any owner in a lab of his;
        then who came first. "" is for a pause.
        """
        longest = dict[str, Entry]()
        for entry in self._longest.first(self._could_start):
            if entry is not None:
                longest[entry[2]] = entry
            yield ""
        if first is not None:
            first |= longest.keys()
        yield from self._queues.in_order(self._used, longest.values())

    def place(self, found: RecipeSet) -> Iterator[int]:
        """At last, the place of a set that waits among those that wait for the same lab; of several
        labs, the best. 0 is for a pause.
        """
        longest = set[str]()
        for entry in self._longest.first(self._could_start):
            if entry is not None:
                longest.add(entry[2])
            yield 0
        first = [self.sets[each] for each in longest if each in self.sets]
        yield from self._queues.place(found, self._used, first)

    def _used(self, queue: Queue) -> int:
        owner, labs = queue
        return sum(self._owned[key][owner] for key in labs if key in self._owned)

    def _place(
        self, found: RecipeSet, labs: Sequence[str], held: Held, now: float
    ) -> tuple[str, list[Grant]] | None:
        """One of these labs and the grants there; what cannot be placed has its need kept in
        `held`, where it waits for a limit or has claimed the lab, else its part of its owner's
        quota.
        """
        why, waits = "no lab has such machines now", list[tuple[str, list[Options]]]()
        over: list[tuple[str, int]] = []
        for key in in_turn(found, labs, self.shortages.is_short):
            options = self._wanted(found, key, now)
            if isinstance(options, str):
                why = options
                continue
            lab = self.labs[key]
            if exceeded := self._over_quota(found.owner, key, len(options), held):
                why = exceeded
                if self._could_start(found.id, key):
                    over.append((key, len(options)))
                continue
            if key not in held.free:  # a file brought it while others were looked at
                continue
            grants = self._assigned(found, key, options, held, now)
            if grants is not None:
                return key, grants
            if key in held.short:
                why = f"lab {lab.name} has no capacity now: {self.shortages.why(key, found.id)}"
            elif self._fits(found, key, options):
                why = key  # what is given away is listed for those who ask
                waits.append((key, options))
            elif not waits:
                why = self._why_never(lab, options)
        self._why[found.id] = why
        most = len(labs) if found.id in held.first else 1
        for key, options in waits[:most]:
            held.keep(key, options)
        for key, machines in over[: most if not waits or most > 1 else 0]:
            held.quotas[key, found.owner] += machines
        return None

    def _wanted(self, found: RecipeSet, key: str, now: float) -> list[Options] | str:
        """What a set may have in a lab now, or why it gets nothing there: no machines that it
        avoids, where it could start without them once all leases are over.
        """
        lab = self.labs.get(key)
        if lab is None or key in self.drained:
            return f"lab {lab.name} is drained" if lab is not None else "its lab is gone"
        options = wanted(found, key, lab)
        if not (avoided := frozenset(avoided_in(found, key))):
            return options
        others = [
            replace(each, machines=tuple(m for m in each.machines if m not in avoided))
            for each in options
        ]
        if fits_ever(lab, others, self._loanable(key)):
            return others
        return options if now >= found.not_before else found.why

    def _over_quota(self, owner: str, key: str, machines: int, held: Held) -> str:
        """Why an owner gets no so many more machines of a lab now, "" where that is allowed."""
        lab, has, kept = self.labs[key], self.has(key, owner), held.quotas[key, owner]
        per_owner = lab.limits.per_owner
        if not per_owner or has + kept + machines <= per_owner:
            return ""
        why = f"{owner} has {has} of {per_owner} machines of lab {lab.name}"
        return f"{why}, and sets before this one wait for {kept}" if kept else why

    def _could_start(self, set_id: str, key: str) -> bool:
        """Whether a set starts in a lab once all leases there are over. What is reserved for a
        person stays so, and what is broken has to be repaired.
        """
        found, lab = self.sets.get(set_id), self.labs.get(key)
        if found is None or lab is None or key in self.drained:
            return False
        options, most = wanted(found, key, lab), lab.limits.per_owner
        reserved = self.has(key, found.owner) - self._owned[key][found.owner]
        within = not most or reserved + len(options) <= most
        return within and self._fits(found, key, options)

    def _fits(self, found: RecipeSet, key: str, options: list[Options]) -> bool:
        """The same but for quotas."""
        if (found.id, key) not in self._fitting:
            fits = fits_ever(self.labs[key], options, self._loanable(key))
            self._fitting[found.id, key] = fits
        return self._fitting[found.id, key]

    def _loanable(self, key: str) -> frozenset[str]:
        """Registered machines that sets get, once those that have them give them back."""
        machines = self.labs[key].machines
        return frozenset(m.name for m in machines if self.state_of(key, m.name).free)

    def _why_never(self, lab: Lab, options: list[Options]) -> str:
        """Why a set does not start in a lab when all leases there are over."""
        if fits_ever(lab, options):
            return f"machines of lab {lab.name} that it needs are reserved or broken"
        return f"lab {lab.name} can never have all of its machines at once: its file changed"

    def _assigned(
        self, found: RecipeSet, key: str, options: list[Options], held: Held, now: float
    ) -> list[Grant] | None:
        """What a set gets in a lab: where that has no capacity for dynamic machines, registered
        ones alone, or nothing. One that claims the lab has all of it kept.
        """
        lab, idle = self.labs[key], held.machines[key]
        attempt = max(0, found.failed_in.count(key) - sum(1 for _ in avoided_in(found, key)))
        grants = assign(options, held.free[key], idle, prefer=lab.prefer, attempt=attempt)
        if key not in self.shortages.short():
            return grants
        need = Need.of(grants or ())
        closed = key in held.closed and need.machines
        if not closed and self.shortages.may_try(key, need, now):
            return grants
        held.short.add(key)
        grants = assign(options, NOTHING, idle, prefer=lab.prefer)
        if found.id in held.first and self._fits(found, key, options):
            self.shortages.claim(key, found.id)
        if grants is None and self.shortages.claims(key, found.id):
            held.closed.add(key)
            held.keep(key, options)
        return grants

    def _short(self, key: str) -> str:
        """What a lab has given away."""
        lab, free = self.labs[key], self._free[key]
        limits = lab.limits
        parts = []
        if limits.machines:
            parts.append(f"{limits.machines - free.machines} of {limits.machines} machines")
        if limits.cpus:
            parts.append(f"{limits.cpus - free.cpus} of {limits.cpus} CPUs")
        if limits.memory:
            used = limits.memory - free.memory
            parts.append(f"{used / GIB:g} of {limits.memory / GIB:g} GiB")
        if lab.machines:
            loaned = len(lab.machines) - len(self._idle(key))
            parts.append(f"{loaned} of {len(lab.machines)} registered machines")
        return f"lab {lab.name} has given away {', '.join(parts) or 'its machines'}"

    def _start(
        self, found: RecipeSet, key: str, grants: list[Grant], now: float, held: Held
    ) -> list[Effect]:
        runs, left = list[Run](), iter(grants)
        for number, run in enumerate(found.runs):
            if run.over:
                runs.append(run)
                continue
            grant = next(left)
            size = grant if isinstance(grant, Size) else None
            machine = grant if isinstance(grant, str) else ""
            node = f"recipe-{number}" if size is not None else ""
            runs.append(
                replace(
                    run, asked=run.asked_in(key), stage=Stage.BUILDING, size=size, machine=machine,
                    node=node, since=now, fetched=0, early=(), why="",
                )
            )  # fmt: skip
            held.take(key, grant)
        found = replace(
            found, state=SetState.STARTING, lab=key, runs=tuple(runs), started=now,
            attempts=found.attempts + 1, why="",
        )  # fmt: skip
        self._save(found)
        self._take(found)
        self._try(found)
        self._why.pop(found.id, None)
        return [Happened(found.id, -1, "starting"), Build(found.id)]

    def _try(self, found: RecipeSet) -> None:
        """Its machines are being made."""
        if _has_dynamic(found):
            others = (each for each in self.holding(found.lab) if each.id != found.id)
            alone = not any(map(_has_dynamic, others))
            self.shortages.begin(found.lab, found.id, alone=alone)

    def _beside(self, key: str) -> list[str]:
        """Labs without capacity that may have some when this one gives machines back: itself, and
        those of its file on the same host.
        """
        cluster, _, _ = key.rpartition("/")
        return [
            other
            for other in self.shortages.short()
            if other == key
            or (
                other.rpartition("/")[0] == cluster
                and self.labs.get(other, _GONE).host == self.labs.get(key, _GONE).host
            )
        ]

    def _lab_of(self, found: RecipeSet) -> Lab:
        return self.labs.get(found.lab, _GONE)

    def _booting(self, run: Run, lab: Lab, now: float) -> Run:
        run = replace(run, early=())
        if run.over:
            return run
        if not run.asked.distro and not run.asked.kickstart:
            return self._ready(run, lab, now)
        return replace(run, stage=Stage.BOOTING, since=now, expires=now + lab.timeouts.boot)

    def _ready(self, run: Run, lab: Lab, now: float) -> Run:
        seconds = run.asked.seconds or lab.lease
        return replace(run, stage=Stage.READY, since=now, expires=now + seconds)

    def _expire(self, found: RecipeSet, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for number, run in enumerate(found.runs):
            if run.over or not run.expires or run.expires > now:
                continue
            cause = _TIMEOUTS.get(run.stage)
            early = cause is not None
            why = f"the watchdog ended it: {run.stage} for {now - run.since:.0f} s" if early else ""
            if run.panic and not run.asked.panic_ignored:
                why = f"kernel panic: {run.panic}"
            if run.machine and early:
                self._count_failure(found.lab, run.machine, why)
            run = replace(run, stage=Stage.EXPIRED, since=now, why=why)  # noqa: PLW2901
            found = found.with_run(number, run)
            if run.panic and not run.asked.panic_ignored:
                cause = None  # the panic was counted
            effects.append(Happened(found.id, number, "expired", why, cause))
        self._save(found)
        return [*effects, *self._end_if_over(found.id, "expired", now)]

    def _fail(
        self, found: RecipeSet, recipe: int, why: str, now: float, cause: Cause
    ) -> list[Effect]:
        run = replace(found.runs[recipe], stage=Stage.FAILED, why=why, since=now)
        if run.machine:
            self._count_failure(found.lab, run.machine, why)
        self._save(found.with_run(recipe, run))
        event = Happened(found.id, recipe, "failed", why, cause)
        return [event, *self._end_if_over(found.id, "failed", now)]

    def _end_if_over(self, set_id: str, result: str, now: float) -> list[Effect]:
        found = self.sets[set_id]
        if not all(run.over for run in found.runs):
            return []
        if found.state is SetState.QUEUED:
            self._dequeue(found)
            self._waits_no_more(set_id)
            self._save(replace(found, state=SetState.ENDED, result=result, ended=now))
            self._why.pop(set_id, None)
            return [Happened(set_id, -1, "ended", result), *self._decide(now)]
        if found.state is SetState.ENDING:  # it would have been started again
            self._waits_no_more(set_id)
            self._save(replace(found, requeue=False, result=result, why=""))
            return []
        worst = "failed" if any(run.stage is Stage.FAILED for run in found.runs) else result
        return self._end(found, worst)

    def _end(self, found: RecipeSet, result: str) -> list[Effect]:
        self.shortages.over(found.lab, found.id)
        self._save(replace(found, state=SetState.ENDING, result=result))
        return [Remove(found.id)]

    def forget_ended(self, among: Iterable[str] | None = None) -> None:
        """Sets that ended, once they are stored."""
        for set_id in list(self.sets if among is None else among):
            if set_id in self.sets and self.sets[set_id].state is SetState.ENDED:
                del self.sets[set_id]

    def _waits_no_more(self, set_id: str) -> None:
        self.shortages.forget(set_id)
        self._longest.forget(set_id)

    def _run(self, set_id: str, recipe: int) -> tuple[RecipeSet | None, Run | None]:
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.RUNNING or recipe >= len(found.runs):
            return None, None
        return found, found.runs[recipe]

    def _save(self, found: RecipeSet) -> None:
        self.sets[found.id] = found
        self.changed.add(found.id)

    def _enqueue(self, found: RecipeSet) -> None:
        self._queues.add(found)
        self._longest.add(found)

    def _dequeue(self, found: RecipeSet) -> None:
        self._queues.remove(found)
        self._longest.remove(found)
        for key in found.labs:
            self._fitting.pop((found.id, key), None)

    def _take(self, found: RecipeSet) -> None:
        self._holding.setdefault(found.lab, set()).add(found.id)
        self._idle_in.pop(found.lab, None)
        for run in found.runs:
            if run.size is not None and found.lab in self._free:
                self._free[found.lab] = self._free[found.lab].without(run.size)
            if run.machine:
                self._busy.setdefault(found.lab, {})[run.machine] = found.id
        self._owned.setdefault(found.lab, Counter())[found.owner] += _granted(found)

    def _give_back(self, found: RecipeSet) -> None:
        self._holding[found.lab].discard(found.id)
        self._idle_in.pop(found.lab, None)
        for run in found.runs:
            if run.size is not None and found.lab in self._free:
                self._free[found.lab] = self._free[found.lab].plus(run.size)
            if run.machine:
                self._busy.get(found.lab, {}).pop(run.machine, None)
        self._owned[found.lab][found.owner] -= _granted(found)
        self._owned[found.lab] += Counter()  # owners without any are not kept

    def _idle(self, key: str) -> frozenset[str]:
        """Registered machines that may be loaned now."""
        if key not in self._idle_in:
            busy = self._busy[key]
            self._idle_in[key] = frozenset(
                each.name
                for each in self.labs[key].machines
                if each.name not in busy
                and (key, each.name) not in self.probed
                and self.state_of(key, each.name).free
            )
        return self._idle_in[key]

    def _set_machine(self, lab: str, machine: str, **what: object) -> None:
        before = self.state_of(lab, machine)
        after = replace(before, **what)  # type: ignore[arg-type]  # fields by name
        if after != before:
            self.machines[lab, machine] = after
            if before.free != after.free:
                self._fitting.clear()
            self._idle_in.pop(lab, None)
            self._reserved.pop(lab, None)
            self.changed_machines.add((lab, machine))

    def _count_failure(self, lab: str, machine: str, why: str) -> None:
        failures = self.state_of(lab, machine).failures + 1
        limit = self.labs[lab].failures if lab in self.labs else failures + 1
        broken = f"{failures} failures in a row; the last: {why}" if failures >= limit else ""
        self._set_machine(lab, machine, failures=failures, broken=broken)

    def _remember_deadlines(self, found: RecipeSet) -> None:
        for run in found.runs:
            if not run.over and run.expires:
                heapq.heappush(self._deadlines, (run.expires, found.id))
        if len(self._deadlines) > self._most_deadlines:
            self._forget_deadlines()

    def _forget_deadlines(self) -> None:
        """Those that are not any more: a client may extend a lease for ever."""
        self._deadlines = [each for each in self._deadlines if each[1] == WAITING]
        self._deadlines += [(each.not_before, each.id) for each in self.sets.values()
                           if each.state is SetState.QUEUED and each.not_before]  # fmt: skip
        self._deadlines += [
            (run.expires, each.id)
            for each in self.sets.values()
            for run in each.runs
            if run.expires and not run.over
        ]
        heapq.heapify(self._deadlines)
        self._most_deadlines = max(MOST_DEADLINES, 2 * len(self._deadlines))


def _has_dynamic(found: RecipeSet) -> bool:
    return any(run.size is not None for run in found.runs)


def _granted(found: RecipeSet) -> int:
    """Machines that it has."""
    return sum(run.size is not None or bool(run.machine) for run in found.runs)


def _all_over(found: RecipeSet, stage: Stage, now: float) -> RecipeSet:
    runs = tuple(
        run if run.stage in OVER else replace(run, stage=stage, since=now) for run in found.runs
    )
    return replace(found, runs=runs)
