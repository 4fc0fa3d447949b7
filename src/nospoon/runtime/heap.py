"""Keeps Python's garbage collector from looking at what lives as long as the daemon.

A collection of ten thousand nodes takes half a second, in which no BMC answers. What is there once
things have settled is set aside (`gc.freeze`): later collections look at what came since. Reference
counts free it as ever; only cycles among it wait, until there is a quarter more of it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass

GROWTH = 1.25
NEVER = 1 << 30
"""Collections of the middle generation after which the oldest one would be collected."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Nothing is collected while much is made that stays."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@dataclass(slots=True)
class Heap:
    """`looked`: so many objects were set aside when all of them were last looked at. `postponing`:
    how many pieces of work go on meanwhile, and what held before the first of them.
    """

    looked: int = 0
    postponing: int = 0
    before: tuple[int, int, int] = (0, 0, 0)

    @contextlib.contextmanager
    def postponed(self) -> Iterator[None]:
        """Only young objects are collected while a piece of work makes many that go with it: plans
        of 20,000 nodes are freed by reference counts.
        """
        if not self.postponing:
            self.before = gc.get_threshold()
            gc.set_threshold(*self.before[:2], NEVER)
        self.postponing += 1
        try:
            yield
        finally:
            self.postponing -= 1
            if not self.postponing:
                gc.set_threshold(*self.before)

    def settle(self) -> None:
        """Set aside what is there now."""
        gc.collect(1)
        gc.freeze()
        if gc.get_freeze_count() > self.looked * GROWTH:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self.looked = gc.get_freeze_count()
