"""CD drives of servers: what is in them is kept here, and the boot image fetches it at a boot.

Nova can put no medium into a server that is there. The guest's loader reads it by HTTP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from uuid import UUID, uuid4

from nospoon.providers.base import Medium

SUFFIX = ".iso"


@dataclass(frozen=True, slots=True)
class Kept:
    """A file, by its inode: machines with the same medium share it. `sha256`: "" unknown."""

    inode: int
    size: int
    sha256: str = ""


class KeptMedia:
    """One name of a file for each machine, in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._lock = directory, Lock()
        self._all: dict[UUID, Kept] = {}
        for path in directory.glob(f"*{SUFFIX}") if directory.exists() else ():
            there = path.stat()
            self._all[UUID(path.stem)] = Kept(there.st_ino, there.st_size)

    def size(self, is_counted: Callable[[UUID], bool]) -> int:
        """Bytes of what is in the drives of these machines."""
        files = {
            each.inode: each.size for uuid, each in self._all.copy().items() if is_counted(uuid)
        }
        return sum(files.values())

    def path(self, machine: UUID) -> Path | None:
        """What is in the drive of a machine; None for nothing."""
        kept = self._kept(machine)
        return kept if kept.exists() else None

    async def insert(self, machine: UUID, medium: Medium) -> None:
        await asyncio.to_thread(self._insert, machine, medium)

    async def eject(self, machine: UUID) -> None:
        await asyncio.to_thread(self.drop, machine)

    def tidy(self, is_known: Callable[[UUID], bool]) -> None:
        """At start-up: remove what machines have that are gone, and what never became whole."""
        for machine in [each for each in self._all if not is_known(each)]:
            self.drop(machine)
        for part in self._directory.glob(".*"):
            part.unlink(missing_ok=True)

    def drop(self, machine: UUID) -> None:
        """What is in its drive goes, if there is something."""
        with self._lock:
            self._kept(machine).unlink(missing_ok=True)
            self._all.pop(machine, None)

    def _kept(self, machine: UUID) -> Path:
        return self._directory / f"{machine}{SUFFIX}"

    def _insert(self, machine: UUID, medium: Medium) -> None:
        """A second name of the file where that is possible: its first one may go. What a drive has
        already is not kept twice.
        """
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = self._directory / f".{uuid4()}"
        try:
            try:
                with self._lock:  # no drive gets another medium meanwhile
                    os.link(self._same(medium) or medium.path, part)
            except OSError:
                shutil.copyfile(medium.path, part)
            there = part.stat()
            with self._lock:
                part.replace(self._kept(machine))
                self._all[machine] = Kept(there.st_ino, there.st_size, medium.sha256)
        finally:
            part.unlink(missing_ok=True)

    def _same(self, medium: Medium) -> Path | None:
        """What some drive has of the same content."""
        same = (uuid for uuid, each in self._all.items() if each.sha256 == medium.sha256)
        holder = next(same, None)
        return None if holder is None else self._kept(holder)
