"""What an operation reports while it runs, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """What happened to one move, or to the operation as a whole."""

    NOTE = "note"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    RETRYING = "retrying"


@dataclass(frozen=True, slots=True)
class Progress:
    """One fact. `done` of `total` moves are over; `what` is a resource, "" the operation."""

    phase: Phase
    message: str
    what: str = ""
    node: str = ""
    done: int = 0
    total: int = 0


Emit = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Failure:
    """A move that failed, with the message for its user. `passes`: for want of capacity; `nowhere`:
    of a computer.
    """

    what: str
    node: str
    message: str
    passes: bool = False
    nowhere: bool = False


@dataclass(slots=True)
class Outcome:
    """How a plan ended. `skipped`: moves that waited for one that failed."""

    done: int = 0
    total: int = 0
    failures: list[Failure] = field(default_factory=list)
    skipped: int = 0

    @property
    def complete(self) -> bool:
        return self.done == self.total
