"""Consoles of leases, looked at again and again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from nospoon.control.labs import watch
from nospoon.control.labs.access import KnownLab
from nospoon.lab.work import Asked, RecipeSet, Run, SetState
from nospoon.model.lab import Lab
from nospoon.runtime.clock import unix
from nospoon.runtime.slices import Slices
from nospoon.runtime.workers import Workers


async def test_a_console_to_which_nothing_was_added_is_not_read() -> None:
    text, reads, panics = b"", 0, list[str]()

    class Consoles:
        async def stamp(self, *_: Any, **__: Any) -> int:
            return len(text)

        async def pieces(self, *_: Any, offset: int, **__: Any) -> AsyncIterator[tuple[int, bytes]]:
            nonlocal reads
            reads += 1
            if text[offset:]:
                yield offset, text[offset:]

    def panicked(_: str, __: int, line: str, *___: Any, **____: Any) -> list[Any]:
        panics.append(line)
        return []

    async def do(what: Any) -> None:
        what()

    known = KnownLab("k", 1000, "c", Lab("dev"))
    run = Run(Asked("recipe"), {}, node="recipe-0")
    found = RecipeSet("1.1", 1, 1000, "x", (run,), state=SetState.RUNNING, lab="k")
    board = SimpleNamespace(
        scheduler=SimpleNamespace(sets={"1.1": found}, panicked=panicked), known={"k": known},
        slices=Slices(), labs=SimpleNamespace(known_of=lambda _: known), out=lambda _: [found],
        do=do,
    )  # fmt: skip
    workers = Workers("test", 1)
    watching = watch.Watch(
        cast("Any", board), cast("Any", Consoles()), lambda *_: UUID(int=1), cast("Any", None),
        workers, unix,
    )  # fmt: skip
    for _ in range(3):
        await watching.look()
    assert reads == 1, "it is empty"
    text = b"Linux version 6.1\nKernel pan"
    for _ in range(4):
        await watching.look()
    assert reads == 3, "and once more for the line that has no end"
    text += b"ic - not syncing"
    for _ in range(4):
        await watching.look()
    workers.close()
    assert reads == 5
    assert panics == ["Kernel panic - not syncing"]
