"""How deep JSON is, looked at before a decoder builds anything of it."""

from __future__ import annotations

import re

DEEPEST = 32
"""Objects and lists within one another in a body that a client sends."""
_MARKS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
"""Strings, whole, and brackets; every byte is looked at once: one that never ends goes to the end,
also behind a backslash, or it would be looked for again from each quote in it.
"""


def is_too_deep(data: bytes) -> bool:
    """Whether more than `DEEPEST` levels are open at some place."""
    if data.count(b"[") + data.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for mark in _MARKS.finditer(data):
        match mark[0]:
            case b"[" | b"{":
                depth += 1
                if depth > DEEPEST:
                    return True
            case b"]" | b"}":
                depth -= 1
    return False
