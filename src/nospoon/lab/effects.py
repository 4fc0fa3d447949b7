"""What the scheduler of labs has its caller do, and what it reports."""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.lab.work import Cause


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
