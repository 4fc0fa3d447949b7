"""Which sets start, in which lab and with which machines: their order, and what is kept for some.

A set starts as a whole, so two sets never hold half of each other's machines. The sets that are
first in the order have their machines kept for them, so no set waits for ever while leases end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableSequence, MutableSet, Sequence
from dataclasses import replace

from nospoon.lab.assign import NOTHING, Grant, assign
from nospoon.lab.effects import Build, Effect, Happened
from nospoon.lab.held import Held, fits_ever, wanted
from nospoon.lab.holdings import GONE, Holdings
from nospoon.lab.longest import Entry, Longest
from nospoon.lab.queues import Queue, Queues
from nospoon.lab.retry import avoided_in, in_turn, is_open
from nospoon.lab.shortage import Need
from nospoon.lab.work import (
    Options,
    RecipeSet,
    Run,
    SetState,
    Size,
    Stage,
)
from nospoon.model.lab import Lab
from nospoon.model.sizes import size as in_words

LOOKAHEAD = 64
"""Sets of a lab that cannot start, behind which others are looked at: what they need is kept for
them.
"""
MOST_SHORT = 1000
"""The same, of sets that wait for capacity of a lab's host or cloud."""
MOST_LISTED = 8
"""Machines that a reason lists, and recipes that are looked at for it."""


class Placing(Holdings):
    """The sets that wait. `at_once`: what may start a set decides at once; else it sets
    `undecided`, and its caller goes through `deciding`.
    """

    def __init__(self, *, at_once: bool = True) -> None:
        super().__init__()
        self.at_once, self.undecided = at_once, False
        self._queues = Queues()
        self._longest = Longest()
        self._why: dict[str, str] = {}

    def queued_in(self, key: str) -> int:
        """How many sets wait that a lab may serve."""
        return self._queues.amounts[key]

    def reason(self, set_id: str) -> str:
        """Why a set waits."""
        found = self.sets[set_id]
        if found.state is not SetState.QUEUED:
            return ""
        why = self._why.get(set_id, "others are before it")
        return f"{self._short(why)}{self._needed(found, why)}" if why in self.labs else why

    def _needed(self, found: RecipeSet, key: str) -> str:
        """Registered machines of which a recipe has to have one, and others have all."""
        idle = self._idle(key)
        for each in wanted(found, key, self.labs[key])[:MOST_LISTED]:
            if each.machines and not each.sizes and idle.isdisjoint(each.machines):
                more = len(each.machines) - MOST_LISTED
                names = [*each.machines[:MOST_LISTED], *[f"{more} others"] * (more > 0)]
                return f": it needs {' or '.join(names)}"
        return ""

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
                for key in labs:
                    if key in held.short:
                        short[key] += 1
                    elif self._fitting[key].get(set_id, True):
                        passed[key] += 1
                    if passed[key] >= LOOKAHEAD or short[key] >= MOST_SHORT:
                        left.remove(key)
            else:
                self._dequeue(found)
                effects.extend(self._start(found, *place, now, held))
            yield

    def _decide(self, now: float) -> list[Effect]:
        if self.at_once:
            return self.decide(now)
        self.undecided = True
        return []

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
        if len(labs) == 1 and self._waits_as_another(found, labs[0], held):
            return None
        return self._try_labs(found, labs, held, now)

    def _try_labs(
        self, found: RecipeSet, labs: Sequence[str], held: Held, now: float
    ) -> tuple[str, list[Grant]] | None:
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
                held.refuse(found, key, lab, options)
            elif not waits:
                why = self._why_never(lab, options)
        self._why[found.id] = why
        most = len(labs) if found.id in held.first else 1
        self._keep(found, waits[:most], held)
        for key, machines in over[: most if not waits or most > 1 else 0]:
            held.quotas[key, found.owner] += machines
        return None

    def _waits_as_another(self, found: RecipeSet, key: str, held: Held) -> bool:
        """Whether it asks a lab for the same as a set that was not placed there since this decision
        began; then it is not either, and the same is kept for it. Thousands of equal sets may wait.
        There is never more left than before. Less does not help, either: a set that found too few
        dynamic machines had all of its sizes kept, so that what is left of some limit is negative.
        """
        if key in self.drained or key in self.shortages.short():
            return False
        lab, options = held.refused_like(found, key)
        if (
            lab is None
            or lab is not self.labs.get(key)  # its file changed while others were looked at
            or self._over_quota(found.owner, key, len(options), held)
            or not self._fits(found, key, options)
        ):
            return False
        self._why[found.id] = key
        self._keep(found, [(key, options)], held)
        return True

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
        lab = self.labs[key]
        if not (per_owner := lab.limits.per_owner):
            return ""
        has, kept = self.has(key, owner), held.quotas[key, owner]
        if has + kept + machines <= per_owner:
            return ""
        why = f"{owner} has {has} of {per_owner} machines of lab {lab.name}"
        return f"{why}, and sets before this one wait for {kept}" if kept else why

    def _keep(
        self, found: RecipeSet, waits: Sequence[tuple[str, Sequence[Options]]], held: Held
    ) -> None:
        """For a set that waits, in each of these labs. But for those that go first, no more than
        its owner's quota leaves: sets may wait for a machine that their owner has, and all would
        keep others idle.
        """
        for key, options in waits:
            kept, per_owner = held.kept[key, found.owner], self.labs[key].limits.per_owner
            has = self.has(key, found.owner) + kept + len(options)
            if not per_owner or has <= per_owner or found.id in held.first:
                held.kept[key, found.owner] = kept + len(options)
                held.keep(key, options)

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

    def _fits(self, found: RecipeSet, key: str, options: Sequence[Options]) -> bool:
        """The same but for quotas."""
        known = self._fitting[key]
        if found.id not in known:
            known[found.id] = fits_ever(self.labs[key], options, self._loanable(key))
        return known[found.id]

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
            parts.append(f"{in_words(limits.memory - free.memory)} of {in_words(limits.memory)}")
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
        if has_dynamic(found):
            others = (each for each in self.holding(found.lab) if each.id != found.id)
            alone = not any(map(has_dynamic, others))
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
                and self.labs.get(other, GONE).host == self.labs.get(key, GONE).host
            )
        ]

    def _waits_no_more(self, set_id: str) -> None:
        self.shortages.forget(set_id)
        self._longest.forget(set_id)

    def _enqueue(self, found: RecipeSet) -> None:
        self._queues.add(found)
        self._longest.add(found)

    def _dequeue(self, found: RecipeSet) -> None:
        self._queues.remove(found)
        self._longest.remove(found)
        for key in found.labs:
            self._fitting[key].pop(found.id, None)


def has_dynamic(found: RecipeSet) -> bool:
    return any(run.size is not None for run in found.runs)
