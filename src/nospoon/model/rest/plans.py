"""Plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.rest.operations import OperationDetails


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs. `rule` is the connection's: live, at power-off, replace."""

    field: str
    observed: str
    desired: str
    rule: str


@dataclass(frozen=True, slots=True)
class Remembered:
    """One thing that a file says again, of which no resource is made. `sign` as in a plan; `rule`:
    what it reaches.
    """

    sign: str
    what: str
    before: str
    after: str
    rule: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """`action`: create, change, replace, delete, or what that is for a machine of others. `host`:
    its place, a host, or `Ironic` or `Nova`.
    """

    action: str
    kind: str
    host: str
    name: str
    node: str
    moves_from: str
    why: str
    at_power_off: bool
    changes: Sequence[FieldChange]


@dataclass(frozen=True, slots=True)
class PlanDocument:
    """`later`: what is deleted once machines are off; `remembered`: what changes in the store;
    `returns`: VMs and containers that get a root which they had before.
    """

    cluster: str
    cluster_id: str
    fingerprint: str
    counts: Mapping[str, int]
    unchanged: int
    notes: Sequence[str]
    remembers: bool
    remembered: Sequence[Remembered]
    steps: Sequence[PlannedStep]
    later: Sequence[PlannedStep]
    returns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """`text`: for people."""

    plan: PlanDocument
    text: str


@dataclass(frozen=True, slots=True)
class BegunPlan(ShownPlan):
    """`operation` is None where there is nothing to do."""

    operation: OperationDetails | None
