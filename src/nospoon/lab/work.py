"""Recipe sets at work: what each recipe may have, has, and how far it is.

All values; `scheduler` replaces them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from nospoon.model.principal import OwnerId


class SetState(StrEnum):
    """QUEUED: it has nothing. STARTING: its machines are made and started. RUNNING: all of them
    were started. ENDING: they are removed. ENDED: nothing is left.
    """

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


class Stage(StrEnum):
    """Of a recipe's machine. READY: installed, or started where nothing is installed. The last four
    are its end.
    """

    QUEUED = "queued"
    BUILDING = "building"
    BOOTING = "booting"
    INSTALLING = "installing"
    READY = "ready"
    RELEASED = "released"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Cause(StrEnum):
    """Why something of a set failed, as metrics count it. NO_CAPACITY: its lab's host, cloud or
    quota was full, drained or unreachable. PLAN_REFUSED: the lab can never make its machines.
    PROVISION_FAILED: they could not be made or started. INTERNAL_ERROR: a defect of nospoon.
    BOOT_TIMEOUT, INSTALL_TIMEOUT: the watchdog ended it. INSTALL_LOOP: its installer started again
    and again. INSTALL_FAILED: the installer reported it, or the console shows it. KERNEL_PANIC: the
    console shows one.
    """

    NO_CAPACITY = "no_capacity"
    PLAN_REFUSED = "plan_refused"
    PROVISION_FAILED = "provision_failed"
    INTERNAL_ERROR = "internal_error"
    BOOT_TIMEOUT = "boot_timeout"
    INSTALL_TIMEOUT = "install_timeout"
    INSTALL_LOOP = "install_loop"
    INSTALL_FAILED = "install_failed"
    KERNEL_PANIC = "kernel_panic"


class Again(StrEnum):
    """Whether a set whose machines could not be made may start again. NEVER: not in that lab.
    LATER: a few times. CAPACITY: as often as it takes, as the lab's host or cloud is full.
    """

    NEVER = "never"
    LATER = "later"
    CAPACITY = "capacity"


OVER = frozenset({Stage.RELEASED, Stage.FAILED, Stage.EXPIRED, Stage.CANCELLED})
UNLEASED = frozenset({Stage.QUEUED, Stage.BUILDING})
"""Stages before there is a lease, or a watchdog."""
HOLDING = frozenset({SetState.STARTING, SetState.RUNNING, SetState.ENDING})
"""States in which a set has machines."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a dynamic machine takes of a lab's limits; `memory` in bytes. `disk`: bytes of its first
    disk, 0 for what the flavor has.
    """

    flavor: str
    cpus: int
    memory: int
    disk: int = 0


@dataclass(frozen=True, slots=True)
class Options:
    """What a recipe may have in one lab: sizes, the smallest first, and registered machines.
    `distro`: what installs it there, "" for nothing; None in records of earlier versions, where
    `Asked.distro` holds for all labs.
    """

    sizes: tuple[Size, ...] = ()
    machines: tuple[str, ...] = ()
    distro: str | None = None

    @property
    def none(self) -> bool:
        return not self.sizes and not self.machines


@dataclass(frozen=True, slots=True)
class Asked:
    """What a recipe asks for. `path` and `line` of it in the request. `distro`: of the lab where it
    has a machine, while it has none of the first that fits. `seconds` of its lease, 0 for the
    lab's.
    `panic_ignored`: a panic is shown, and ends nothing. `ends_on_panic`: at once. `notes`: what it
    has that is passed over.
    """

    path: str
    line: int = 0
    distro: str = ""
    kickstart: str = ""
    cmdline: str = ""
    role: str = ""
    seconds: float = 0
    panic_ignored: bool = False
    ends_on_panic: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What a machine reports of its installation. `why`: of a failure."""

    event: Literal["started", "done", "failed"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A recipe. `size` or `machine`: what it was given; `node`: the name of a dynamic machine.
    `expires`: Unix seconds, 0 while there is no lease. `secret`: of its callbacks. `fetched`: how
    often its kickstart was. `early`: what its machine reported while others of its set were still
    being started, in order. `panic`: the line of the first one, of `panics`, the
    last of which is in the console before `panic_end`.
    """

    asked: Asked
    options: Mapping[str, Options]
    stage: Stage = Stage.QUEUED
    size: Size | None = None
    machine: str = ""
    node: str = ""
    secret: str = ""
    since: float = 0
    expires: float = 0
    fetched: int = 0
    early: tuple[Report, ...] = ()
    panic: str = ""
    panics: int = 0
    panic_end: int = 0
    why: str = ""

    @property
    def over(self) -> bool:
        return self.stage in OVER

    def asked_in(self, lab: str) -> Asked:
        """What it asks for in a lab, by the lab's key."""
        distro = self.options.get(lab, Options()).distro
        return self.asked if distro is None else replace(self.asked, distro=distro)


@dataclass(frozen=True, slots=True)
class RecipeSet:
    """`number`: in the order of submission. `submitter`: who did that; `owner`: who gets
    the machines. `lab`: where it has machines, "" while it has none; `labs`: where it may have
    them. `attempts`: how often it was started; `short`: how often of these there was no capacity.
    `failed_in`: the lab of each other start that failed, where it is not started again before
    `not_before`, Unix seconds; `avoids`: (lab, machine) of registered machines that did not start,
    which it gets again only where it can have no others. `result`: what it ended with.
    """

    id: str
    number: int
    submitter: OwnerId
    owner: str
    runs: tuple[Run, ...]
    priority: int = 0
    submitted: float = 0
    state: SetState = SetState.QUEUED
    lab: str = ""
    key: str = ""
    whiteboard: str = ""
    attempts: int = 0
    short: int = 0
    failed_in: tuple[str, ...] = ()
    avoids: tuple[tuple[str, str], ...] = ()
    not_before: float = 0
    started: float = 0
    ended: float = 0
    requeue: bool = False
    result: str = ""
    why: str = ""
    labs: tuple[str, ...] = field(default=())

    @property
    def order(self) -> tuple[int, int]:
        return (-self.priority, self.number)

    @property
    def over(self) -> bool:
        """Nothing is started of it any more."""
        ending = self.state is SetState.ENDING and not self.requeue
        return ending or self.state is SetState.ENDED

    def with_run(self, index: int, run: Run) -> RecipeSet:
        runs = (*self.runs[:index], run, *self.runs[index + 1 :])
        return replace(self, runs=runs)
