"""The scheduler of labs: recipe sets wait, get all of their machines at once, and give them back.

A pure machine with a clock from outside: each call takes an event and returns effects for its
caller to carry out. A set starts as a whole, so two sets never hold half of each other's machines.
The sets that are first in the order have their machines kept for them, so no set waits for ever
while leases end. Limits hold at every moment: what is being removed still counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nospoon.lab.consoles import MOST_PANICS
from nospoon.lab.effects import Build, Effect, Happened, Remove
from nospoon.lab.holdings import GONE, WAITING
from nospoon.lab.placing import Placing, has_dynamic
from nospoon.lab.retry import after_failure, queued_again
from nospoon.lab.shortage import Need
from nospoon.lab.times import utc
from nospoon.lab.work import (
    OVER,
    UNLEASED,
    Again,
    Cause,
    RecipeSet,
    Report,
    Run,
    SetState,
    Stage,
)
from nospoon.model.lab import Lab

_NOT_STARTED = {
    Again.CAPACITY: Cause.NO_CAPACITY,
    Again.NEVER: Cause.PLAN_REFUSED,
    Again.LATER: Cause.PROVISION_FAILED,
}
_TIMEOUTS = {Stage.BOOTING: Cause.BOOT_TIMEOUT, Stage.INSTALLING: Cause.INSTALL_TIMEOUT}
MOST_EARLY = 5
"""Reports of a machine that wait until its set has started."""
MOST_ENDS = 3
"""Different ends of a set's leases that the event of an extension names."""
LOOPS = 3
"""Times that a machine may fetch what installs it: one that asks again did not boot its disk."""


class Scheduler(Placing):
    """What happens to sets, until nothing of them is left."""

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

    def submit(self, new: RecipeSet, now: float) -> list[Effect]:
        """It waits from now on; `new.runs` have their options by lab."""
        self._save(replace(new, submitted=now, state=SetState.QUEUED))
        self._enqueue(self.sets[new.id])
        noted = (
            Happened(new.id, number, "note", why)
            for number, run in enumerate(new.runs)
            for why in run.asked.notes
        )
        return [Happened(new.id, -1, "queued"), *noted, *self._decide(now)]

    def started(self, set_id: str, now: float) -> list[Effect]:
        """All machines of a set were made and started."""
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.STARTING:
            return []
        lab = self._lab_of(found)
        runs = tuple(self._booting(run, lab, now) for run in found.runs)
        if has_dynamic(found):
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
        ends = dict[str, None]()
        for number, run in enumerate(found.runs):
            if (recipe is not None and number != recipe) or run.over:
                continue
            if run.stage not in UNLEASED:
                changed = replace(run, expires=(run.expires if add else now) + seconds)
                ends[f"until {utc(changed.expires)}"] = None
            elif seconds or add:
                length = seconds + (self.seconds_of(found, run) if add else 0)
                changed = replace(run, asked=replace(run.asked, seconds=length))
                ends[f"to {length:.0f} s from its begin"] = None
            else:
                changed = replace(run, stage=Stage.EXPIRED, since=now)
                ends["it is over"] = None
            found = found.with_run(number, changed)
        self._save(found)
        self._remember_deadlines(found)
        message = "; ".join([*ends][:MOST_ENDS])
        effects: list[Effect] = [
            Happened(set_id, -1 if recipe is None else recipe, "extended", message)
        ]
        if found.state is not SetState.RUNNING:
            effects += self._end_if_over(set_id, "expired", now)
        return [*effects, *self.expire(now)]

    def seconds_of(self, found: RecipeSet, run: Run) -> float:
        """Of a lease that did not begin: what was asked for, or what the lab has; of several that
        may serve it, the first.
        """
        labs = (self.labs[key] for key in (found.lab, *found.labs) if key in self.labs)
        return run.asked.seconds or next(labs, GONE).lease

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
            ended = Happened(set_id, -1, "ended", "cancelled")
            return [Happened(set_id, -1, "cancelled", why), ended, *self._decide(now)]
        return [Happened(set_id, -1, "cancelled", why), *self._end(found, "cancelled")]

    def removed(self, set_id: str, now: float) -> list[Effect]:
        """Nothing of a set is left: its machines are for others."""
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.ENDING:
            return []
        self._give_back(found)
        if has_dynamic(found):
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

    def _run(self, set_id: str, recipe: int) -> tuple[RecipeSet | None, Run | None]:
        found = self.sets.get(set_id)
        if found is None or found.state is not SetState.RUNNING or recipe >= len(found.runs):
            return None, None
        return found, found.runs[recipe]


def _all_over(found: RecipeSet, stage: Stage, now: float) -> RecipeSet:
    runs = tuple(
        run if run.stage in OVER else replace(run, stage=stage, since=now) for run in found.runs
    )
    return replace(found, runs=runs)
