"""Sets whose machines could not be made: whether, when and in which labs they are started again.

A set goes back to the queue, where it keeps its place, and tries the labs first in which fewer of
its starts failed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from nospoon.lab.work import RecipeSet, SetState, Stage

ATTEMPTS = 3
"""Starts of a set whose machines cannot be made."""
BACKOFF = 15.0
"""Seconds until the second start; doubled for the third."""


def after_failure(
    found: RecipeSet, why: str, now: float, *, again: bool, known: Container[str]
) -> RecipeSet:
    """A set whose start failed, before what was made of it is removed. `again`: it may be started
    in the same lab, too. `known`: keys of labs that are there.
    """
    others = tuple(key for key in found.labs if key != found.lab and key in known)
    labs = found.labs if again else others
    wait = BACKOFF * 2 ** (found.attempts - 1)
    found = replace(found, why=why, not_before=now + wait)
    if labs and found.attempts < ATTEMPTS:
        return replace(found, requeue=True, labs=labs)
    runs = tuple(
        run if run.over else replace(run, stage=Stage.FAILED, why=why, since=now)
        for run in found.runs
    )
    return replace(found, requeue=False, runs=runs)


def queued_again(found: RecipeSet, now: float) -> RecipeSet:
    """The same set, of which nothing is left, in the queue."""
    runs = tuple(
        replace(
            run, stage=run.stage if run.over else Stage.QUEUED, size=None, machine="", node="",
            since=now,
        )
        for run in found.runs
    )  # fmt: skip
    return replace(
        found, state=SetState.QUEUED, runs=runs, failed_in=(*found.failed_in, found.lab), lab="",
        requeue=False, result="",
    )  # fmt: skip


def in_turn(found: RecipeSet, labs: Iterable[str]) -> list[str]:
    """Labs in the order in which a set tries them."""
    return sorted(labs, key=found.failed_in.count)
