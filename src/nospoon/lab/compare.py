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
    """SQL's LIKE: `%` is any text, `_` any character. In time of text times pattern."""
    reachable = {0}
    for letter in pattern:
        if letter == "%":
            reachable = set(range(min(reachable), len(text) + 1)) if reachable else set()
        else:
            reachable = {at + 1 for at in reachable if at < len(text) and letter in ("_", text[at])}
        if not reachable:
            return False
    return len(text) in reachable
