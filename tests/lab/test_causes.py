"""Failures of sets: each has a cause that is documented, by which metrics count it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from nospoon.lab import scheduler as module
from nospoon.lab.effects import Effect, Happened
from nospoon.lab.scheduler import LOOPS, Scheduler
from nospoon.lab.work import Again, Asked, Cause, Options, RecipeSet, Run, Size
from nospoon.model.lab import Lab, Timeouts

FAILURES = {"failed", "not started", "panic", "expired"}
HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "labs.md"
LATE = 10**6


def starting() -> Scheduler:
    labs = Scheduler()
    labs.put_lab("k", Lab("k", timeouts=Timeouts(boot=10, install=20, panic=30)))
    run = Run(Asked("r", distro="d"), {"k": Options((Size("small", 1, 1),))})
    labs.submit(RecipeSet("1", 1, 0, "ada", (run,), labs=("k",)), 0)
    return labs


def booting() -> Scheduler:
    labs = starting()
    labs.started("1", 0)
    return labs


def installing() -> Scheduler:
    labs = booting()
    labs.install_started("1", 0, 0)
    return labs


def looping() -> list[Effect]:
    labs = booting()
    return [each for _ in range(LOOPS + 1) for each in labs.install_started("1", 0, 0)]


def broken() -> list[Effect]:
    return starting().not_started("1", "", 0, again=Again.LATER, cause=Cause.INTERNAL_ERROR)


CASES: dict[Cause, Callable[[], list[Effect]]] = {
    Cause.NO_CAPACITY: lambda: starting().not_started("1", "", 0, again=Again.CAPACITY),
    Cause.PLAN_REFUSED: lambda: starting().not_started("1", "", 0, again=Again.NEVER),
    Cause.PROVISION_FAILED: lambda: starting().not_started("1", "", 0, again=Again.LATER),
    Cause.INTERNAL_ERROR: broken,
    Cause.BOOT_TIMEOUT: lambda: booting().expire(LATE),
    Cause.INSTALL_TIMEOUT: lambda: installing().expire(LATE),
    Cause.INSTALL_LOOP: looping,
    Cause.INSTALL_FAILED: lambda: installing().install_failed("1", 0, "no disk", 1),
    Cause.KERNEL_PANIC: lambda: booting().panicked("1", 0, "Kernel panic", 1),
}


@pytest.mark.parametrize("cause", list(Cause))
def test_each_failure_has_its_cause(cause: Cause) -> None:
    failed = [each for each in CASES[cause]() if isinstance(each, Happened) and each.cause]
    assert [each.cause for each in failed] == [cause]
    assert {each.event for each in failed} <= FAILURES


def test_a_lease_that_ends_in_time_and_what_follows_a_panic_are_none() -> None:
    labs = booting()
    labs.installed("1", 0, 1)
    assert not any(getattr(each, "cause", None) for each in labs.expire(LATE))
    labs = booting()
    labs.panicked("1", 0, "Kernel panic", 1)
    assert not any(getattr(each, "cause", None) for each in labs.expire(LATE))


def test_no_failure_in_the_code_is_without_a_cause() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    calls = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and getattr(each.func, "id", "") == "Happened"
    ]
    failures = [
        each
        for each in calls
        if isinstance(each.args[2], ast.Constant) and each.args[2].value in FAILURES
    ]
    assert len(failures) == len(FAILURES)
    assert all(len(each.args) == 5 for each in failures)


def test_the_documented_causes_are_those_that_there_are() -> None:
    table = HOWTO.read_text().partition("| cause | means |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Cause)
