"""CD drives of servers: what is in them is kept here, and the boot image fetches it at a boot.

Nova can put no medium into a server that is there. The guest's loader reads it by HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from uuid import UUID, uuid4

from nospoon.providers.base import Medium


class KeptMedia:
    """One file for each machine, in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, machine: UUID) -> Path | None:
        """What is in the drive of a machine; None for nothing."""
        kept = self._kept(machine)
        return kept if kept.exists() else None

    async def insert(self, machine: UUID, medium: Medium) -> None:
        await asyncio.to_thread(self._insert, machine, Path(medium.path))

    async def eject(self, machine: UUID) -> None:
        await asyncio.to_thread(self._kept(machine).unlink, missing_ok=True)

    def _kept(self, machine: UUID) -> Path:
        return self._directory / f"{machine}.iso"

    def _insert(self, machine: UUID, source: Path) -> None:
        """A second name of the file where that is possible: its first one may go."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._directory / f".{uuid4()}"
        try:
            try:
                os.link(source, part)
            except OSError:
                shutil.copyfile(source, part)
            part.replace(self._kept(machine))
        finally:
            part.unlink(missing_ok=True)
