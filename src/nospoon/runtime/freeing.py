"""Structures of ten thousand nodes, freed in slices.

Python frees such a structure in one piece when its last reference goes, with its lock held: no BMC
answers for as long as that takes, in whichever thread it happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from nospoon.runtime.paced import paced

T = TypeVar("T")
LONG = 500
"""Entries of what is not freed at once."""
BATCH = 64
DEEPEST = 5
"""Levels in which long collections are looked for."""


async def free(held: list[T]) -> None:
    """Free what is `held` there, and nowhere else: take care to keep no name for it. Others have
    their turns meanwhile; `held` is empty then.
    """
    long, parts = await _long_in(held)
    held.clear()
    async for _ in paced(_popped(long)):
        pass
    async for batch in paced(_batches(parts)):
        batch.clear()


async def _long_in(held: Sequence[object]) -> tuple[list[object], list[list[object]]]:
    """The long collections in these, and the entries of each."""
    long: list[object] = []
    parts: list[list[object]] = []
    async for value, inside in paced(_visited(held)):
        if len(inside) > LONG:
            long.append(value)
            parts.append(inside)
    return long, parts


def _visited(held: Sequence[object]) -> Iterator[tuple[object, list[object]]]:
    """Whatever is in these, to some depth, with what it holds in turn."""
    todo = [(each, 0) for each in held]
    while todo:
        value, depth = todo.pop()
        inside = _inside(value)
        yield value, inside
        if len(inside) <= LONG and depth < DEEPEST:
            todo += ((each, depth + 1) for each in inside)


def _popped(long: list[object]) -> Iterator[None]:
    while long:
        long.pop()
        yield


def _inside(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return [*value.values(), *value]
    if isinstance(value, tuple | list | frozenset | set):
        return list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = [getattr(value, each.name) for each in dataclasses.fields(value)]
        return own + list(getattr(value, "__dict__", {}).values())  # cached properties, too
    return []


def _batches(parts: list[list[object]]) -> Iterator[list[object]]:
    while parts:
        part = parts.pop()
        while part:
            batch = part[-BATCH:]
            del part[-BATCH:]
            yield batch
