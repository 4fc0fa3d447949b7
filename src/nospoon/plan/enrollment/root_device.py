"""The disk on which Ironic deploys: the first that matches its hints for the root device, else the
smallest of 4 GiB or more.

Rules (ironic-python-agent `get_os_install_device`, ironic-lib `find_devices_by_hints`, oslo.utils
`specs_matcher`):

- A hint is a value, or an operator and a value. `=` of numbers means "at least"; a number alone
  means `==`, text alone `s==`.
- Sizes are in GiB. Of size, serial and rotational we know what Ironic's agent will find; where
  other hints are given, only the agent can tell.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.resources.machines import Machine

GIB = 1 << 30
LEAST_ROOT = 4 * GIB
_HINT = re.compile(r"(==|!=|>=|<=|>|<|=|s==) (.+)")
_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class KnownDisk:
    """What Ironic's agent finds. `size` in bytes; `rotational`: None where QEMU decides."""

    volume: str
    size: int
    serial: str = ""
    rotational: bool | None = None


def known_disks(machine: Machine, sizes: Sequence[int]) -> list[KnownDisk]:
    """A machine's disks. `sizes`: of all of them, in their order."""
    return [
        KnownDisk(disk.volume, size, disk.serial, _ROTATES.get(disk.rotation_rate, True))
        for disk, size in zip(machine.disks, sizes, strict=True)
    ]


_ROTATES: Mapping[int, bool | None] = {0: None, 1: False}
"""SBC-3's rotation rate; every other one is revolutions per minute."""


def root_disk(hints: Mapping[str, object], disks: Sequence[KnownDisk]) -> KnownDisk | None:
    """The disk, or None where none fits or only the agent can tell."""
    if not hints:
        large = [each for each in disks if each.size >= LEAST_ROOT]
        return min(large, key=lambda each: each.size, default=None)
    if not hints.keys() <= _MATCHES.keys():
        return None
    found = (d for d in disks if all(_MATCHES[name](d, value) for name, value in hints.items()))
    return next(found, None)


def split(hint: object) -> tuple[str, str]:
    """Operator and value: ("", value) for a value alone."""
    found = _HINT.fullmatch(str(hint))
    return (found[1], found[2]) if found is not None else ("", str(hint))


def _size(disk: KnownDisk, hint: object) -> bool:
    how, value = split(hint)
    try:
        wanted = float(value)
    except ValueError:
        return False
    compare = _NUMBERS.get(how or "==")
    return compare is not None and compare(disk.size / GIB, wanted)


def _serial(disk: KnownDisk, hint: object) -> bool:
    how, value = split(hint)
    return how in {"", "s=="} and disk.serial.lower() == value.lower()


def _rotational(disk: KnownDisk, hint: object) -> bool:
    return disk.rotational is not None and str(disk.rotational).lower() == str(hint).lower()


_MATCHES: Mapping[str, Callable[[KnownDisk, object], bool]] = {
    "size": _size,
    "serial": _serial,
    "rotational": _rotational,
}
