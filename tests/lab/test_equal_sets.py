"""Sets that ask for the same are looked at once a decision: nothing is decided otherwise for that.

Two schedulers get the same events. One looks at each set for itself, as the rules have it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from nospoon.lab.assign import Free, Grant
from nospoon.lab.effects import Build, Effect
from nospoon.lab.held import Held
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.work import Again, Asked, Options, RecipeSet, Run, SetState, Size
from nospoon.model.lab import Lab, Limits, Prefer, Registered

SMALL, LARGE = Size("small", 1, 1 << 30), Size("large", 4, 8 << 30)
KINDS = [
    Options((SMALL,)), Options((LARGE,)), Options((SMALL, LARGE)), Options((SMALL, LARGE)),
    Options((), ("m1", "m2")), Options((), ("m1",)), Options((SMALL,), ("m1",)),
    Options((LARGE,), ("m1", "m2")), Options((SMALL,), ("m2",), "debian"),
]  # fmt: skip
LABS: list[tuple[str, ...]] = [("east",), ("east",), ("west",), ("east", "west")]
MACHINES = (Registered("m1"), Registered("m2"))

Kept = tuple[
    str, object, dict[str, Free], dict[str, frozenset[str]], Counter[tuple[str, str]], set[str]
]


class Noted(Scheduler):
    """`kept`: what was left for the next set each time one was looked at."""

    def __init__(self) -> None:
        super().__init__(at_once=False)
        self.kept: list[Kept] = []
        self.looked_at_once = 0

    def _place(
        self, found: RecipeSet, labs: Sequence[str], held: Held, now: float
    ) -> tuple[str, list[Grant]] | None:
        place = super()._place(found, labs, held, now)
        self.kept.append(
            (found.id, place, dict(held.free), dict(held.machines), Counter(held.quotas),
             set(held.closed))
        )  # fmt: skip
        return place

    def _waits_as_another(self, found: RecipeSet, key: str, held: Held) -> bool:
        waits = super()._waits_as_another(found, key, held)
        self.looked_at_once += waits
        return waits


class Each(Noted):
    def _waits_as_another(self, found: RecipeSet, key: str, held: Held) -> bool:
        del found, key, held
        return False


class Both:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.schedulers: tuple[Noted, Noted] = Noted(), Each()
        self.numbers = count(1)
        self.now = 0.0
        self.put("east")
        self.put("west")

    def put(self, key: str) -> None:
        limits = Limits(
            machines=self.chance.choice([0, 2, 4]),
            cpus=self.chance.choice([0, 3, 6]),
            per_owner=self.chance.choice([0, 0, 3]),
        )
        prefer = self.chance.choice(list(Prefer))
        lab = Lab(key, limits=limits, machines=MACHINES, prefer=prefer, failures=3)
        for each in self.schedulers:
            each.put_lab(key, lab)

    def reserve(self, key: str) -> None:
        """A machine for a person, or for all again."""
        name = self.chance.choice(["m1", "m2"])
        for each in self.schedulers:
            each.reserve(key, name, "" if each.state_of(key, name).reserved else "a")

    def new(self) -> RecipeSet:
        number, labs = next(self.numbers), self.chance.choice(LABS)
        runs = tuple(
            Run(Asked("recipe"), dict.fromkeys(labs, self.chance.choice(KINDS)))
            for _ in range(self.chance.choice([1, 1, 1, 2, 3]))
        )
        owner, priority = self.chance.choice("abc"), self.chance.choice([0, 0, 1])
        return RecipeSet(str(number), number, 1000, owner, runs, priority, labs=labs)

    def happen(self) -> None:
        """Any event of any set or lab, to both."""
        chance, (one, _) = self.chance, self.schedulers
        self.now += chance.choice([0, 1, 30])
        found = chance.choice([*one.sets.values()]) if one.sets else None
        what = chance.choice(["new", "new", "new", "lab", "machine", "drain", *["set"] * 6])
        if what == "new" or found is None:
            new = self.new()
            for _ in range(chance.choice([1, 1, 4])):
                number = next(self.numbers)
                new = replace(new, id=str(number), number=number)
                self.each(partial(Noted.submit, new=new, now=self.now))
        elif what == "lab":
            self.put(chance.choice(["east", "west"]))
        elif what == "machine":
            self.reserve(chance.choice(["east", "west"]))
        elif what == "drain":
            for each in self.schedulers:
                each.drained ^= {"west"}
        else:
            self._of(found, chance.choice(["next", "next", "fails", "cancel", "release", "full"]))

    def _of(self, found: RecipeSet, what: str) -> None:
        now, set_id = self.now, found.id
        machines = [run.machine for run in found.runs if run.machine]
        if what == "cancel" or (what == "release" and found.state is SetState.QUEUED):
            recipe = self.chance.randrange(len(found.runs))
            self.each(
                lambda s: (
                    s.cancel(set_id, "", now)
                    if what == "cancel"
                    else s.release(set_id, recipe, now)
                )
            )
        elif found.state is SetState.RUNNING:
            self.each(lambda s: s.release(set_id, None, now))
        elif found.state is SetState.ENDING:
            self.each(lambda s: s.removed(set_id, now))
        elif found.state is SetState.STARTING and what in ("full", "fails"):
            again = Again.CAPACITY if what == "full" else Again.LATER
            self.each(lambda s: s.not_started(set_id, "", now, again=again, machines=machines))
        else:
            self.each(lambda s: s.started(set_id, now))
        for each in self.schedulers:
            each.forget_ended()

    def each(self, call: Callable[[Noted], list[Effect]]) -> None:
        one, other = (call(each) for each in self.schedulers)
        assert one == other

    def decide(self) -> None:
        """Meanwhile files may change, and people may reserve machines."""
        effects: tuple[list[Effect], list[Effect]] = [], []
        steps = [s.deciding(self.now, e) for s, e in zip(self.schedulers, effects, strict=True)]
        while [next(step, "end") for step in steps] == [None, None]:
            if self.chance.random() < 0.05:
                key = self.chance.choice(["east", "west"])
                self.chance.choice([self.put, self.reserve])(key)
        assert effects[0] == effects[1]
        one, other = self.schedulers
        assert one.kept == other.kept
        assert one.sets == other.sets
        assert [one.reason(each) for each in one.sets] == [other.reason(each) for each in one.sets]
        for each in self.schedulers:
            each.kept.clear()
        self.each(lambda s: s.expire(self.now))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_the_same_is_decided_and_kept_as_if_each_were_looked_at_for_itself(seed: int) -> None:
    both = Both(seed)
    for _ in range(150):
        both.happen()
        if both.chance.random() < 0.5:
            both.decide()
    both.decide()


def test_one_of_many_equal_sets_is_tried_and_the_same_is_kept_for_each() -> None:
    labs = Noted()
    labs.put_lab("east", Lab("east", limits=Limits(machines=1), machines=MACHINES))
    for number in range(20):
        run = Run(Asked("recipe"), {"east": Options((SMALL,))})
        labs.submit(RecipeSet(str(number), number, 1000, "ada", (run,), labs=("east",)), 0)
    assert [each.set_id for each in labs.decide(0) if isinstance(each, Build)] == ["0"]
    assert labs.looked_at_once == 18
    assert [kept[2]["east"].machines for kept in labs.kept] == [1, *range(-1, -20, -1)]
    assert labs.reason("19") == labs.reason("1") != ""


def test_a_set_that_tries_another_size_after_a_failure_does_not_stand_for_equal_ones() -> None:
    labs = Scheduler()
    labs.put_lab("east", Lab("east", limits=Limits(cpus=6)))

    def submitted(number: int, *sizes: Size, now: float = 0) -> list[str]:
        run = Run(Asked("recipe"), {"east": Options(sizes)})
        new = RecipeSet(str(number), number, 1000, "ada", (run,), labs=("east",))
        return [each.set_id for each in labs.submit(new, now) if isinstance(each, Build)]

    assert submitted(1, SMALL, LARGE) == ["1"]
    labs.not_started("1", "no valid host", 0, again=Again.LATER)
    labs.removed("1", 0)
    for number in (2, 3, 4):
        assert submitted(number, SMALL) == [str(number)]
    assert not labs.expire(100), "3 CPUs are left, and the large size has 4"
    assert submitted(5, SMALL, LARGE, now=100) == ["5"]
