"""The last power event of Get Chassis Status (IPMI 2.0 §28.2, byte 3): bits of two halves.

Why the machine went off last: for want of AC power, or for nothing that has a bit here. And whether
a command made it go on last. A reset and a command that failed are no power events.
"""

from __future__ import annotations

ON_BY_COMMAND = 0x10
AC_FAILED = 0x01


def switched_on(event: int, *, by_command: bool) -> int:
    """After the machine went on."""
    return event & ~ON_BY_COMMAND | (ON_BY_COMMAND if by_command else 0)


def switched_off(event: int, *, unplugged: bool) -> int:
    """After the machine went off; `unplugged`: for want of AC power."""
    return event & ON_BY_COMMAND | (AC_FAILED if unplugged else 0)
