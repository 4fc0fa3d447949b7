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
    """`looked`: so many objects were set aside when all of them were last looked at."""

    looked: int = 0

    def settle(self) -> None:
        """Set aside what is there now."""
        gc.collect(1)
        gc.freeze()
        if gc.get_freeze_count() > self.looked * GROWTH:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self.looked = gc.get_freeze_count()
