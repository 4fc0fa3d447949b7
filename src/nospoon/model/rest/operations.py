"""Operations, and what happens in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nospoon.model.rest.labs import MachineStatus


@dataclass(frozen=True, slots=True)
class OperationSummary:
    """Times are by RFC 3339, in UTC; `finished` is None while it runs."""

    id: str
    kind: str
    cluster: str
    state: str
    created: str
    finished: str | None
    message: str


@dataclass(frozen=True, slots=True)
class OperationDetails(OperationSummary):
    """`result`: as its kind has it."""

    result: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperationEvent:
    """A fact: `done` of `total` steps are over; `what` is a resource, "" the operation."""

    seq: int
    phase: str
    message: str
    what: str = ""
    node: str = ""
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class FailedStep:
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What results of several kinds have. `nodes`: rows of `verify`; `machine`: of a lab, whose
    inventory was taken.
    """

    failures: Sequence[FailedStep] = ()
    nodes: Sequence[Mapping[str, object]] = ()
    machine: MachineStatus | None = None


@dataclass(frozen=True, slots=True)
class OperationEnd:
    """The last event."""

    state: str
    message: str
    result: OperationResult = field(default_factory=OperationResult)
