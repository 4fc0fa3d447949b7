"""The scheduler of labs: a simulated hour with machines that fail, hang, panic and never report."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nospoon.lab import holdings as module
from nospoon.lab.assign import Free, assign
from nospoon.lab.consoles import MOST_PANICS
from nospoon.lab.effects import Build, Effect, Happened, Remove
from nospoon.lab.held import fits_ever
from nospoon.lab.placing import LOOKAHEAD
from nospoon.lab.retry import ATTEMPTS
from nospoon.lab.scheduler import LOOPS, Scheduler
from nospoon.lab.work import (
    HOLDING,
    Again,
    Asked,
    Options,
    RecipeSet,
    Report,
    Run,
    SetState,
    Size,
    Stage,
)
from nospoon.model.lab import Lab, Limits, Prefer, Registered, Timeouts

SMALL, LARGE = Size("small", 1, 1 << 30), Size("large", 4, 8 << 30)
LAB = Lab("east", timeouts=Timeouts(boot=1800, install=10800, panic=600), lease=3600)
NUMBERS = count(1)


def machines(*names: str) -> tuple[Registered, ...]:
    return tuple(Registered(name) for name in names)


def recipe_set(
    *options: Options, owner: str = "ada", priority: int = 0, lab: str = "east", **asked: Any
) -> RecipeSet:
    number = next(NUMBERS)
    runs = tuple(Run(Asked("recipe", **asked), {lab: each}) for each in options)
    return RecipeSet(str(number), number, 1000, owner, runs, priority, labs=(lab,))


def scheduler(lab: Lab = LAB) -> Scheduler:
    made = Scheduler()
    made.put_lab("east", lab)
    return made


def builds(effects: list[Effect]) -> list[str]:
    return [each.set_id for each in effects if isinstance(each, Build)]


def removals(effects: list[Effect]) -> list[str]:
    return [each.set_id for each in effects if isinstance(each, Remove)]


def events(effects: list[Effect]) -> list[tuple[int, str]]:
    return [(each.recipe, each.event) for each in effects if isinstance(each, Happened)]


ONE = Options((SMALL,))


def test_a_set_starts_as_a_whole_and_ends_as_a_whole() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=3)))
    first = recipe_set(ONE, ONE)
    assert builds(labs.submit(first, 0)) == [first.id]
    second = recipe_set(ONE, ONE)
    assert not builds(labs.submit(second, 1))
    assert labs.reason(second.id) == "lab east has given away 2 of 3 machines"
    labs.started(first.id, 2)
    assert not removals(labs.release(first.id, 0, 3)), "one of two leases is over"
    assert removals(labs.release(first.id, None, 4)) == [first.id]
    assert not builds(labs.decide(5)), "what is being removed still counts"
    assert builds(labs.removed(first.id, 6)) == [second.id]
    assert labs.sets[first.id].result == "completed"


def test_who_waits_for_a_registered_machine_sees_which_one() -> None:
    labs = scheduler(replace(LAB, machines=(Registered("m1"), Registered("m2"), Registered("m3"))))
    labs.submit(recipe_set(Options(machines=("m1", "m2")), Options(machines=("m1", "m2"))), 0)
    waits = recipe_set(ONE, Options(machines=("m1", "m2")))
    labs.submit(waits, 1)
    why = labs.reason(waits.id)
    assert why.endswith("2 of 3 registered machines: it needs m1 or m2"), why


def test_the_first_of_those_who_wait_for_an_exhausted_lab_sees_what_is_given_away() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    first, second, third = (recipe_set(ONE) for _ in range(3))
    for number, each in enumerate((first, second, third)):
        labs.submit(each, number)
    assert labs.reason(second.id) == "lab east has given away 1 of 1 machines"
    assert labs.reason(third.id) == "others are before it"
    labs.cancel(second.id, "", 3)
    labs.decide(4)
    assert labs.reason(third.id) == "lab east has given away 1 of 1 machines"


def test_stages_of_an_installation_and_what_is_out_of_turn() -> None:
    labs = scheduler()
    found = recipe_set(ONE, distro="debian")
    labs.submit(found, 0)
    assert not labs.installed(found.id, 0, 1), "it does not run yet"
    labs.started(found.id, 10)
    assert labs.sets[found.id].runs[0].expires == 10 + 1800
    assert events(labs.install_started(found.id, 0, 20)) == [(0, "installing")]
    assert labs.sets[found.id].runs[0].expires == 20 + 10800
    assert events(labs.installed(found.id, 0, 30)) == [(0, "ready")]
    assert labs.sets[found.id].runs[0].expires == 30 + 3600
    assert not labs.installed(found.id, 0, 40), "a callback that is replayed changes nothing"
    assert not labs.install_started(found.id, 0, 41)
    assert not labs.install_failed(found.id, 0, "late", 42)
    assert labs.deadline is not None
    assert removals(labs.expire(30 + 3600)) == [found.id]
    assert labs.sets[found.id].result == "expired"


def test_what_a_fast_machine_reports_counts_when_its_set_has_started() -> None:
    labs = scheduler()
    found = recipe_set(ONE, ONE, ONE, distro="cloud")
    labs.submit(found, 0)
    assert not labs.reported(found.id, 0, Report("started"), 1)
    assert not labs.reported(found.id, 0, Report("done"), 2)
    assert not labs.reported(found.id, 1, Report("failed", "no disk"), 3)
    for _ in range(99):
        labs.reported(found.id, 2, Report("started"), 4)
    assert len(labs.sets[found.id].runs[2].early) < 10
    reported = events(labs.started(found.id, 10))
    assert reported[4:7] == [(0, "installing"), (0, "ready"), (1, "failed")]
    runs = labs.sets[found.id].runs
    assert (runs[0].expires, runs[1].why) == (10 + 3600, "no disk")
    assert not any(run.early for run in runs)


def test_what_was_reported_in_a_start_that_failed_is_forgotten() -> None:
    labs = scheduler()
    found = recipe_set(ONE, distro="cloud")
    labs.submit(found, 0)
    labs.reported(found.id, 0, Report("done"), 1)
    labs.not_started(found.id, "no host", 2, again=Again.LATER)
    assert not labs.reported(found.id, 0, Report("done"), 3)
    labs.removed(found.id, 4)
    labs.expire(1000)
    assert events(labs.started(found.id, 1001)) == [(-1, "started"), (0, "booting")]


def test_an_installer_that_starts_again_and_again_fails() -> None:
    labs = scheduler()
    found = recipe_set(ONE, distro="debian")
    labs.submit(found, 0)
    labs.started(found.id, 1)
    for number in range(LOOPS):
        assert not removals(labs.install_started(found.id, 0, 2 + number))
    assert removals(labs.install_started(found.id, 0, 9)) == [found.id]
    assert "does not boot from its disk" in labs.sets[found.id].runs[0].why


def test_a_set_expires_when_all_of_its_leases_have() -> None:
    labs = scheduler()
    found = recipe_set(ONE, ONE)
    labs.submit(found, 0)
    labs.started(found.id, 0)
    labs.extend(found.id, 100, 0, add=True, recipe=1)
    assert not removals(labs.expire(3600))
    assert labs.sets[found.id].runs[0].stage is Stage.EXPIRED
    assert removals(labs.expire(3700)) == [found.id]


def test_extending_sets_or_adds_and_zero_ends() -> None:
    labs = scheduler()
    found = recipe_set(ONE)
    labs.submit(found, 0)
    labs.started(found.id, 0)
    labs.extend(found.id, 50, 10, add=False)
    assert labs.sets[found.id].runs[0].expires == 60
    labs.extend(found.id, 50, 20, add=True)
    assert labs.sets[found.id].runs[0].expires == 110
    assert not removals(labs.expire(60))
    assert removals(labs.extend(found.id, 0, 70, add=False)) == [found.id]


def test_the_event_of_an_extension_says_until_when() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=2)))
    found, waits = recipe_set(ONE, ONE), recipe_set(ONE)
    for each in (found, waits):
        labs.submit(each, 0)
    labs.started(found.id, 0)

    def said(set_id: str, seconds: float, *, add: bool, recipe: int | None = None) -> str:
        effects = labs.extend(set_id, seconds, 10, add=add, recipe=recipe)
        (event,) = (e for e in effects if isinstance(e, Happened) and e.event == "extended")
        return event.message

    assert said(found.id, 50, add=False) == "until 1970-01-01T00:01:00+00:00"
    assert said(found.id, 60, add=True, recipe=1) == "until 1970-01-01T00:02:00+00:00"
    both = "until 1970-01-01T00:01:01+00:00; until 1970-01-01T00:02:01+00:00"
    assert said(found.id, 1, add=True) == both
    assert said(waits.id, 50, add=True) == "to 3650 s from its begin"
    assert said(waits.id, 0, add=False) == "it is over"


def test_a_lease_is_extended_and_ended_before_it_begins() -> None:
    """While its set waits, is started, or is removed to be started again."""
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    first, second = (recipe_set(ONE, distro="debian") for _ in range(2))
    for each in (first, second):
        labs.submit(each, 0)
    labs.extend(first.id, 50, 1, add=False)  # it is being started
    labs.extend(second.id, 50, 1, add=True)
    labs.started(first.id, 2)
    labs.installed(first.id, 0, 3)
    assert labs.sets[first.id].runs[0].expires == 3 + 50
    labs.expire(53)
    labs.removed(first.id, 54)
    labs.not_started(second.id, "no host", 55, again=Again.LATER)
    labs.extend(second.id, 7, 56, add=True)
    labs.removed(second.id, 57)
    labs.expire(1000)
    labs.started(second.id, 1001)
    labs.installed(second.id, 0, 1002)
    assert labs.sets[second.id].runs[0].expires == 1002 + 3600 + 50 + 7, "the lab's, and more"


def test_an_extension_by_zero_ends_a_set_that_waits_or_is_started() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    first, second = recipe_set(ONE), recipe_set(ONE)
    for each in (first, second):
        labs.submit(each, 0)
    assert events(labs.extend(second.id, 0, 1, add=False))[-1] == (-1, "ended")
    assert removals(labs.extend(first.id, 0, 2, add=False)) == [first.id]
    assert {each.result for each in labs.sets.values()} == {"expired"}


def test_a_lease_that_was_released_before_its_set_started_gets_no_machine() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=2, per_owner=2)))
    first, second = recipe_set(ONE), recipe_set(ONE, ONE)
    for each in (first, second):
        labs.submit(each, 0)
    labs.release(second.id, 0, 1)
    assert builds(labs.decide(2)) == [second.id], "one machine will do"
    labs.not_started(second.id, "no host", 3, again=Again.LATER)
    labs.removed(second.id, 4)
    assert builds(labs.expire(100)) == [second.id]
    assert [run.size for run in labs.sets[second.id].runs] == [None, SMALL]
    assert labs.has("east", "ada") == 2
    labs.started(second.id, 101)
    assert [run.stage for run in labs.sets[second.id].runs] == [Stage.RELEASED, Stage.READY]
    labs.release(second.id, None, 102)
    labs.removed(second.id, 103)
    assert labs.has("east", "ada") == 1
    assert labs.sets[second.id].result == "completed"


def test_a_large_set_gets_its_owners_quota_before_smaller_ones_that_come_later() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=9, per_owner=2)))
    small, large, late, other = (
        recipe_set(*[Options((SMALL,))] * size, owner=owner)
        for size, owner in ((1, "ada"), (2, "ada"), (1, "ada"), (1, "bob"))
    )
    assert builds(labs.submit(small, 0)) == [small.id]
    labs.started(small.id, 0)
    for each in (large, late):
        assert not builds(labs.submit(each, 1))
    assert labs.reason(large.id) == "ada has 1 of 2 machines of lab east"
    assert labs.reason(late.id) == (
        "ada has 1 of 2 machines of lab east, and sets before this one wait for 2"
    )
    assert builds(labs.submit(other, 1)) == [other.id], "it is their quota alone"
    labs.release(small.id, None, 2)
    assert builds(labs.removed(small.id, 2)) == [large.id]


def test_a_set_that_its_owners_quota_never_allows_keeps_none_of_it() -> None:
    machine = Registered("m1")
    labs = scheduler(replace(LAB, machines=(machine,), limits=Limits(per_owner=2)))
    large, small = (recipe_set(*[Options((SMALL,))] * size) for size in (2, 1))
    labs.reserve("east", "m1", "ada")
    assert not builds(labs.submit(large, 0))
    assert builds(labs.submit(small, 0)) == [small.id], "a person keeps a machine for long"
    labs.reserve("east", "m1", "")
    labs.cancel(small.id, "", 1)
    labs.removed(small.id, 1)
    assert labs.sets[large.id].state is SetState.STARTING
    labs.put_lab("east", replace(LAB, limits=Limits(per_owner=1)))
    waits, late = (recipe_set(*[Options((SMALL,))] * size, owner="bob") for size in (2, 1))
    assert not builds(labs.submit(waits, 2))
    assert builds(labs.submit(late, 2)) == [late.id]


def test_a_set_that_is_released_before_it_starts_again_does_not() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    first, second = recipe_set(ONE), recipe_set(ONE)
    for each in (first, second):
        labs.submit(each, 0)
    labs.not_started(first.id, "no host", 1, again=Again.LATER)
    assert events(labs.release(first.id, None, 2)) == [(0, "released")]
    assert events(labs.removed(first.id, 3))[0] == (-1, "ended")
    assert labs.sets[first.id].result == "completed"


def test_what_waits_in_one_lab_holds_up_no_other() -> None:
    """Any user may make a lab, and have sets wait there, in front of all others."""
    labs = scheduler()
    labs.put_lab("mine", Lab("mine", limits=Limits(machines=1)))
    for _ in range(LOOKAHEAD + 2):
        labs.submit(recipe_set(ONE, owner="eve", priority=3, lab="mine"), 0)
    other = recipe_set(ONE, owner="bob")
    assert builds(labs.submit(other, 1)) == [other.id]


def test_machines_in_another_lab_do_not_count_to_an_owners_turn() -> None:
    """Who operates a lab of his own acts there for any owner."""
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    labs.put_lab("mine", Lab("mine"))
    for _ in range(5):
        labs.submit(recipe_set(ONE, owner="ada", lab="mine"), 0)
    runs = recipe_set(ONE, owner="carl")
    labs.submit(runs, 1)
    first, second = recipe_set(ONE, owner="ada"), recipe_set(ONE, owner="bob")
    labs.submit(first, 2)
    labs.submit(second, 3)
    labs.started(runs.id, 4)
    labs.release(runs.id, None, 5)
    assert builds(labs.removed(runs.id, 6)) == [first.id]


def test_a_lease_that_is_extended_for_ever_takes_no_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_DEADLINES", 10)
    labs = scheduler()
    first, second = recipe_set(ONE), recipe_set(ONE)
    for each in (first, second):
        labs.submit(each, 0)
        labs.started(each.id, 0)
    for now in range(1000):
        labs.extend(first.id, 7200, now, add=False)
        assert len(labs._deadlines) <= 21
    assert removals(labs.expire(3600)) == [second.id]
    assert not removals(labs.expire(7200 + 998))
    assert removals(labs.expire(7200 + 999)) == [first.id]


@pytest.mark.parametrize(
    ("asked", "expires"),
    [({}, 700), ({"panic_ignored": True}, 3600), ({"ends_on_panic": True}, 100)],
)
def test_a_panic_shortens_the_lease_unless_it_is_ignored(
    asked: dict[str, Any], expires: float
) -> None:
    labs = scheduler()
    found = recipe_set(ONE, **asked)
    labs.submit(found, 0)
    labs.started(found.id, 0)
    assert (0, "panic") in events(labs.panicked(found.id, 0, "Kernel panic - not syncing", 100))
    assert not labs.panicked(found.id, 0, "Kernel panic again", 101), "one event"
    assert labs.sets[found.id].runs[0].expires == expires


def test_each_panic_has_one_event_and_only_the_first_shortens_the_lease() -> None:
    labs = scheduler()
    found = recipe_set(ONE)
    labs.submit(found, 0)
    labs.started(found.id, 0)
    assert labs.panicked(found.id, 0, "first", 100, number=1, end=7)
    labs.extend(found.id, 10_000, 200, add=False)
    again = Scheduler()
    again.put_lab("east", LAB)
    again.restore(labs.sets.values())
    assert not again.panicked(found.id, 0, "first", 201, number=1, end=7), "the next daemon's look"
    assert events(again.panicked(found.id, 0, "second", 202, number=2, end=90)) == [(0, "panic")]
    (run,) = again.sets[found.id].runs
    assert (run.panic, run.panics, run.panic_end, run.expires) == ("first", 2, 90, 10_200)
    for number in range(3, 2 * MOST_PANICS):
        again.panicked(found.id, 0, "more", 203, number=number)
    assert again.sets[found.id].runs[0].panics == MOST_PANICS


def test_what_cannot_be_made_is_tried_again_with_another_size_and_then_fails() -> None:
    labs = scheduler()
    found = recipe_set(Options((SMALL, LARGE)))
    now, sizes = 0.0, []
    effects = labs.submit(found, now)
    for _ in range(ATTEMPTS):
        assert builds(effects) == [found.id]
        sizes.append(labs.sets[found.id].runs[0].size)
        assert removals(labs.not_started(found.id, "no valid host", now, again=Again.LATER)) == [
            found.id
        ]
        labs.removed(found.id, now)
        now = labs.deadline or now
        effects = labs.expire(now)
    assert sizes == [SMALL, LARGE, SMALL]
    ended = labs.sets[found.id]
    assert (ended.state, ended.result, ended.why) == (SetState.ENDED, "failed", "no valid host")


def test_what_one_lab_cannot_make_another_makes_of_its_smallest_size() -> None:
    labs = scheduler()
    labs.put_lab("west", replace(LAB, name="west"))
    options = Options((SMALL, LARGE))
    found = recipe_set(options)
    run = replace(found.runs[0], options={"east": options, "west": options})
    found = replace(found, runs=(run,), labs=("east", "west"))
    labs.submit(found, 0)
    places, now = [], 0
    for _ in range(ATTEMPTS):
        made = labs.sets[found.id]
        places.append((made.lab, made.runs[0].size))
        labs.not_started(found.id, "its region does not answer", now, again=Again.LATER)
        labs.removed(found.id, now)
        now += 100
        labs.decide(now)
    assert places == [("east", SMALL), ("west", SMALL), ("east", LARGE)]


def test_a_size_beyond_a_labs_limits_is_not_tried() -> None:
    labs = scheduler(replace(LAB, limits=Limits(memory=4 << 30)))
    found = recipe_set(Options((LARGE, SMALL)))
    assert builds(labs.submit(found, 0)) == [found.id]
    labs.not_started(found.id, "no host", 1, again=Again.LATER)
    labs.removed(found.id, 2)
    assert builds(labs.expire(100)) == [found.id]
    (run,) = labs.sets[found.id].runs
    assert run.size == SMALL
    assert fits_ever(labs.labs["east"], [Options((LARGE, SMALL))])
    assert not fits_ever(labs.labs["east"], [Options((LARGE,))])


def test_a_set_that_its_changed_lab_can_never_serve_holds_up_no_other() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=2), machines=machines("m1")))
    running = recipe_set(ONE, ONE)
    large = [recipe_set(ONE, ONE) for _ in range(LOOKAHEAD + 1)]
    loaned, small = recipe_set(Options((), ("m1",)), ONE), recipe_set(ONE)
    for each in (running, *large, loaned, small):
        labs.submit(each, 0)
    labs.put_lab("east", replace(LAB, limits=Limits(machines=1)))
    labs.started(running.id, 1)
    labs.release(running.id, None, 2)
    assert builds(labs.removed(running.id, 3)) == [small.id]
    why = "lab east can never have all of its machines at once: its file changed"
    assert {labs.reason(each.id) for each in (*large, loaned)} == {why}
    labs.put_lab("east", LAB)
    assert set(builds(labs.decide(4))) == {each.id for each in large}


def test_a_lab_that_makes_no_machines_any_more_makes_none_for_those_who_wait() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1), machines=machines("m1")))
    running, waiting = recipe_set(ONE), recipe_set(ONE)
    either = recipe_set(Options((SMALL,), ("m1",)))
    for each in (running, waiting):
        labs.submit(each, 0)
    labs.put_lab("east", replace(LAB, dynamic=False, machines=machines("m1")))
    assert builds(labs.submit(either, 1)) == [either.id]
    assert labs.sets[either.id].runs[0].machine == "m1"
    assert labs.reason(waiting.id).startswith("lab east can never have all of its machines")


def test_what_is_wrong_for_good_is_not_tried_again() -> None:
    labs = scheduler()
    found = recipe_set(ONE)
    labs.submit(found, 0)
    labs.not_started(found.id, "refused", 1, again=Again.NEVER)
    labs.removed(found.id, 2)
    assert labs.sets[found.id].result == "failed"


def test_what_is_wrong_for_good_in_one_lab_is_tried_in_others_alone() -> None:
    """A plan is refused where a region lacks what another has, or a distribution left the file."""
    labs = scheduler()
    labs.put_lab("west", replace(LAB, name="west"))
    found = recipe_set(ONE)
    run = replace(found.runs[0], options={"east": ONE, "west": ONE})
    found = replace(found, runs=(run,), labs=("east", "west"))
    labs.submit(found, 0)
    places, now = list[str](), 0
    while (made := labs.sets[found.id]).state is SetState.STARTING:
        places.append(made.lab)
        labs.not_started(found.id, "refused", now, again=Again.NEVER)
        labs.removed(found.id, now)
        now += 100
        labs.decide(now)
    assert places == ["east", "west"]
    assert (made.state, made.result, made.why) == (SetState.ENDED, "failed", "refused")


def test_a_set_waits_for_no_lab_that_is_gone_where_its_own_refuses_it() -> None:
    labs = scheduler()
    labs.put_lab("west", replace(LAB, name="west"))
    found = replace(recipe_set(ONE), labs=("east", "west"))
    labs.submit(found, 0)
    labs.drop_lab("west")
    assert not labs.orphaned()
    labs.not_started(found.id, "refused", 1, again=Again.NEVER)
    labs.removed(found.id, 2)
    assert labs.sets[found.id].result == "failed"


@pytest.mark.parametrize("when", ["queued", "starting", "running", "ending", "requeued"])
def test_a_set_can_be_cancelled_at_any_moment(when: str) -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    other = recipe_set(ONE)
    if when == "queued":
        labs.submit(other, 0)
    found = recipe_set(ONE)
    labs.submit(found, 0)
    if when in ("running", "ending"):
        labs.started(found.id, 1)
    if when == "ending":
        labs.release(found.id, None, 2)
    if when == "requeued":
        labs.not_started(found.id, "no", 2, again=Again.LATER)
    labs.cancel(found.id, "no longer needed", 3)
    labs.removed(found.id, 4)
    assert labs.sets[found.id].state is SetState.ENDED
    assert labs.sets[found.id].result == ("completed" if when == "ending" else "cancelled")
    if when == "queued":
        labs.cancel(other.id, "", 5)
        labs.removed(other.id, 6)
    assert labs.free("east") == Free(machines=1)


def test_owners_take_turns_and_priorities_go_first() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=1)))
    running = recipe_set(ONE)
    labs.submit(running, 0)
    greedy = [recipe_set(ONE, owner="greedy") for _ in range(3)]
    for each in greedy:
        labs.submit(each, 1)
    fair, urgent = recipe_set(ONE, owner="fair"), recipe_set(ONE, owner="greedy", priority=2)
    labs.submit(fair, 2)
    labs.submit(urgent, 3)
    order = [each for each in labs.in_order() if each]
    assert order == [urgent.id, greedy[0].id, fair.id, greedy[1].id, greedy[2].id] or order == [
        urgent.id, fair.id, *(each.id for each in greedy)
    ]  # fmt: skip


def test_a_large_set_is_not_passed_by_small_ones_for_ever() -> None:
    labs = scheduler(replace(LAB, limits=Limits(machines=2)))
    small = recipe_set(ONE, owner="a")
    labs.submit(small, 0)
    large = recipe_set(ONE, ONE, owner="b")
    labs.submit(large, 1)
    late = recipe_set(ONE, owner="c")
    assert not builds(labs.submit(late, 2)), "the machine that is left is kept for the large set"
    labs.started(small.id, 3)
    labs.release(small.id, None, 4)
    assert builds(labs.removed(small.id, 5)) == [large.id]


def test_sets_that_need_one_anothers_machines_do_not_lock_one_another() -> None:
    both = [Options((), ("m1",)), Options((), ("m2",))]
    labs = scheduler(replace(LAB, machines=machines("m1", "m2")))
    first, second = recipe_set(*both), recipe_set(*reversed(both))
    assert builds(labs.submit(first, 0)) == [first.id]
    assert not builds(labs.submit(second, 0))
    assert {labs.holder("east", name) for name in ("m1", "m2")} == {first.id}
    labs.cancel(first.id, "", 1)
    assert builds(labs.removed(first.id, 2)) == [second.id]


@pytest.mark.parametrize("prefer", list(Prefer))
def test_either_kind_is_preferred(prefer: Prefer) -> None:
    lab = replace(LAB, machines=machines("m1"), prefer=prefer)
    labs = scheduler(lab)
    found = recipe_set(Options((SMALL,), ("m1",)), ONE)
    labs.submit(found, 0)
    first, second = labs.sets[found.id].runs
    assert first.machine == ("m1" if prefer is Prefer.REGISTERED else "")
    assert second.size == SMALL


def test_the_other_kind_is_taken_where_the_preferred_one_is_given_away() -> None:
    lab = replace(LAB, machines=machines("m1"), limits=Limits(machines=1))
    labs = scheduler(lab)
    found = recipe_set(Options((SMALL,), ("m1",)), Options((SMALL,), ("m1",)))
    assert builds(labs.submit(found, 0)) == [found.id]
    assert sorted(each.machine for each in labs.sets[found.id].runs) == ["", "m1"]


def test_a_machine_that_fails_again_and_again_is_broken_until_it_is_repaired() -> None:
    labs = scheduler(replace(LAB, machines=machines("m1"), failures=2))
    only = Options((), ("m1",))
    for now in (0.0, 10_000.0):
        found = recipe_set(only, distro="debian")
        assert builds(labs.submit(found, now)) == [found.id]
        labs.started(found.id, now)
        assert removals(labs.expire(now + 1800)) == [found.id]
        labs.removed(found.id, now + 1801)
    assert "2 failures in a row" in labs.state_of("east", "m1").broken
    waiting = recipe_set(only)
    assert not builds(labs.submit(waiting, 20_000))
    labs.set_broken("east", "m1", "")
    assert builds(labs.decide(20_001)) == [waiting.id]


def refused(labs: Scheduler, found: RecipeSet, machine: str, now: float) -> list[Effect]:
    """A BMC did not answer; what was begun of the set is gone."""
    labs.not_started(found.id, "no session", now, again=Again.LATER, machines=[machine])
    return labs.removed(found.id, now)


def test_a_set_whose_machine_does_not_start_gets_another_one_at_once() -> None:
    labs = scheduler(replace(LAB, machines=machines("m1", "m2", "m3"), failures=2))
    first, other = recipe_set(Options((), ("m1", "m2"))), recipe_set(Options((), ("m2", "m3")))
    labs.submit(first, 0)
    assert labs.sets[first.id].runs[0].machine == "m1"
    assert builds(refused(labs, first, "m1", 1)) == [first.id]
    assert labs.sets[first.id].runs[0].machine == "m2"
    assert (labs.state_of("east", "m1").failures, labs.state_of("east", "m1").broken) == (1, "")
    labs.submit(other, 2)
    labs.started(other.id, 3)
    assert builds(refused(labs, first, "m2", 4)) == [], "it has no others: it waits for these"
    assert labs.reason(first.id) == "no session"
    assert builds(labs.expire(1000)) == [first.id]
    refused(labs, first, "m1", 1001)
    assert "2 failures in a row" in labs.state_of("east", "m1").broken


def test_a_set_waits_for_a_machine_that_others_have_rather_than_for_one_that_does_not_start() -> (
    None
):
    labs = scheduler(replace(LAB, machines=machines("m1", "m2")))
    has, found = recipe_set(Options((), ("m2",))), recipe_set(Options((), ("m1", "m2")))
    for each in (has, found):
        labs.submit(each, 0)
    labs.started(has.id, 0)
    assert not builds(refused(labs, found, "m1", 1))
    assert not builds(labs.expire(1000))
    labs.release(has.id, None, 1001)
    assert builds(labs.removed(has.id, 1002)) == [found.id]


def test_a_start_that_failed_is_tried_in_another_lab_at_once() -> None:
    labs = scheduler()
    labs.put_lab("west", replace(LAB, name="west"))
    found = recipe_set(ONE)
    run = replace(found.runs[0], options={"east": ONE, "west": ONE})
    found = replace(found, runs=(run,), labs=("east", "west"))
    labs.submit(found, 0)
    for lab, again in (("east", ["west"]), ("west", [])):
        assert labs.sets[found.id].lab == lab
        labs.not_started(found.id, "no answer", 1, again=Again.LATER)
        effects = labs.removed(found.id, 1)
        assert [labs.sets[each].lab for each in builds(effects)] == again
    assert labs.reason(found.id) == "no answer"


def test_failures_in_a_row_end_with_a_start_where_nothing_is_installed() -> None:
    labs = scheduler(replace(LAB, machines=machines("m1"), failures=2))
    for now in (0, 10_000):
        found = recipe_set(Options((), ("m1",)))
        labs.submit(found, now)
        refused(labs, found, "m1", now + 1)
        assert builds(labs.expire(now + 1000)) == [found.id]
        labs.started(found.id, now + 1001)
        labs.release(found.id, None, now + 1002)
        labs.removed(found.id, now + 1003)
    assert labs.state_of("east", "m1").broken == ""


def test_a_reserved_machine_is_loaned_to_no_recipe() -> None:
    labs = scheduler(replace(LAB, machines=machines("m1")))
    labs.reserve("east", "m1", "ada")
    found = recipe_set(Options((), ("m1",)))
    assert not builds(labs.submit(found, 0))
    labs.reserve("east", "m1", "")
    assert builds(labs.decide(1)) == [found.id]


def test_a_drained_lab_starts_nothing_and_says_so() -> None:
    labs = scheduler()
    labs.drained.add("east")
    found = recipe_set(ONE)
    assert not builds(labs.submit(found, 0))
    assert labs.reason(found.id) == "lab east is drained"


def test_the_quota_of_an_owner_does_not_hold_up_others() -> None:
    labs = scheduler(replace(LAB, limits=Limits(per_owner=1)))
    labs.submit(recipe_set(ONE, owner="a"), 0)
    again, other = recipe_set(ONE, owner="a"), recipe_set(ONE, owner="b")
    assert not builds(labs.submit(again, 1))
    assert labs.reason(again.id) == "a has 1 of 1 machines of lab east"
    assert builds(labs.submit(other, 2)) == [other.id]


@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.sampled_from("abcd"))), max_size=6),
    st.integers(0, 4),
    st.sets(st.sampled_from("abcd")),
    st.sampled_from(list(Prefer)),
)
def test_an_assignment_is_found_where_there_is_one(
    wanted: list[tuple[bool, set[str]]], free: int, idle: set[str], prefer: Prefer
) -> None:
    recipes = [Options((SMALL,) if size else (), tuple(sorted(names))) for size, names in wanted]
    found = assign(recipes, Free(machines=free), frozenset(idle), prefer=prefer)
    assert (found is not None) == _possible(recipes, free, frozenset(idle))
    if found is not None:
        names = [each for each in found if isinstance(each, str)]
        assert len(names) == len(set(names))
        assert set(names) <= idle
        assert len(found) - len(names) <= free


def _possible(recipes: list[Options], free: int, idle: frozenset[str]) -> bool:
    if not recipes:
        return True
    first, *rest = recipes
    if first.sizes and free and _possible(rest, free - 1, idle):
        return True
    return any(name in idle and _possible(rest, free, idle - {name}) for name in first.machines)


SIZES = [Size("s", 1, 1 << 30), Size("m", 2, 3 << 30), Size("l", 4, 8 << 30)]


@given(
    st.lists(
        st.tuples(st.sampled_from([None, *SIZES]), st.sets(st.sampled_from("abc"))), max_size=5
    ),
    st.integers(0, 16),
    st.sets(st.sampled_from("abc")),
    st.sampled_from(list(Prefer)),
    st.sampled_from(["memory", "cpus"]),
)
def test_an_assignment_is_found_where_sizes_differ(
    wanted: list[tuple[Size | None, set[str]]],
    left: int,
    idle: set[str],
    prefer: Prefer,
    limit: str,
) -> None:
    recipes = [Options((size,) if size else (), tuple(sorted(names))) for size, names in wanted]
    free = Free(memory=left << 30) if limit == "memory" else Free(cpus=left)
    found = assign(recipes, free, frozenset(idle), prefer=prefer)
    assert (found is not None) == _possible_within(recipes, free, frozenset(idle))
    if found is not None:
        names = [each for each in found if isinstance(each, str)]
        assert len(names) == len(set(names))
        assert set(names) <= idle
        for each in found:
            if isinstance(each, Size):
                assert free.holds(each)
                free = free.without(each)


def _possible_within(recipes: list[Options], free: Free, idle: frozenset[str]) -> bool:
    if not recipes:
        return True
    first, *rest = recipes
    if any(free.holds(s) and _possible_within(rest, free.without(s), idle) for s in first.sizes):
        return True
    return any(n in idle and _possible_within(rest, free, idle - {n}) for n in first.machines)


def test_a_set_whose_sizes_differ_gets_what_there_is() -> None:
    """The second recipe took the memory that the third needed, and left its machine idle."""
    small, large = SIZES[0], SIZES[2]
    recipes = [Options((), ("m2",)), Options((small,), ("m1",)), Options((large,), ("m2",))]
    idle = frozenset({"m1", "m2"})
    assert assign(recipes, Free(memory=8 << 30), idle) == ["m2", "m1", large]
    assert assign(recipes, Free(memory=9 << 30), idle) == ["m2", small, large]


@dataclass
class World:
    """Machines that fail, hang, panic and never report, and a daemon that ends now and then."""

    labs: Scheduler
    chance: random.Random
    now: float = 0.0
    coming: list[tuple[float, int, str, str, int]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    removed: set[str] = field(default_factory=set)
    out: set[str] = field(default_factory=set)
    built: dict[str, int] = field(default_factory=dict)

    def later(self, seconds: float, what: str, set_id: str, recipe: int = 0) -> None:
        event = (self.now + seconds, next(self.numbers), what, set_id, recipe)
        heapq.heappush(self.coming, event)

    def carry_out(self, effects: list[Effect]) -> None:
        decided = next(self.numbers)
        if len(self.labs.sets) < 1000 or decided % 500 == 0:
            self.check(self.labs.sets)
        elif decided % 10 == 0:  # to look at all of them takes long
            self.check(self.out)
        for each in effects:
            if isinstance(each, Build):
                self.built[each.set_id] = self.built.get(each.set_id, 0) + 1
                self.removed.discard(each.set_id)
                self.out.add(each.set_id)
                fails = self.chance.random() < 0.1
                self.later(self.chance.uniform(1, 90), "broke" if fails else "up", each.set_id)
            elif isinstance(each, Remove):
                self.later(self.chance.uniform(1, 20), "gone", each.set_id)

    def check(self, ids: Iterable[str]) -> None:
        """Limits hold, and no machine has two holders."""
        lab = self.labs.labs["east"]
        out = [self.labs.sets[each] for each in ids if self.labs.sets[each].state in HOLDING]
        runs = [run for each in out for run in each.runs]
        assert sum(run.size is not None for run in runs) <= lab.limits.machines
        assert sum(run.size.cpus for run in runs if run.size) <= lab.limits.cpus
        loaned = [run.machine for run in runs if run.machine]
        assert len(loaned) == len(set(loaned))

    def step(self) -> bool:
        due = [each for each in (self.labs.deadline,) if each is not None]
        if self.coming and (not due or self.coming[0][0] <= due[0]):
            self.now, _, what, set_id, recipe = heapq.heappop(self.coming)
            self.carry_out(self._happen(what, set_id, recipe))
            return True
        if due:
            self.now = max(self.now, due[0])
            self.carry_out(self.labs.expire(self.now))
            return True
        return False

    def _happen(self, what: str, set_id: str, recipe: int) -> list[Effect]:
        labs, now = self.labs, self.now
        match what:
            case "up":
                effects = labs.started(set_id, now)
                for number in range(len(labs.sets[set_id].runs) if set_id in labs.sets else 0):
                    fate = self.chance.choice(["done", "done", "done", "fail", "panic", "never"])
                    self.later(self.chance.uniform(1, 60), "begin", set_id, number)
                    self.later(self.chance.uniform(60, 300), fate, set_id, number)
                return effects
            case "broke":
                return labs.not_started(set_id, "no valid host", now, again=Again.LATER)
            case "gone":
                assert set_id not in self.removed, "it is removed once"
                self.removed.add(set_id)
                self.out.discard(set_id)
                return labs.removed(set_id, now)
            case "begin":
                return labs.install_started(set_id, recipe, now)
            case "done":
                self.later(self.chance.uniform(1, 100), "release", set_id, recipe)
                return labs.installed(set_id, recipe, now)
            case "fail":
                return labs.install_failed(set_id, recipe, "no disk", now)
            case "panic":
                return labs.panicked(set_id, recipe, "Kernel panic", now)
            case "release":
                return labs.release(set_id, recipe, now)
        return []


def _restarted(before: Scheduler) -> tuple[Scheduler, list[Effect]]:
    """As a daemon that was killed finds it: what was stored, and nothing else."""
    after = Scheduler()
    for key, lab in before.labs.items():
        after.put_lab(key, lab)
    after.machines = dict(before.machines)
    stored = [each for each in before.sets.values() if each.state is not SetState.ENDED]
    return after, after.restore(stored)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1 << 30))
def test_every_set_ends_and_nothing_is_left_whatever_machines_do(seed: int) -> None:
    _hour(seed, requests=60, restarts=True)


def test_ten_thousand_requests_in_an_hour() -> None:
    _hour(1, requests=10_000, restarts=False, seconds=3600)


def _hour(seed: int, *, requests: int, restarts: bool, seconds: float = 600) -> None:
    chance = random.Random(seed)
    lab = replace(
        LAB,
        timeouts=Timeouts(60, 300, 30),
        lease=200,
        limits=Limits(machines=400 if requests > 1000 else 8, cpus=900 if requests > 1000 else 16),
        machines=machines(*(f"m{n}" for n in range(6))),
        failures=10_000,
    )
    world = World(scheduler(lab), chance)
    numbers = []
    for at in sorted(chance.uniform(0, seconds) for _ in range(requests)):
        options = [
            chance.choice(
                [ONE, Options((SMALL, LARGE)), Options((LARGE,)), Options((), ("m1", "m2"))]
                if requests <= 1000 or chance.random() < 0.01
                else [ONE]
            )
            for _ in range(chance.choice([1, 1, 1, 2]))
        ]
        found = recipe_set(
            *options, owner=chance.choice("abc"), priority=chance.choice([0, 0, 1]), distro="d"
        )
        numbers.append((at, found))
    known = {found.id for _, found in numbers}
    waiting = iter(numbers)
    coming = next(waiting, None)
    while True:
        upcoming = [each[0] for each in world.coming[:1]]
        upcoming += [each for each in (world.labs.deadline,) if each is not None]
        if coming is not None and (not upcoming or coming[0] <= min(upcoming)):
            world.now = max(world.now, coming[0])
            world.carry_out(world.labs.submit(coming[1], world.now))
            coming = next(waiting, None)
        elif not world.step():
            break
        if restarts and chance.random() < 0.02:
            world.coming = [each for each in world.coming if each[2] not in ("up", "broke", "gone")]
            heapq.heapify(world.coming)
            ended = {k: v for k, v in world.labs.sets.items() if v.state is SetState.ENDED}
            world.labs, effects = _restarted(world.labs)
            world.labs.sets |= ended
            world.carry_out(effects)
            world.carry_out(world.labs.decide(world.now))
    assert set(world.labs.sets) == known, "none is lost"
    states = {each.state for each in world.labs.sets.values()}
    assert states == {SetState.ENDED}, "none waits for ever"
    assert set(world.built) <= world.removed, "nothing that was made is left"
    assert world.labs.free("east") == Free.of(lab.limits)
    assert not any(world.labs.holder("east", each.name) for each in lab.machines)
