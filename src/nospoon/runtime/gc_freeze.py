"""Keeps Python's garbage collector from looking at what lives as long as the daemon.

A collection of ten thousand nodes takes up to a second, in which no BMC answers. So only young
objects are collected on their own; what is there once things have settled is set aside
(`gc.freeze`), and reference counts free it as ever. Only cycles among it wait: all of it is
collected when the process has grown by half since that was last done.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import structlog

log = structlog.get_logger()
GROWTH = 1.5
LEAST = 256 << 20
"""Bytes below which a process does not need to be looked through: a daemon without nodes has half
of that, and to look through it takes half a second, in which no BMC answers.
"""
OF_A_NODE = 64 << 10
"""Bytes more for each node: twice what it takes."""
INTERVAL = 60.0
"""Seconds between two looks at how much memory there is."""
LOOKS = 3
"""Looks, one after the other, at which there has to be too much: while a large plan is made, all of
it would be looked through, and nothing of it is garbage.
"""
NEVER = 1 << 30
"""Collections of the middle generation after which the oldest one would be collected."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Nothing is collected while much is made that stays, and the oldest generation never unasked
    from then on.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], NEVER)
        gc.enable()


def resident() -> int:
    """Bytes of memory that this process has (proc_pid_statm(5))."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Heap:
    """`nodes`: how many there are; `memory`: how many bytes the process has. `most`: how many bytes
    it may have before all of it is collected, if its nodes do not explain them.
    """

    nodes: Callable[[], int] = int
    memory: Callable[[], int] = resident
    most: int = 0
    looks: int = LOOKS
    _over: int = 0

    def settle(self) -> None:
        """Set aside what is there now."""
        gc.collect(1)
        gc.freeze()

    def tidy(self) -> None:
        """Collect all of it, if there is much more than when that was last done."""
        before, usual = self.memory(), LEAST + OF_A_NODE * self.nodes()
        self._over = self._over + 1 if before > max(self.most, usual) else 0
        if self._over < self.looks:
            return
        self._over = 0
        began = perf_counter()
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        after = self.memory()
        self.most = int(after * GROWTH)
        seconds = round(perf_counter() - began, 3)
        log.info("collected", before=before, after=after, objects=found, seconds=seconds)

    async def keep_tidy(self) -> None:
        """For ever."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.tidy()
