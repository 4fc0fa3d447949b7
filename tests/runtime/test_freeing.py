"""Long structures are freed while others have their turns, and all of what was held goes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FrameType
from typing import Any, cast

import pytest

from nospoon.runtime.freeing import BATCH, LONG, free, taken
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers

MANY = 120 * LONG


class Entry:
    """Something that is seen to go."""


@dataclass(frozen=True)
class Whole:
    """As what planning knows: long collections of several kinds, some of them further down."""

    rows: tuple[Entry, ...]
    by_name: Mapping[str, Entry]
    parts: Mapping[str, Any]

    @cached_property
    def late(self) -> list[Entry]:
        return [Entry() for _ in range(MANY)]


def whole() -> tuple[list[Any], list[weakref.ref[Entry]]]:
    rows = tuple(Entry() for _ in range(MANY))
    named = {str(number): Entry() for number in range(MANY)}
    deeper = {"a": (frozenset(Entry() for _ in range(MANY)),)}
    made = Whole(rows, named, deeper)
    entries = [*rows, *named.values(), *deeper["a"][0], *made.late]
    return [made], [weakref.ref(each) for each in entries]


async def test_all_that_was_held_is_freed_without_the_collector() -> None:
    held, entries = whole()
    gc.disable()
    try:
        await free(held)
        assert held == []
        assert not [each for each in entries if each() is not None]
    finally:
        gc.enable()


async def test_others_have_their_turns_meanwhile() -> None:
    held, entries = whole()
    seen = list[int]()

    async def watch() -> None:
        while True:
            seen.append(sum(each() is not None for each in entries))
            await asyncio.sleep(0)

    async with Tasks("test") as tasks:
        tasks.start(watch(), name="watch")
        await free(held)
    assert [each for each in seen if 0 < each < len(entries)], "some are freed before others"


async def test_what_is_held_elsewhere_stays_whole() -> None:
    held, entries = whole()
    kept: Whole = held[0]
    await free(held)
    assert len(kept.rows) == len(kept.by_name) == len(kept.late) == MANY
    assert all(each() is not None for each in entries)


async def test_what_holds_itself_and_what_is_short_is_freed_at_once() -> None:
    looped: list[Any] = []
    looped.append(looped)
    await free([looped, None, 5, "text", {}, (), Whole((), {}, {})])


@dataclass(slots=True)
class Half:
    """Whose making failed."""

    late: str = field(init=False)

    def __post_init__(self) -> None:
        raise ValueError("odd")


async def test_what_is_half_made_hides_no_error() -> None:
    workers = Workers("test", 1)
    try:
        with pytest.raises(ValueError, match="odd"):
            await workers.run(0, Half)
    finally:
        workers.close()


class Read:
    """As a document that was read."""

    freed_in_parts = True

    def __init__(self) -> None:
        self.values = {str(number): Entry() for number in range(LONG + 100)}


async def test_what_frames_of_an_error_hold_is_freed_while_others_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused file of 600,000 values took 0.17 s at once, when its answer was sent."""

    async def one_in_each_turn(items: Iterable[object]) -> AsyncIterator[object]:
        for item in items:
            await asyncio.sleep(0)
            yield item

    monkeypatch.setattr("nospoon.runtime.freeing.paced", one_in_each_turn)
    entries = list[weakref.ref[Entry]]()
    seen = list[int]()

    def fail() -> None:
        read = {"a": [{"b": [{"c": [{"d": Read()}]}]}]}
        (document,) = read["a"][0]["b"][0]["c"][0].values()
        entries.extend(weakref.ref(each) for each in document.values.values())
        try:
            raise ValueError("odd")
        except ValueError as error:
            raise KeyError("wrong") from error

    async def watch() -> None:
        while True:
            seen.append(sum(each() is not None for each in entries))
            await asyncio.sleep(0)

    workers = Workers("test", 1)
    gc.disable()
    try:
        async with Tasks("test") as tasks:
            tasks.start(watch(), name="watch")
            with pytest.raises(KeyError, match="wrong") as raised:
                await workers.run(0, fail)
        assert raised.value.__traceback__ is not None, "where it was raised stays known"
        assert not [each for each in entries if each() is not None]
    finally:
        gc.enable()
        workers.close()
    assert len(set(seen)) > len(entries) // BATCH, "a batch in each turn"


class View(Mapping[str, object]):
    """As `f_locals` from Python 3.13 on (PEP 667): no copy, and nothing is removed by it."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __getitem__(self, name: str) -> object:
        return self._frame.known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame.known)

    def __len__(self) -> int:
        return len(self._frame.known)


class Frame:
    """Of Python 3.13."""

    def __init__(self, **known: object) -> None:
        self.known = known
        self.f_globals: dict[str, object] = {}

    @property
    def f_locals(self) -> View:
        return View(self)

    def clear(self) -> None:
        self.known.clear()


def test_what_frames_hold_is_taken_of_views_too() -> None:
    frame = Frame(a=1, b=[2])
    assert taken(cast("FrameType", frame)) == [1, [2]]
    assert not frame.known


def test_names_of_modules_stay() -> None:
    """What is imported late may fail: the frame of its module is among those of the error."""
    known: dict[str, object] = {}
    source = "import sys\nframe = sys._getframe()\n"
    exec(compile(source, "late", "exec"), known)
    frame = known["frame"]
    assert isinstance(frame, FrameType)
    assert frame in taken(frame)
    assert "sys" in known
