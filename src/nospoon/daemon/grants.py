"""Reads the administrator's list of what members may use (NOSPOON_GRANTS)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from nospoon.clusterfile.grants import load_grants
from nospoon.errors import Forbidden, SpecError
from nospoon.model.grants import DEFAULTS, Grants
from nospoon.runtime.reasons import reason

log = structlog.get_logger()
MAX_BYTES = 1 << 20
"""Of the file."""


@dataclass(slots=True)
class GrantsFile:
    """The list as it is now, decoded again only when the file has changed: each of the thousand
    hosts of a member's file asks for it, on the event loop.
    """

    path: Path
    owners: frozenset[int]
    _known: tuple[tuple[int, ...], Grants | str] | None = None

    def read(self) -> Grants:
        """The list; the defaults where there is no file. Raises `Forbidden` where others than
        `owners` may have written it, or it cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                state = (
                    found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns,
                    found.st_ctime_ns,
                )  # fmt: skip
                if self._known is None or self._known[0] != state:
                    self._known = state, _decoded(file, found, self.path, self.owners)
                grants = self._known[1]
        except FileNotFoundError:
            return DEFAULTS
        except OSError as error:
            grants = _refused(self.path, reason(error))
        if isinstance(grants, Grants):
            return grants
        raise Forbidden(
            f"the administrator's list {self.path} is refused: {grants}",
            hint="An administrator must correct it: owner root, mode 0644.",
        )


def _decoded(
    file: BinaryIO, found: os.stat_result, path: Path, owners: frozenset[int]
) -> Grants | str:
    """Or why it is refused."""
    try:
        why = _not_trusted(found, owners)
        text = "" if why else file.read(MAX_BYTES + 1).decode()
        if not why and len(text) > MAX_BYTES:
            why = f"it is larger than {MAX_BYTES} bytes"
        if not why:
            return load_grants(text, file=str(path))
    except (OSError, UnicodeDecodeError, SpecError) as error:
        why = str(error) if isinstance(error, SpecError) else reason(error)
    return _refused(path, why)


def _refused(path: Path, why: str) -> str:
    log.error("list of grants refused", file=str(path), why=why)
    return why


def _not_trusted(found: os.stat_result, owners: frozenset[int]) -> str:
    if found.st_uid not in owners:
        return f"it belongs to user {found.st_uid}, not to root"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "its group or others may write it"
    return "" if stat.S_ISREG(found.st_mode) else "it is not a regular file"
