"""What images leave free of an engine's disk, however many are read at one moment: each would take
half of what was free when it began.

An engine may keep a second copy of an image that it reads. Each import has a file, called as its
process, with the bytes that it has passed on, for which there has to be as much again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from nospoon.providers.docker.program.wire import EngineError

KEPT_FREE = 10
"""The part of a disk that images leave free is one of so many."""
STEP = 16 << 20
"""Bytes after which an import looks again."""


@contextlib.contextmanager
def importing(root: Path, place: str) -> Iterator[Import]:
    """For the time of one. `root`: the directory of pools; `place`: of the engine's images."""
    path = root / ".importing" / str(os.getpid())
    while not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # the last one has ended
            path.write_text("0")
    try:
        yield Import(path, place)
    finally:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others are under way
            path.parent.rmdir()


class Import:
    """One that is under way. `path`: of its file."""

    def __init__(self, path: Path, place: str) -> None:
        self._path, self._place = path, place
        self._passed = self._looked = 0

    def add(self, size: int) -> None:
        """So many bytes are passed on. Raises `EngineError` where too little would be left."""
        self._passed += size
        if self._passed - self._looked < STEP and self._looked:
            return
        self._looked = self._passed
        self._path.write_text(str(self._passed))
        disk = os.statvfs(self._place)
        left = disk.f_bavail * disk.f_frsize - self._of_all()
        few = disk.f_files and disk.f_favail < disk.f_files // KEPT_FREE
        if few or left < disk.f_blocks // KEPT_FREE * disk.f_frsize:
            raise EngineError("No space left on the host: images leave a tenth of its disk free")

    def _of_all(self) -> int:
        """What is passed on of imports that are under way. A number of a process that has ended may
        be another's by now, which leaves some more free.
        """
        amount = 0
        for each in self._path.parent.iterdir():
            if not Path("/proc", each.name).exists():
                each.unlink(missing_ok=True)
                continue
            with contextlib.suppress(FileNotFoundError):  # it has ended
                amount += int(each.read_text() or 0)
        return amount
