"""Rows by the hundred: SQLite goes through a statement while no other thread goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
CHUNK = 500
"""Rows, or values that are looked up, of one statement."""


def chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, in their order."""
    return (rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK))
