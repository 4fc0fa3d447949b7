"""Reads the administrator's list of what members may use (NOSPOON_GRANTS)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import structlog

from nospoon.clusterfile.grants import load_grants
from nospoon.errors import Forbidden, SpecError
from nospoon.model.grants import DEFAULTS, Grants
from nospoon.runtime.reasons import reason

log = structlog.get_logger()
MAX_BYTES = 1 << 20
"""Of the file."""


def read_grants(path: Path, *, owners: frozenset[int]) -> Grants:
    """The list; the defaults where there is no file. Raises `Forbidden` where others than `owners`
    may have written it, or it cannot be read.
    """
    try:
        with path.open("rb") as file:
            why = _not_trusted(os.fstat(file.fileno()), owners)
            text = "" if why else file.read(MAX_BYTES + 1).decode()
        if not why and len(text) > MAX_BYTES:
            why = f"it is larger than {MAX_BYTES} bytes"
        if not why:
            return load_grants(text, file=str(path))
    except FileNotFoundError:
        return DEFAULTS
    except (OSError, UnicodeDecodeError, SpecError) as error:
        why = str(error) if isinstance(error, SpecError) else reason(error)
    log.error("list of grants refused", file=str(path), why=why)
    raise Forbidden(
        f"the administrator's list {path} is refused: {why}",
        hint="An administrator must correct it: owner root, mode 0644.",
    )


def _not_trusted(found: os.stat_result, owners: frozenset[int]) -> str:
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}, not to root"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "its group or others may write it"
    return "" if stat.S_ISREG(found.st_mode) else "it is not a regular file"
