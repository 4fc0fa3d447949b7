"""No set waits for ever while others are served, whatever it waits for and whoever owns it."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nospoon.lab.effects import Build, Effect, Happened, Remove
from nospoon.lab.longest import MOST_SERVED
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.shortage import LONGEST
from nospoon.lab.work import Again, Asked, Options, RecipeSet, Run, SetState, Size
from nospoon.model.lab import GIB, Lab, Limits, Registered

SMALL = Options((Size("small", 1, GIB),))
MEMORY, CPUS = Options((Size("memory", 1, 8 * GIB),)), Options((Size("cpus", 8, GIB),))
MACHINE, EITHER = Options((), ("m1", "m2")), Options((Size("small", 1, GIB),), ("m1",))
EAST, WEST = Lab("east"), Lab("west")
NUMBERS = count(1)
BEGUN = 8
"""Sets that may be being started when another goes first: as many as there are."""


def recipe_set(
    *options: Options, owner: str = "ada", labs: tuple[str, ...] = ("east",)
) -> RecipeSet:
    number = next(NUMBERS)
    runs = tuple(Run(Asked("recipe"), dict.fromkeys(labs, each)) for each in options)
    return RecipeSet(str(number), number, 1000, owner, runs, labs=labs)


@dataclass
class Full:
    """Labs whose hosts have so many CPUs and so much memory, which no file says, and owners who
    submit a set for each that ends. `passed`: id of a set that waits -> later ones that were
    started in one of its labs meanwhile; `most`: how many may be.
    """

    labs: Scheduler
    chance: random.Random
    hosts: dict[str, tuple[int, int]]
    longest: float = 60
    now: float = 0.0
    made: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    coming: list[tuple[float, int, str, str]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    passed: Counter[str] = field(default_factory=Counter)
    most: dict[str, int] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    started: int = 0

    def submit(self, new: RecipeSet, *, lease: float = 0) -> None:
        before = sum(len(self.waiting_in(key)) for key in new.labs)
        self.most[new.id] = MOST_SERVED * (before + 1) + BEGUN
        self.leases[new.id] = lease
        self.carry_out(self.labs.submit(new, self.now))

    def waiting_in(self, key: str) -> list[RecipeSet]:
        """Those that have no machines yet; what is tried in vain comes back."""
        return [
            each
            for each in self.labs.sets.values()
            if key in each.labs and each.id not in self.made and not each.over
        ]

    def carry_out(self, effects: list[Effect]) -> None:
        for each in effects:
            if isinstance(each, Build):
                self.later(self.chance.uniform(0.1, 5), "made", each.set_id)
            elif isinstance(each, Remove):
                self.later(self.chance.uniform(0.1, 5), "gone", each.set_id)

    def later(self, seconds: float, what: str, which: str) -> None:
        heapq.heappush(self.coming, (self.now + seconds, next(self.numbers), what, which))

    def step(self) -> bool:
        due = self.labs.deadline
        if due is not None and (not self.coming or due <= self.coming[0][0]):
            self.now = max(self.now, due)
            self.carry_out(self.labs.expire(self.now))
            return True
        if not self.coming:
            return False
        self.now, _, what, which = heapq.heappop(self.coming)
        self.carry_out(self._happen(what, self.labs.sets[which]))
        return True

    def _happen(self, what: str, found: RecipeSet) -> list[Effect]:
        labs, now = self.labs, self.now
        match what:
            case "made":
                sizes = [run.size for run in found.runs if run.size is not None]
                cpus, memory = sum(s.cpus for s in sizes), sum(s.memory for s in sizes) // GIB
                out = [each[1:] for each in self.made.values() if each[0] == found.lab]
                left_cpus = self.hosts[found.lab][0] - sum(each[0] for each in out)
                left_memory = self.hosts[found.lab][1] - sum(each[1] for each in out)
                if cpus > left_cpus or memory > left_memory:
                    return labs.not_started(found.id, "full", now, again=Again.CAPACITY)
                for each in self.waiting_in(found.lab):
                    if each.number < found.number:
                        self.passed[each.id] += 1
                        assert self.passed[each.id] <= self.most[each.id], each
                self.started += 1
                self.made[found.id] = found.lab, cpus, memory
                lease = self.leases[found.id] or self.chance.uniform(1, self.longest)
                self.later(lease, "over", found.id)
                return labs.started(found.id, now)
            case "over":
                return labs.release(found.id, None, now)
        if found.over:
            self.made.pop(found.id)
        return labs.removed(found.id, now)


def scheduler(*labs: Lab) -> Scheduler:
    made = Scheduler()
    for lab in labs:
        made.put_lab(lab.name, lab)
    return made


CHOICES = [
    (SMALL,), (SMALL,), (SMALL, SMALL), (MEMORY,), (CPUS,), (MEMORY, SMALL), (MACHINE,), (EITHER,),
    (MACHINE, SMALL), (MACHINE, MACHINE), (CPUS, MACHINE), (SMALL,) * 4,
]  # fmt: skip
LABS: list[tuple[str, ...]] = [("east",), ("east",), ("west",), ("east", "west")]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1 << 30))
def test_no_set_is_passed_for_ever_in_labs_that_are_always_full(seed: int) -> None:
    chance = random.Random(seed)
    registered = (Registered("m1"), Registered("m2"))
    limits = [
        Limits(),
        Limits(machines=chance.randint(4, 6), per_owner=chance.choice([0, 4])),
        Limits(cpus=chance.randint(9, 12)),
    ]
    labs = [
        replace(each, limits=chance.choice(limits), machines=registered) for each in (EAST, WEST)
    ]
    hosts = {each.name: (chance.randint(9, 12), chance.randint(9, 12)) for each in labs}
    world = Full(scheduler(*labs), chance, hosts, longest=chance.choice([6, 60]))

    def submit(owner: str) -> None:
        world.submit(recipe_set(*chance.choice(CHOICES), owner=owner, labs=chance.choice(LABS)))

    for owner in ("ada", "ada", "ada", "bob", "bob", "carl", "carl", "dora"):
        submit(owner)
    ended = set[str]()
    while world.started < 300:
        assert world.step(), "there is always one that could be served"
        for each in [*world.labs.sets.values()]:
            if each.state is SetState.ENDED and each.id not in ended:
                ended.add(each.id)
                submit(each.owner)
        world.labs.forget_ended()
    while world.step():
        pass
    world.labs.forget_ended()
    assert not world.labs.sets, "none is left when no more come"


@pytest.mark.parametrize("asked", [MEMORY, CPUS])
def test_sets_that_wait_for_different_things_do_not_claim_a_lab_in_turn_for_ever(
    asked: Options,
) -> None:
    """Ada always has a machine, so sets of others, which have claims as well, go before hers."""
    other = CPUS if asked is MEMORY else MEMORY
    world = Full(scheduler(EAST), random.Random(1), {"east": (9, 9)})
    world.submit(recipe_set(SMALL, owner="ada"), lease=1e9)
    owners = count()
    large = recipe_set(asked, owner="ada")
    for _ in range(2000):
        if world.started == 1 and large.id not in world.leases:
            world.submit(large, lease=10)
        if len(world.waiting_in("east")) < 6:
            kind = world.chance.choice([other, SMALL])
            world.submit(recipe_set(kind, owner=f"other {next(owners)}"), lease=20)
        world.step()
        if large.id in world.made:
            return
    pytest.fail("it never started")


def test_an_owner_who_always_has_a_machine_gets_another_one_in_the_end() -> None:
    labs = scheduler(replace(EAST, limits=Limits(machines=2)))
    first, second = recipe_set(SMALL, owner="ada"), recipe_set(SMALL, owner="ada")
    running = recipe_set(SMALL, owner="bob")
    for each in (first, running, second):
        labs.submit(each, 0)
    labs.started(first.id, 0)
    labs.started(running.id, 0)
    for now in range(1, MOST_SERVED + 2):
        coming = recipe_set(SMALL, owner=f"other {now}")
        labs.submit(coming, now)
        labs.release(running.id, None, now)
        (begun,) = [e.set_id for e in labs.removed(running.id, now) if isinstance(e, Build)]
        if begun == second.id:
            return
        assert begun == coming.id
        labs.started(coming.id, now)
        running = coming
    pytest.fail("it never started")


def test_a_set_that_waits_for_a_reserved_or_broken_machine_holds_up_no_other() -> None:
    labs = scheduler(replace(EAST, limits=Limits(machines=1), machines=(Registered("m1"),)))
    labs.reserve("east", "m1", "dora")
    waits = recipe_set(MACHINE, SMALL)
    labs.submit(waits, 0)
    for now in range(3 * MOST_SERVED):
        other = recipe_set(SMALL, owner="bob")
        assert [e.set_id for e in labs.submit(other, now) if isinstance(e, Build)] == [other.id]
        labs.started(other.id, now)
        labs.release(other.id, None, now)
        labs.removed(other.id, now)
    assert labs.reason(waits.id) == "machines of lab east that it needs are reserved or broken"
    labs.reserve("east", "m1", "")
    assert [e.set_id for e in labs.decide(1000) if isinstance(e, Build)] == [waits.id]


def test_what_ends_while_a_set_is_tried_does_not_take_its_claim() -> None:
    """It found no capacity, and no other set has any now: but one had."""
    world = Full(scheduler(EAST), random.Random(2), {"east": (9, 9)})
    labs, large = world.labs, recipe_set(CPUS, CPUS)
    running = recipe_set(SMALL)
    for each in (running, large):
        labs.submit(each, 0)
    labs.started(running.id, 0)
    for now in range(1, MOST_SERVED + 1):
        labs.not_started(large.id, "full", now, again=Again.CAPACITY)
        labs.removed(large.id, now)
        small = recipe_set(SMALL)
        labs.submit(small, now)
        labs.started(small.id, now)
        labs.release(running.id, None, now)
        labs.removed(running.id, now)
        running = small
    assert labs.sets[large.id].state is SetState.STARTING
    labs.release(running.id, None, 50)
    labs.removed(running.id, 51)
    labs.not_started(large.id, "full", 52, again=Again.CAPACITY)
    late = recipe_set(SMALL)
    labs.submit(late, 53)
    labs.removed(large.id, 54)
    assert labs.sets[late.id].state is SetState.QUEUED, "the large one still has its claim"
    labs.expire(53 + LONGEST)
    assert labs.sets[large.id].state is SetState.STARTING


def test_what_is_kept_for_an_owner_is_within_the_quota() -> None:
    """Sets wait for a machine that their own owner has, each with others of its own."""
    names = [f"m{number}" for number in range(10)]
    lab = replace(EAST, dynamic=False, limits=Limits(per_owner=4))
    labs = Scheduler()
    labs.put_lab("east", replace(lab, machines=tuple(map(Registered, names))))

    def submitted(owner: str, *machines: str) -> RecipeSet:
        options = [Options((), (each,)) for each in machines]
        new = recipe_set(*options, owner=owner)
        for each in labs.submit(new, 0):
            assert isinstance(each, Build | Happened)
            if isinstance(each, Build):
                labs.started(each.set_id, 0)
        return new

    submitted("eve", "m0")
    for each in ("m7", "m8", "m9"):
        submitted("ada", each)
    for first in (1, 3, 5):
        submitted("eve", "m0", f"m{first}", f"m{first + 1}")
    last = submitted("ada", "m4")
    assert labs.sets[last.id].state is SetState.RUNNING
