"""Directories in which other processes work until the end, and how they are removed."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

PATIENCE = 60.0
"""Seconds in which a process that was killed or asked to end has ended."""


def remove_tree(path: Path) -> None:
    """Remove a directory. Processes that are just ending may remove files of their own beside us,
    and write others a moment more.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return shutil.rmtree(path, onerror=_unless_gone)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or time.monotonic() > end:
                raise
        time.sleep(0.02)


def control_groups(part: str) -> list[Path]:
    """Those with this in their names, at any depth: others come and go meanwhile."""
    found = os.walk("/sys/fs/cgroup")
    return [Path(above, each) for above, names, _ in found for each in names if part in each]


def _unless_gone(
    act: Callable[..., object],
    path: str,
    error: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    del act, path
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
