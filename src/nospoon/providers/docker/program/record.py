"""The log of a container's console."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RECORD = 2 << 20
"""Bytes of a console's log, as virtlogd's files have; the one before is kept as .1."""


class Record:
    """The log of a console: no larger than `RECORD`, with the one before it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, piece: bytes) -> None:
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size + len(piece) > RECORD:
                self._path.replace(f"{self._path}.1")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(piece)
