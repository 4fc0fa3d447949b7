"""Amounts of memory and of disks, for people."""

from __future__ import annotations

_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def size(value: int) -> str:
    """Bytes in the largest unit that says them exactly."""
    for unit, name in _UNITS:
        if value and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value} B"
