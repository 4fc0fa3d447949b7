"""Names in the order in which people count: node-2 before node-10."""

from __future__ import annotations

import re
from functools import lru_cache

_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=1 << 15)
def natural(name: str) -> tuple[str | int, ...]:
    """A key for `sorted`: digits compare as numbers. Text and numbers alternate, text first."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))
