"""What a BMC is told (past participles) and what it wants done (imperatives)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nospoon.bmc.runtime import Runtime
from nospoon.model.boot import BootOverride, BootPlan
from nospoon.model.machine import MachineEvent, PowerCommand


class Verdict(StrEnum):
    """How a request is answered. ACCEPTED: under way, its outcome shows in the power fault."""

    DONE = "done"
    ACCEPTED = "accepted"
    BUSY = "busy"
    WRONG_STATE = "wrong state"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """To the request with this ticket. `reason` is for people, "" when all is well."""

    ticket: int
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PowerRequested:
    """Somebody asks for a chassis command; the answer carries the ticket.

    `restart`: with SOFT, start the machine again once its guest has shut down.
    """

    command: PowerCommand
    ticket: int
    restart: bool = False


@dataclass(frozen=True, slots=True)
class OverrideRequested:
    """Somebody sets the boot override. `flags`: the raw IPMI parameter, b"" from elsewhere."""

    override: BootOverride
    ticket: int
    flags: bytes = b""


@dataclass(frozen=True, slots=True)
class ClearingRequested:
    """An IPMI client writes boot option parameter 3: when flags are cleared by themselves."""

    clearing: int
    ticket: int


@dataclass(frozen=True, slots=True)
class IdentifyRequested:
    """The identify light is switched; `seconds` None: until it is switched again."""

    lit: bool
    ticket: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MachineReported:
    """The connection told something of the machine."""

    event: MachineEvent


@dataclass(frozen=True, slots=True)
class BootObserved:
    """A machine that boots by script fetched what it shall boot."""


@dataclass(frozen=True, slots=True)
class BootTold:
    """`SetBoot` of this edition was carried out."""

    edition: int


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """The command under way ended; `verdict` DONE, or why not."""

    verdict: Verdict
    reason: str = ""


Event = (
    PowerRequested
    | OverrideRequested
    | ClearingRequested
    | IdentifyRequested
    | MachineReported
    | BootObserved
    | BootTold
    | CommandEnded
)


@dataclass(frozen=True, slots=True)
class Persist:
    """Make this durable before anything that follows."""

    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Drive:
    """Give the machine this command; tell `CommandEnded` when its outcome is known."""

    command: PowerCommand
    boot: BootPlan


@dataclass(frozen=True, slots=True)
class SetBoot:
    """Tell the running machine what its next reset boots, and those after it; then `BootTold`.

    Carried out after every earlier `SetBoot` and `Drive` of this BMC, never beside them.
    """

    boot: BootPlan
    edition: int


Effect = Persist | Drive | SetBoot | Answer
