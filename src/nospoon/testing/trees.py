"""Directories in which other processes work until the end, and how they are removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


def remove_tree(path: Path) -> None:
    """Remove a directory. A daemon that is just ending may remove files of its own beside us."""
    shutil.rmtree(path, onerror=_unless_gone)


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
