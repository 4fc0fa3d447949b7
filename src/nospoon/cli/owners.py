"""Whose files are: those of another user may name what root, or the caller, then runs."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path


def is_own(path: Path) -> bool:
    """Whether a file or directory, and the link that leads to it, belong to root, the caller, or
    who calls sudo.
    """
    users = {"0", str(os.geteuid()), os.environ.get("SUDO_UID", "0")}
    return {str(each.st_uid) for each in (path.stat(), path.lstat())} <= users


def is_own_with_place(path: Path) -> bool:
    """And the directory that it is in, and all that it has, if it is one."""
    try:
        return all(map(is_own, chain((path, path.resolve().parent), path.rglob("*"))))
    except OSError:
        return False
