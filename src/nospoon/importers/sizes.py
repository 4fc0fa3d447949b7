"""Sizes as libvirt takes them -> sizes of a cluster file.

libvirt (virsh(1), "scaled integer"): letters of either case; `G` and `GiB` are powers of 1024, `GB`
of 1000; a bare number is bytes.
"""

from __future__ import annotations

import re

from nospoon.clusterfile.fields import parse_size

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\Z", re.IGNORECASE)
_BYTES = frozenset({"", "b", "byte", "bytes"})
_BASES = {"": 1024, "ib": 1024, "b": 1000}
"""What follows the letter -> its base."""
_LARGER = {"p": 1, "e": 2}
"""Letters that a cluster file lacks -> how many steps above `T` they are."""


def size_of(capacity: object) -> str:
    """`10g` -> `10GiB`. Raises `ValueError` for what is no size of a disk."""
    match = _SIZE.match(str(capacity))
    unit = match[2].lower() if match else "?"
    if match is None or (unit not in _BYTES and not _known(unit)):
        raise ValueError(f"expected a size such as 10G or 10GB, got {capacity!r}")
    size = f"{match[1]}B" if unit in _BYTES else _scaled(match[1], unit)
    parse_size(size)
    return size


def _known(unit: str) -> bool:
    return unit[0] in "kmgtpe" and unit[1:] in _BASES


def _scaled(number: str, unit: str) -> str:
    letter, base = unit[0], _BASES[unit[1:]]
    if letter in _LARGER:
        try:
            letter, number = "t", str(int(float(number) * base ** _LARGER[letter]))
        except OverflowError:
            raise ValueError(f"expected a size of a disk, got {number}{unit}") from None
    return f"{number}{letter.upper()}{'iB' if base == 1024 else 'B'}"
