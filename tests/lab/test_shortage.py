"""Labs whose host or cloud is full: sets wait in their places, and are tried when it may help."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nospoon.lab.effects import Build, Effect, Remove
from nospoon.lab.placing import LOOKAHEAD
from nospoon.lab.retry import ATTEMPTS
from nospoon.lab.scheduler import Scheduler
from nospoon.lab.shortage import LONGEST, MOST_PASSED, PAUSE
from nospoon.lab.work import Again, Asked, Options, RecipeSet, Run, SetState, Size
from nospoon.model.lab import Lab, Registered

SMALL, LARGE = Size("small", 1, 1 << 30), Size("large", 4, 8 << 30)
ONE, BIG = Options((SMALL,)), Options((LARGE,))
NUMBERS = count(1)
FULL = "the quota of its project leaves 0 servers"


def recipe_set(*options: Options, labs: tuple[str, ...] = ("east",)) -> RecipeSet:
    number = next(NUMBERS)
    runs = tuple(Run(Asked("recipe"), dict.fromkeys(labs, each)) for each in options)
    return RecipeSet(str(number), number, 1000, "ada", runs, labs=labs)


def scheduler(**labs: Lab) -> Scheduler:
    made = Scheduler()
    for name, lab in (labs or {"east": Lab("east")}).items():
        made.put_lab(name, lab)
    return made


def builds(effects: list[Effect]) -> list[str]:
    return [each.set_id for each in effects if isinstance(each, Build)]


def refuse(labs: Scheduler, found: RecipeSet, now: float) -> list[Effect]:
    """There is no capacity for a set; what was made of it is gone."""
    labs.not_started(found.id, FULL, now, again=Again.CAPACITY)
    return labs.removed(found.id, now)


def end(labs: Scheduler, found: RecipeSet, now: float) -> list[Effect]:
    labs.release(found.id, None, now)
    return labs.removed(found.id, now)


def test_a_set_without_capacity_waits_with_its_reason_until_something_is_given_back() -> None:
    labs = scheduler()
    first, second, third = (recipe_set(ONE) for _ in range(3))
    for each in (first, second):
        labs.submit(each, 0)
    labs.started(first.id, 1)
    assert not builds(refuse(labs, second, 1))
    labs.submit(third, 1)
    waiting = labs.sets[second.id]
    assert (waiting.state, waiting.lab) == (SetState.QUEUED, "")
    why = f"lab east has no capacity now: {FULL}"
    assert [labs.reason(each.id) for each in (second, third)] == [why, why]
    assert [each for each in labs.in_order() if each] == [second.id, third.id]
    assert builds(end(labs, first, 2)) == [second.id], "the first of them alone"
    assert builds(labs.started(second.id, 3)) == [third.id]


def test_each_set_without_capacity_has_the_reason_of_its_own_attempt() -> None:
    labs, large, small, late = scheduler(), recipe_set(BIG), recipe_set(ONE), recipe_set(ONE)
    for found, why in ((large, "4 CPUs asked for, 2 left"), (small, "1 CPU asked for, 0 left")):
        labs.submit(found, 0)
        labs.not_started(found.id, why, 1, again=Again.CAPACITY)
        labs.removed(found.id, 1)
    labs.submit(late, 2)
    prefix = "lab east has no capacity now: "
    assert [labs.reason(each.id).removeprefix(prefix) for each in (large, small, late)] == [
        "4 CPUs asked for, 2 left", "1 CPU asked for, 0 left", "1 CPU asked for, 0 left",
    ]  # fmt: skip


def test_it_is_tried_again_after_pauses_that_grow_and_as_often_as_it_takes() -> None:
    labs, found = scheduler(), recipe_set(ONE)
    labs.submit(found, 0)
    now, pauses = 0.0, []
    for _ in range(9):
        assert not builds(refuse(labs, found, now))
        assert labs.deadline is not None
        assert not builds(labs.decide(labs.deadline - 0.1))
        pauses.append(labs.deadline - now)
        now = labs.deadline
        assert builds(labs.expire(now)) == [found.id]
    assert pauses[:3] == [PAUSE, 2 * PAUSE, 4 * PAUSE]
    assert pauses[-1] == LONGEST
    labs.not_started(found.id, "no answer", now, again=Again.LATER)
    labs.removed(found.id, now)
    assert labs.sets[found.id].state is SetState.QUEUED, "that was its first failure"


def test_another_lab_is_tried_at_once_and_first_by_those_who_come_later() -> None:
    labs = scheduler(east=Lab("east"), west=Lab("west"))
    first, second = (recipe_set(ONE, labs=("east", "west")) for _ in range(2))
    waits = recipe_set(ONE)
    for each in (first, waits):
        labs.submit(each, 0)
    refuse(labs, waits, 1)
    assert builds(refuse(labs, first, 1)) == [first.id]
    assert labs.sets[first.id].lab == "west"
    labs.submit(second, 1 + PAUSE)
    assert labs.sets[second.id].lab == "west"


def test_smaller_sets_and_registered_machines_are_given_meanwhile() -> None:
    labs = scheduler(east=Lab("east", machines=(Registered("m1"), Registered("m2"))))
    large = [recipe_set(BIG) for _ in range(LOOKAHEAD + 1)]
    for each in large:
        labs.submit(each, 0)
    for each in large:
        refuse(labs, each, 0)
    either = Options((LARGE,), ("m1",))
    small, loaned, flexible = (recipe_set(each) for each in (ONE, Options((), ("m2",)), either))
    for each in (small, loaned, flexible):
        assert builds(labs.submit(each, 1)) == [each.id]
    assert labs.sets[flexible.id].runs[0].machine == "m1"


def test_one_is_tried_at_a_time_and_twice_as_many_after_all_of_them_start() -> None:
    labs = scheduler()
    many = [recipe_set(ONE) for _ in range(20)]
    for each in many:
        labs.submit(each, 0)
    for each in many:
        refuse(labs, each, 0)
    tried = builds(labs.expire(PAUSE))
    assert len(tried) == 1
    amounts = []
    while tried:
        tried = [other for each in tried for other in builds(labs.started(each, PAUSE))]
        amounts.append(len(tried))
    assert amounts == [2, 4, 8, 5, 0]


def test_what_was_made_of_a_set_that_found_none_is_no_news() -> None:
    labs = scheduler()
    first, second = recipe_set(ONE, ONE), recipe_set(ONE, ONE)
    for each in (first, second):
        labs.submit(each, 0)
    for each in (first, second):
        labs.not_started(each.id, FULL, 1, again=Again.CAPACITY)
    assert not builds(labs.removed(first.id, 2))
    assert not builds(labs.removed(second.id, 2))
    assert builds(labs.expire(1 + PAUSE)) == [first.id], "alone it finds capacity for both"


def test_a_lab_on_the_same_host_of_the_same_file_may_have_capacity_then() -> None:
    names = ("7:c/a", "7:c/b", "8:c/a")
    labs = scheduler(**{name: Lab(name, host="here") for name in names})
    runs = recipe_set(ONE, labs=("7:c/b",))
    short = [recipe_set(ONE, labs=(name,)) for name in ("7:c/a", "8:c/a")]
    for each in (runs, *short):
        labs.submit(each, 0)
    labs.started(runs.id, 0)
    for each in short:
        refuse(labs, each, 1)
    assert builds(end(labs, runs, 2)) == [short[0].id], "another user's is another's"


def test_a_large_set_is_passed_by_some_and_then_waited_for() -> None:
    """A stream of small ones would keep the capacity that it needs in pieces."""
    labs, large = scheduler(), recipe_set(BIG)
    running = recipe_set(ONE)
    for each in (running, large):
        labs.submit(each, 0)
    labs.started(running.id, 0)
    refuse(labs, large, 0)
    for now in range(1, MOST_PASSED + 1):
        small = recipe_set(ONE)
        assert builds(labs.submit(small, now)) == [small.id]
        labs.started(small.id, now)
        assert builds(end(labs, running, now)) == [large.id], "it is tried each time"
        refuse(labs, large, now)
        running = small
    late = recipe_set(ONE)
    assert not builds(labs.submit(late, 20)), "it waits for the large one"
    assert builds(end(labs, running, 21)) == [large.id]
    assert builds(refuse(labs, large, 22)) == [late.id], "others than the lab's sets have the rest"


def test_a_large_set_is_waited_for_while_it_is_tried_and_removed_as_well() -> None:
    """Each attempt takes minutes in a cloud: small ones would take then what it waits for."""
    labs, large = scheduler(), recipe_set(BIG)
    running = [recipe_set(ONE) for _ in range(MOST_PASSED)]
    for each in (*running, large):
        labs.submit(each, 0)
    labs.not_started(large.id, FULL, 1, again=Again.CAPACITY)
    for each in running:
        labs.started(each.id, 2)
    late = [recipe_set(ONE) for _ in range(4)]
    assert not builds(labs.submit(late[0], 3)), "while what was made of it is removed"
    assert not builds(labs.removed(large.id, 4))
    assert builds(end(labs, running.pop(), 5)) == [large.id]
    assert not builds(labs.submit(late[1], 6)), "while it is tried"
    assert not builds(end(labs, running.pop(), 7))
    labs.not_started(large.id, FULL, 8, again=Again.CAPACITY)
    assert not builds(labs.submit(late[2], 9)), "while it is removed again"
    labs.cancel(large.id, "", 10)
    assert builds(labs.submit(late[3], 11)) == [late[0].id], "it waits no more"


def test_a_set_that_waits_for_capacity_can_be_cancelled_and_the_others_go_on() -> None:
    labs = scheduler()
    first, second = recipe_set(ONE), recipe_set(ONE)
    for each in (first, second):
        labs.submit(each, 0)
        refuse(labs, each, 0)
    labs.cancel(first.id, "", 1)
    assert labs.sets[first.id].state is SetState.ENDED
    assert builds(labs.expire(PAUSE)) == [second.id]
    labs.cancel(second.id, "", PAUSE)
    labs.removed(second.id, PAUSE)
    third = recipe_set(ONE)
    assert builds(labs.submit(third, PAUSE)) == [third.id]


def test_a_set_of_registered_machines_that_finds_no_space_is_tried_a_few_times() -> None:
    """The disk of the daemon is full, say: no machine that others give back changes that."""
    labs = scheduler(east=Lab("east", machines=(Registered("m-1"), Registered("m-2"))))
    found = recipe_set(Options((), ("m-1", "m-2")))
    assert builds(labs.submit(found, 0)) == [found.id]
    assert not builds(refuse(labs, found, 0)), "it would be started as fast as it fails"
    starts, now = 1, 0.0
    while labs.deadline is not None:
        now = labs.deadline
        for each in builds(labs.expire(now)):
            starts += 1
            assert not builds(refuse(labs, labs.sets[each], now))
    assert starts == ATTEMPTS
    assert labs.sets[found.id].result == "failed"
    dynamic = recipe_set(ONE)
    assert builds(labs.submit(dynamic, now)) == [dynamic.id]


def test_the_next_daemon_tries_at_once() -> None:
    labs, found = scheduler(), recipe_set(ONE)
    labs.submit(found, 0)
    refuse(labs, found, 0)
    after = scheduler()
    after.restore(labs.sets.values())
    assert builds(after.decide(1)) == [found.id]


@dataclass
class Clouds:
    """Labs of a capacity that no file has; others take and give back some of it."""

    labs: Scheduler
    chance: random.Random
    capacity: dict[str, int]
    now: float = 0.0
    others: Counter[str] = field(default_factory=Counter)
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    coming: list[tuple[float, int, str, str]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    in_vain: int = 0

    def later(self, seconds: float, what: str, which: str) -> None:
        heapq.heappush(self.coming, (self.now + seconds, next(self.numbers), what, which))

    def carry_out(self, effects: list[Effect]) -> None:
        for each in effects:
            if isinstance(each, Build):
                self.later(self.chance.uniform(0.1, 5), "made", each.set_id)
            elif isinstance(each, Remove):
                self.later(self.chance.uniform(0.1, 5), "gone", each.set_id)

    def left(self, lab: str) -> int:
        used = sum(amount for where, amount in self.made.values() if where == lab)
        return self.capacity[lab] - self.others[lab] - used

    def step(self) -> bool:
        due = self.labs.deadline
        if due is not None and (not self.coming or due <= self.coming[0][0]):
            self.now = max(self.now, due)
            self.carry_out(self.labs.expire(self.now))
            return True
        if not self.coming:
            return False
        self.now, _, what, which = heapq.heappop(self.coming)
        self.carry_out(self._happen(what, which))
        return True

    def _happen(self, what: str, which: str) -> list[Effect]:
        labs, found = self.labs, self.labs.sets.get(which)
        match what:
            case "made" if found is not None:
                amount = sum(run.size.cpus for run in found.runs if run.size is not None)
                if amount > self.left(found.lab):
                    self.in_vain += 1
                    return labs.not_started(which, FULL, self.now, again=Again.CAPACITY)
                self.made[which] = found.lab, amount
                self.later(self.chance.uniform(1, 60), "over", which)
                return labs.started(which, self.now)
            case "over":
                return labs.release(which, None, self.now)
            case "gone":
                self.made.pop(which, None)
                return labs.removed(which, self.now)
            case "others":
                self.others[which] = min(self.chance.choice([0, 1, 2]), max(self.left(which), 0))
        return []


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30))
def test_every_set_gets_its_machines_whatever_others_take_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    capacity = {"east": chance.randint(4, 8), "west": chance.randint(4, 8)}
    world = Clouds(scheduler(**{name: Lab(name) for name in capacity}), chance, capacity)
    choices: list[tuple[str, ...]] = [("east",), ("west",), ("east", "west")]
    sets = [
        recipe_set(*chance.choice([[ONE], [ONE], [ONE, ONE], [BIG]]), labs=chance.choice(choices))
        for _ in range(60)
    ]
    arrivals = iter(sorted(((chance.uniform(0, 300), each) for each in sets), key=lambda a: a[0]))
    for at in range(0, 300, 20):
        world.later(at, "others", chance.choice(["east", "west"]))
    for lab in capacity:  # at last they take nothing
        heapq.heappush(world.coming, (400, next(world.numbers), "nothing", lab))
    coming = next(arrivals, None)
    while True:
        upcoming = [each[0] for each in world.coming[:1]]
        upcoming += [] if world.labs.deadline is None else [world.labs.deadline]
        if world.now >= 300:
            world.others.clear()
        if coming is not None and (not upcoming or coming[0] <= min(upcoming)):
            world.now = max(world.now, coming[0])
            world.carry_out(world.labs.submit(coming[1], world.now))
            coming = next(arrivals, None)
        elif not world.step():
            break
        assert all(world.left(lab) >= 0 for lab in capacity)
    assert {each.result for each in world.labs.sets.values()} == {"completed"}
    assert {each.state for each in world.labs.sets.values()} == {SetState.ENDED}
    assert len(world.labs.sets) == len(sets)
    assert not world.made
    most = 8 * len(sets)
    assert world.in_vain <= most, "few are tried for each that ends"


@pytest.mark.parametrize("size", [2, 4])
def test_a_stream_of_small_sets_does_not_starve_a_large_one(size: int) -> None:
    chance = random.Random(size)
    world = Clouds(scheduler(), chance, {"east": 4})
    large = recipe_set(*[ONE] * size)
    for number in range(300):
        world.now = max(world.now, number * 5.0)
        if number == 3:
            world.carry_out(world.labs.submit(large, world.now))
        world.carry_out(world.labs.submit(recipe_set(ONE), world.now))
        while world.coming and world.coming[0][0] <= world.now + 5:
            world.step()
        if large.id in world.made:
            return
    pytest.fail("it never started")


def test_sets_that_fit_elsewhere_start_at_once_whatever_waits_before_them() -> None:
    labs = scheduler(east=Lab("east"), west=Lab("west"))
    labs.at_once = False
    for _ in range(2 * LOOKAHEAD):
        labs.submit(recipe_set(ONE), 0)
    for each in builds(labs.decide(0)):
        refuse(labs, labs.sets[each], 0)
    labs.at_once = True
    other = replace(recipe_set(ONE, labs=("west",)), owner="bob")
    either = recipe_set(ONE, labs=("east", "west"))
    assert builds(labs.submit(other, 1)) == [other.id]
    assert builds(labs.submit(either, 1)) == [either.id]
    assert labs.sets[either.id].lab == "west"
