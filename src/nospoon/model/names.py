"""Names of clusters, hosts, networks and nodes: labels of DNS (RFC 1123 section 2.1), in the order
in which people count: node-2 before node-10.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_NAME = 63
"""Characters of a name (RFC 1035 section 2.3.4)."""
NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_NAME = re.compile(NAME_PATTERN.removeprefix("^").removesuffix("$"))
_LETTERS = re.compile(r"[a-z0-9-]+")
_DIGITS = re.compile(r"(\d+)")


@lru_cache(maxsize=1 << 15)
def natural(name: str) -> tuple[str | int, ...]:
    """A key for `sorted`: digits compare as numbers. Text and numbers alternate, text first."""
    parts = _DIGITS.split(name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def wanted_of(name: str) -> str:
    """What a text that is not a name lacks, as in "expected …, got …"."""
    if len(name) > MAX_NAME:
        return f"at most {MAX_NAME} characters"
    if _LETTERS.fullmatch(name):
        return "a letter or digit at both ends of a name"
    return f"a name of lower-case letters, digits and hyphens, at most {MAX_NAME}"


def is_name(text: str) -> bool:
    """Whether nospoon could have given a node this name. What others may write, such as the tag of
    a machine that is theirs, may say any other.
    """
    return _NAME.fullmatch(text) is not None
