"""Runtime state of one BMC: what must survive a restart of the daemon."""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.model.boot import NO_OVERRIDE, BootOverride


@dataclass(frozen=True, slots=True)
class Runtime:
    """Persisted before it is acknowledged; never part of a diff.

    `power_fault`: why the last power command failed, "" when it did not (IPMI 2.0 §28.2 bit
    "power fault"). `last_power_event`: the low five bits of that section's byte 3.
    `restart_cause`: §28.11. `boot_flags_raw`: boot option parameter 5 as written, so that what a
    client wrote is what it reads.
    """

    override: BootOverride = NO_OVERRIDE
    power_fault: str = ""
    last_power_event: int = 0
    restart_cause: int = 0
    boot_flags_raw: bytes = b""
    indicator_on: bool = False
