"""What the parts of one BMC share: power as observed, runtime state, the log, and time of day."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from nospoon.bmc.faults import Faults
from nospoon.bmc.fru import Inventory
from nospoon.bmc.log import Kind, Log
from nospoon.bmc.messages import Append, Effect, Persist
from nospoon.bmc.runtime import Runtime
from nospoon.model.machine import PowerState

RUNNING = frozenset({PowerState.ON, PowerState.FAILED})
STOPPED = frozenset({PowerState.OFF, PowerState.ABSENT})


class Parameters(StrEnum):
    """Groups of IPMI configuration parameters, each with a parameter 0 "set in progress"."""

    SYSTEM_INFO = "system info"
    LAN = "LAN"
    SOL = "serial over LAN"
    BOOT = "boot options"
    PEF = "platform event filtering"


class State:
    """`epoch`: Unix seconds at `now` 0. `since`: `now` of the last change of power.

    `faults`: injected ones, None where there are none. `setting`: groups of parameters that are
    being set -> the id of the IPMI session which announced it.
    """

    __slots__ = (
        "epoch",
        "faults",
        "inventory",
        "log",
        "power",
        "reason",
        "runtime",
        "setting",
        "since",
    )

    def __init__(self, runtime: Runtime, log: Log, inventory: Inventory) -> None:
        self.runtime, self.log, self.inventory = runtime, log, inventory
        self.power = PowerState.UNKNOWN
        self.reason = ""
        self.epoch = self.since = 0.0
        self.faults: Faults | None = None
        self.setting: dict[Parameters, int] = {}

    def clock(self, now: float) -> float:
        """The log's clock: Unix seconds, and what Set SEL Time added."""
        return self.epoch + now + self.runtime.settings.clock_offset

    def persist(self, after: Runtime) -> Iterator[Effect]:
        """This is the runtime state from now on."""
        if after != self.runtime:
            self.runtime = after
            yield Persist(after)

    def record(self, kind: Kind, now: float, text: str = "") -> Iterator[Effect]:
        """Log an event."""
        yield Append(self.log.add(kind, self.clock(now), text=text))

    def see(self, power: PowerState, reason: str, now: float) -> Iterator[Effect]:
        """The machine's power is so; what changed is logged. From and to unknown tells nothing."""
        before, self.power, self.reason = self.power, power, reason
        if before is power:
            return
        self.since = now
        if before in STOPPED and power in RUNNING:
            yield from self.record(Kind.POWER_ON, now)
        elif before in RUNNING and power in STOPPED:
            yield from self.record(Kind.POWER_OFF, now)
        if power is PowerState.FAILED and before is not PowerState.UNKNOWN:
            yield from self.record(Kind.GUEST_STOPPED, now, reason)
