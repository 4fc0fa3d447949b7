"""Comparisons of a filter: the operators of Beaker's schema, with what they mean."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum


class Op(StrEnum):
    """Written in `op`; `==`, as without one, is `=`."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    LIKE = "like"

    @classmethod
    def read(cls, text: str) -> Op:
        """Raises `ValueError` for what is none."""
        return cls("=" if text == "==" else text)


NUMERIC: Mapping[Op, Callable[[int, int], bool]] = {
    Op.EQUAL: operator.eq,
    Op.UNEQUAL: operator.ne,
    Op.LESS: operator.lt,
    Op.AT_MOST: operator.le,
    Op.MORE: operator.gt,
    Op.AT_LEAST: operator.ge,
}
TEXTUAL = (Op.EQUAL, Op.UNEQUAL, Op.LIKE)


def holds(op: Op, have: Iterable[str], wanted: str) -> bool:
    """Whether a machine with these values, each of which it has, is one that is wanted: with `!=`,
    none of them is the one.
    """
    if op is Op.LIKE:
        return any(like(each, wanted) for each in have)
    return (wanted in have) is (op is Op.EQUAL)


def like(text: str, pattern: str) -> bool:
    """SQL's LIKE: `%` is any text, `_` any character. Each text between two `%` is looked for where
    the one before it ends, the first time that it is there: no later place leaves more to the rest.
    """
    first, *others = pattern.split("%")
    if len(first) + sum(map(len, others)) > len(text) or not _alike(text[: len(first)], first):
        return False
    if not others:
        return len(first) == len(text)
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if not _alike(text[end:], last):
        return False
    for part in middle:
        found = _find(text, part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _find(text: str, part: str, start: int, end: int) -> int:
    if "_" not in part:
        return text.find(part, start, end)
    places = range(start, end - len(part) + 1)
    return next((at for at in places if _alike(text[at : at + len(part)], part)), -1)


def _alike(text: str, part: str) -> bool:
    return text == part or (
        "_" in part and all(b in ("_", a) for a, b in zip(text, part, strict=True))
    )
