"""Structures of ten thousand nodes, freed in slices.

Python frees such a structure in one piece when its last reference goes, with its lock held: no BMC
answers for as long as that takes, in whichever thread it happens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from inspect import CO_OPTIMIZED
from traceback import walk_tb
from types import FrameType
from typing import TypeVar
from uuid import UUID

from yaml import Node

from nospoon.runtime.paced import paced

T = TypeVar("T")
LONG = 500
"""Entries of what is not freed at once."""
BATCH = 16
DEEPEST = 5
"""Levels in which long collections are looked for."""
DEEPEST_READ = 16
"""The same of what was read of a file, whose machines of a lab are twelve levels down."""


async def free(held: list[T], *, deepest: int = DEEPEST) -> None:
    """Free what is `held` there, and nowhere else: take care to keep no name for it. Others have
    their turns meanwhile; `held` is empty then.
    """
    long, parts = await _long_in(held, deepest)
    held.clear()
    async for _ in paced(_popped(long)):
        pass
    async for batch in paced(_batches(parts)):
        batch.clear()


async def free_frames(error: BaseException) -> None:
    """Free what the frames of an error hold, its causes' too: what refuses a file has all that was
    read of it there. Where it was raised stays known.
    """
    held = list[object]()
    for frame in _frames(error):
        held += taken(frame)
    await free(held, deepest=DEEPEST_READ)


def taken(frame: FrameType) -> list[object]:
    """What a frame has names for, which it has no more then; [] of one that runs."""
    known = frame.f_locals
    values = list(known.values())
    try:
        frame.clear()
    except RuntimeError:  # it runs
        values = []
    if (
        isinstance(known, dict) and frame.f_code.co_flags & CO_OPTIMIZED
    ):  # a copy, until Python 3.13
        known.clear()  # with it, an error that it has would stay until all garbage is collected
    return values


def _frames(error: BaseException | None) -> Iterator[FrameType]:
    seen = set[int]()
    todo = [error]
    while todo:
        each = todo.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        todo += (each.__cause__, each.__context__)
        yield from (frame for frame, _ in walk_tb(each.__traceback__))


async def _long_in(held: Sequence[object], deepest: int) -> tuple[list[object], list[list[object]]]:
    """The long collections in these, and the entries of each."""
    long: list[object] = []
    parts: list[list[object]] = []
    async for some in paced(_visited(held, deepest)):
        for value, inside in some:
            if len(inside) > LONG:
                long.append(value)
                parts.append(inside)
    return long, parts


def _visited(held: Sequence[object], deepest: int) -> Iterator[list[tuple[object, list[object]]]]:
    """Whatever is in these, to some depth, with what it holds in turn, `BATCH` at a time. Of values
    that hold nothing, most are text and numbers: they are passed by before they are looked into.
    """
    todo, seen = [(each, 0) for each in held], set[int]()
    some: list[tuple[object, list[object]]] = []
    while todo:
        value, depth = todo.pop()
        if type(value) in _PLAIN or id(value) in seen:
            continue
        inside = _inside(value)
        if not inside:
            continue
        seen.add(id(value))
        some.append((value, inside))
        if len(some) == BATCH:
            yield some
            some = []
        if len(inside) <= LONG and depth < deepest:
            todo += ((each, depth + 1) for each in inside)
    yield some


_PLAIN = {str, bytes, int, float, bool, type(None), UUID}


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
        own = [getattr(value, each.name, None) for each in dataclasses.fields(value)]
        return own + list(getattr(value, "__dict__", {}).values())  # cached properties, too
    is_read = isinstance(value, Node) or hasattr(value, "__pydantic_fields_set__")
    if is_read or getattr(type(value), "freed_in_parts", False):
        return list(vars(value).values())
    return []


def _batches(parts: list[list[object]]) -> Iterator[list[object]]:
    while parts:
        part = parts.pop()
        while part:
            batch = part[-BATCH:]
            del part[-BATCH:]
            yield batch
