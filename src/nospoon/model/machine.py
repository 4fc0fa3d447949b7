"""Machines as they are: power, commands, and what a connection reports while they run.

Shape is in `nospoon.model.resources.machines`; this is runtime state, which belongs to the BMC.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from nospoon.model.boot import BootPlan


class PowerState(StrEnum):
    """What a machine is doing. FAILED: its hypervisor stopped it (paused on an internal error)."""

    ON = "on"
    OFF = "off"
    FAILED = "failed"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class Outcome(StrEnum):
    """What followed from a power command that was carried out.

    CHANGED: a boot, a stop, or what else it asks for. CONTINUED: a machine that another paused or
    saved runs on, and boots nothing. UNCHANGED: nothing, for it was so already.
    """

    CHANGED = "changed"
    CONTINUED = "continued"
    UNCHANGED = "unchanged"


class PowerCommand(StrEnum):
    """What a BMC can ask of a machine (IPMI 2.0 §28.3, Redfish `ResetType`)."""

    ON = "on"
    OFF = "off"
    CYCLE = "cycle"
    RESET = "reset"
    SOFT = "soft"
    DIAG = "diag"


class PowerPolicy(StrEnum):
    """What a machine does when its AC power returns (IPMI 2.0 §28.8, Redfish
    `PowerRestorePolicy`), and when its host has rebooted. Values: those of the cluster file.
    """

    ALWAYS_OFF = "off"
    PREVIOUS = "previous"
    ALWAYS_ON = "on"


class MachineChange(StrEnum):
    """Why a machine event was sent."""

    STARTED = "started"
    STOPPED = "stopped"
    SHUTDOWN = "shutdown"
    CRASHED = "crashed"
    RESET = "reset"
    FAILED = "failed"
    DEFINED = "defined"
    UNDEFINED = "undefined"
    OBSERVED = "observed"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class KeptState:
    """What a disk keeps for a snapshot. `at`: Unix seconds; `on`: its machine had power then."""

    at: float
    on: bool


@dataclass(frozen=True, slots=True)
class MachineEvent:
    """Something happened to a machine, or was found by a look.

    A RESET is a reboot seen without a change of power: the guest did it, or the BMC asked for it.
    `told`: what a machine was told to boot whose start a daemon before us began; else None.
    `smbios`: the UUID that its guest sees, where its host assigns it (`Declared.uuids`).
    """

    uuid: UUID
    change: MachineChange
    power: PowerState
    reason: str = ""
    told: BootPlan | None = None
    smbios: UUID | None = None
