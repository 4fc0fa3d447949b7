"""Directories in which other processes work until the end, and how they are removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType


def remove_tree(path: Path) -> None:
    """Remove a directory. A daemon that is just ending may remove files of its own beside us."""
    shutil.rmtree(path, onerror=_unless_gone)


def _unless_gone(
    act: Callable[..., object],
    path: str,
    error: tuple[type[BaseException], BaseException, TracebackType],
) -> None:
    del act, path
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
