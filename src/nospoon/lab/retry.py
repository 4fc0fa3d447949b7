"""Sets whose machines could not be made: whether, when and in which labs they are started again.

A set goes back to the queue, where it keeps its place, and tries the labs first in which fewer of
its starts failed: others than the one where it just failed at once, and there, too, without the
registered machines that did not start. Want of capacity is no failure: `shortage` says when such a
lab is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace

from nospoon.lab.work import Again, RecipeSet, SetState, Stage

ATTEMPTS = 3
"""Starts of a set whose machines cannot be made."""
BACKOFF = 15.0
"""Seconds until the second start; doubled for the third."""


def after_failure(
    found: RecipeSet,
    why: str,
    now: float,
    *,
    again: Again,
    known: Container[str],
    machines: Iterable[str] = (),
) -> RecipeSet:
    """A set whose start failed, before what was made of it is removed. `known`: keys of labs that
    are there; `machines`: registered ones that did not start.
    """
    if again is Again.CAPACITY:
        return replace(found, why=why, requeue=True, short=found.short + 1, not_before=0)
    others = tuple(key for key in found.labs if key != found.lab and key in known)
    labs = found.labs if again is Again.LATER else others
    failures = found.attempts - found.short
    wait = BACKOFF * 2 ** (failures - 1)
    failed_in = (*found.failed_in, found.lab)
    avoids = dict.fromkeys((*found.avoids, *((found.lab, each) for each in machines)))
    found = replace(
        found, why=why, not_before=now + wait, failed_in=failed_in, avoids=tuple(avoids)
    )
    if labs and failures < ATTEMPTS:
        return replace(found, requeue=True, labs=labs)
    runs = tuple(
        run if run.over else replace(run, stage=Stage.FAILED, why=why, since=now)
        for run in found.runs
    )
    return replace(found, requeue=False, runs=runs)


def is_open(found: RecipeSet, key: str, now: float) -> bool:
    """Whether a set may be started in a lab now, be it without machines that it avoids there."""
    return now >= found.not_before or key not in found.failed_in or any(avoided_in(found, key))


def avoided_in(found: RecipeSet, key: str) -> Iterator[str]:
    """Registered machines of a lab that a set avoids."""
    return (machine for lab, machine in found.avoids if lab == key)


def queued_again(found: RecipeSet, now: float) -> RecipeSet:
    """The same set, of which nothing is left, in the queue."""
    runs = tuple(
        replace(
            run, stage=run.stage if run.over else Stage.QUEUED, size=None, machine="", node="",
            since=now,
        )
        for run in found.runs
    )  # fmt: skip
    return replace(found, state=SetState.QUEUED, runs=runs, lab="", requeue=False, result="")


def in_turn(found: RecipeSet, labs: Iterable[str], is_short: Callable[[str], bool]) -> list[str]:
    """Labs in the order in which a set tries them. `is_short`: whether sets wait for capacity of a
    lab.
    """
    return sorted(labs, key=lambda key: (found.failed_in.count(key), is_short(key)))
