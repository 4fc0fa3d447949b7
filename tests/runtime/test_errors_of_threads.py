"""What work in threads raises goes with who catches it: nothing waits for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nospoon.errors import Stale
from nospoon.runtime.workers import Workers
from nospoon.store.database import Database


class Held:
    """As a plan of thousands of nodes, which another's made stale."""


def refuse(*_: object) -> None:
    raise Stale("the plan is stale")


def nothing(*_: object) -> None: ...


async def caught(call: Callable[..., Awaitable[Any]]) -> bool:
    """Whether what was given is gone when its refusal was caught."""
    held = Held()
    gone = weakref.ref(held)
    gc.disable()
    try:
        try:
            await call(refuse, held)
        except Stale:
            del held
        await call(nothing)  # its thread has left what it did before
        return gone() is None
    finally:
        gc.enable()


async def test_a_refusal_of_a_worker_leaves_nothing() -> None:
    workers = Workers("test", 1)
    try:
        assert await caught(lambda *what: workers.run(0, *what))
    finally:
        workers.close()


@pytest.mark.parametrize("method", ["call", "read"])
async def test_a_refusal_of_the_store_leaves_nothing(tmp_path: Path, method: str) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    try:
        assert await caught(getattr(database, method))
    finally:
        database.close()


async def test_a_refusal_among_others_of_one_transaction_leaves_nothing(tmp_path: Path) -> None:
    """Each is carried out by itself then."""
    database = Database.open(f"sqlite:///{tmp_path}/store.db")

    async def among(function: Callable[..., object], *args: object) -> None:
        others = [database.call(nothing) for _ in range(3)]
        *_, last = await asyncio.gather(
            *others, database.call(function, *args), return_exceptions=True
        )
        if isinstance(last, Exception):
            try:
                raise last
            finally:
                del last

    try:
        assert await caught(among)
    finally:
        database.close()
