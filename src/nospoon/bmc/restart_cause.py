"""Why a machine went on (restart cause, IPMI 2.0 table 28-11), and when AC power makes it do so."""

from __future__ import annotations

from nospoon.model.machine import PowerPolicy

CAUSE_UNKNOWN = 0x00
CAUSE_CHASSIS_CONTROL = 0x01
CAUSE_WATCHDOG = 0x04
CAUSE_ALWAYS_RESTORE = 0x06
CAUSE_PREVIOUS = 0x07
CAUSE_SOFT_RESET = 0x0A

RESTORES = frozenset({CAUSE_ALWAYS_RESTORE, CAUSE_PREVIOUS})
"""Those of the power restore policy."""


def restored(policy: PowerPolicy, *, was_on: bool) -> int | None:
    """The restart cause (table 28-11) with which the policy switches on; None: it does not."""
    match policy:
        case PowerPolicy.ALWAYS_ON:
            return CAUSE_ALWAYS_RESTORE
        case PowerPolicy.PREVIOUS if was_on:
            return CAUSE_PREVIOUS
        case PowerPolicy.PREVIOUS | PowerPolicy.ALWAYS_OFF:
            return None
