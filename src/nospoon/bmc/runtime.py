"""Runtime state of one BMC: what must survive a restart of the daemon."""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.model.boot import NO_OVERRIDE, BootOverride


@dataclass(frozen=True, slots=True)
class Runtime:
    """Persisted before it is acknowledged; never part of a diff.

    `power_fault`: why the last power command failed, "" when it did not (IPMI 2.0 §28.2, bit
    "power fault"). `last_power_event`: bits 4:0 of that section's byte 3. `restart_cause`: §28.11.
    `boot_flags`: the five bytes of boot option parameter 5 as an IPMI client wrote them, b"" after
    anybody else set the override. `clearing`: parameter 3 (§28.13), which says when flags are kept.
    """

    override: BootOverride = NO_OVERRIDE
    power_fault: str = ""
    last_power_event: int = 0
    restart_cause: int = 0
    boot_flags: bytes = b""
    clearing: int = 0
    identify: bool = False
