"""Labs, recipe sets and leases, without passwords and secrets; times by RFC 3339, in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LabSummary:
    """`dynamic`, `loaned`: machines that recipes have; `limit`: of the dynamic ones."""

    lab: str
    host: str
    state: str
    dynamic: int
    limit: int
    registered: int
    loaned: int
    broken: int
    queued: int


@dataclass(frozen=True, slots=True)
class OfferedFlavor:
    """A flavor of a lab's dynamic machines."""

    name: str
    cpus: int
    memory_mib: int
    disk_gib: int


@dataclass(frozen=True, slots=True)
class LabLimits:
    """0: no limit."""

    machines: int
    cpus: int
    memory_mib: int
    per_owner: int


@dataclass(frozen=True, slots=True)
class FreeCapacity:
    """What is left; None: without a limit."""

    machines: int | None
    cpus: int | None
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class MachineStatus:
    """A registered machine. `set`: that has it; `inventory`: when the probe last reported what it
    has, None where that does not count; `console`: why it is not recorded; `beyond`: why the daemon
    does not go to its BMC, "" where it does.
    """

    machine: str
    state: str
    set: str
    reserved: str
    broken: str
    failures: int
    arch: str
    cpus: int
    memory_mib: int
    disks_gib: Sequence[int]
    macs: Sequence[str]
    inventory: str | None
    bmc: str
    console: str
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class LabDetails(LabSummary):
    """One lab. `flavors`: none where it makes no dynamic machines."""

    flavors: Sequence[OfferedFlavor]
    disks: str
    prefer: str
    lease_seconds: float
    limits: LabLimits
    free: FreeCapacity
    distros: Sequence[str]
    users: Sequence[str]
    operators: Sequence[str]
    machines: Sequence[MachineStatus]


@dataclass(frozen=True, slots=True)
class RefusedFlavor:
    """A flavor of which no machine can be made now."""

    flavor: str
    why: str


@dataclass(frozen=True, slots=True)
class CheckReason:
    """Why a recipe gets no machine, or what of it is not read, and the element of the request."""

    line: int
    column: int
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class CheckedRecipe:
    """What a recipe would get in a lab. `answer`: possible, no-flavor or precluded, of dynamic
    machines; `chosen`: their flavor, "" for none. `starts`: whether its whole set may start there.
    `notes`: what of the recipe is not read, in the first of its rows.
    """

    recipe: str
    line: int
    lab: str
    answer: str
    chosen: str
    disk_gib: int
    flavors: Sequence[str]
    machines: Sequence[str]
    distro: str
    reasons: Sequence[CheckReason]
    notes: Sequence[CheckReason]
    starts: bool


@dataclass(frozen=True, slots=True)
class SetSummary:
    """`state`: queued, starting, running, ending or ended. `position`: among those that wait for
    the same lab, None once it does not. `reason`: why it waits, or ended. `result`: completed,
    expired, failed or cancelled, "" before. `expires`: the last of its leases.
    """

    request: int
    set: str
    owner: str
    state: str
    lab: str
    recipes: int
    priority: int
    position: int | None
    reason: str
    result: str
    submitted: str | None
    expires: str | None
    whiteboard: str


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """`stage`: queued, building, booting, installing or ready; at last released, failed, expired or
    cancelled. `console`: recorded, or why it is not; "" while there is no machine. `panic`: the
    line of the first one.
    """

    lease: str
    recipe: str
    role: str
    stage: str
    flavor: str
    machine: str
    node: str
    distro: str
    since: str | None
    expires: str | None
    console: str
    panic: str
    why: str


@dataclass(frozen=True, slots=True)
class LeaseMachine(LeaseStatus):
    """`uuid`: of a dynamic machine while it is there, as SMBIOS has it; "" else."""

    uuid: str
    power: str


@dataclass(frozen=True, slots=True)
class SetEvent:
    """`recipe`: its number, None for the whole set."""

    at: str | None
    recipe: int | None
    event: str
    message: str


@dataclass(frozen=True, slots=True)
class SetEnd:
    """The last event of a set that is followed."""

    state: str
    result: str
    message: str


@dataclass(frozen=True, slots=True)
class SetDetails(SetSummary):
    """One set. `attempts`: how often it was started; `history`: its first and last events."""

    attempts: int
    leases: Sequence[LeaseStatus]
    history: Sequence[SetEvent]


@dataclass(frozen=True, slots=True)
class LeasePower:
    """What became of a chassis command."""

    lease: str
    result: str
