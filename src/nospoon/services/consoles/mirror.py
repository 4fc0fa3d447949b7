"""Console records of a host over ssh, copied here as they grow.

virtlogd writes them there whether we live or not, and rotates them at 2 MiB, keeping three. Here
what is new is appended to the machine's record; `UUID.d/copied` says which of the files there the
end of it comes from, by inode, and at which offset of ours that file begins. So nothing is
lost or doubled by a crash between two steps, or while this daemon is dead, up to 8 MiB a machine.
The record of a machine that is gone is removed there once it is here.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from uuid import UUID

import structlog

from nospoon.errors import HostUnreachable, NospoonError
from nospoon.runtime.runner import Runner
from nospoon.services.consoles.records import RECORD, Records

log = structlog.get_logger()

CHUNK = 1 << 20
QUICK_SECONDS, SLOW_SECONDS = 1.0, 5.0
"""Between two looks at a host where machines run, and at one where none does."""
ROTATED = 9

LIST = 'cd "$1" 2>/dev/null || exit 0; stat -c "%n %i %s" -- *.log *.log.[0-9] 2>/dev/null || true'
READ = f"""
exec 3<"$1" || exit {ROTATED}
[ "$(stat -L -c %i /proc/self/fd/3)" = "$2" ] || exit {ROTATED}
tail -c "+$3" <&3 | head -c {CHUNK} | base64 -w0
"""


@dataclass(frozen=True, slots=True)
class _File:
    """A file of virtlogd's: its name, inode and size there."""

    name: str
    inode: int
    size: int


class Mirror:
    """Copies the records of a host. `machines`: those that live there; `busy`: whether one runs."""

    def __init__(
        self,
        runner: Runner,
        there: PurePosixPath,
        records: Records,
        *,
        machines: Callable[[], Collection[UUID]],
        busy: Callable[[], bool],
    ) -> None:
        self._runner, self._there, self._records = runner, there, records
        self._machines, self._busy = machines, busy
        self._turn = asyncio.Lock()
        self._away = False

    async def keep(self) -> None:
        """Copy for ever; a host that is away is told of once."""
        while True:
            if self._machines():
                await self.look()
            await asyncio.sleep(QUICK_SECONDS if self._busy() else SLOW_SECONDS)

    async def look(self) -> None:
        """Copy what is new, if the host answers."""
        try:
            await self.pull()
            self._away = False
        except (
            NospoonError,
            ValueError,
        ) as error:  # the latter: what answers is no list, no base64
            if not self._away:
                log.warning("console records are not copied", at=str(self._there), why=str(error))
            self._away = isinstance(error, HostUnreachable | ValueError)

    async def pull(self) -> None:
        """Copy what is new. Raises `HostUnreachable`."""
        async with self._turn:
            for machine, files in (await self._list()).items():
                archive = self._records.directory / f"{machine}.d"
                if archive.is_dir():
                    await self._copy(machine, archive, files)
                    if machine not in self._machines():
                        await self._remove(files)

    async def _list(self) -> dict[UUID, list[_File]]:
        """Machine -> its files there, oldest first."""
        found: dict[UUID, list[tuple[int, _File]]] = {}
        done = await self._runner.run(["sh", "-c", LIST, "sh", str(self._there)])
        for line in done.stdout.splitlines():
            name, inode, size = line.rsplit(" ", 2)
            match = RECORD.match(name)
            if match is not None:
                age = int(match["age"]) + 1 if match["age"] is not None else 0
                file = _File(name, int(inode), int(size))
                found.setdefault(UUID(match["uuid"]), []).append((-age, file))
        return {
            machine: [file for _, file in sorted(files, key=lambda each: each[0])]
            for machine, files in found.items()
        }

    async def _copy(self, machine: UUID, archive: Path, files: list[_File]) -> None:
        inode, begin = await asyncio.to_thread(_noted, archive)
        inodes = [file.inode for file in files]
        if inode in inodes:
            files = files[inodes.index(inode) :]
        elif inode:
            log.warning("a console record was rotated away before it was copied", at=str(archive))
        end = await asyncio.to_thread(self._records.size, machine)
        for file in files:
            if file.inode != inode:
                inode, begin = file.inode, end
                await asyncio.to_thread(_note, archive, inode, begin)
            while (have := end - begin) < file.size:
                data = await self._read(file, have)
                if not data:
                    return  # rotated or removed meanwhile: the next look finds it
                await asyncio.to_thread(self._records.append, machine, data)
                end += len(data)

    async def _read(self, file: _File, offset: int) -> bytes:
        words = [str(self._there / file.name), str(file.inode), str(offset + 1)]
        done = await self._runner.run(["sh", "-c", READ, "sh", *words], check=False)
        return b64decode(done.stdout) if done.status == 0 else b""

    async def _remove(self, files: list[_File]) -> None:
        names = [str(self._there / file.name) for file in files]
        await self._runner.run(["rm", "-f", "--", *names])


def _noted(archive: Path) -> tuple[int, int]:
    try:
        told = json.loads((archive / "copied").read_text())
        return int(told["inode"]), int(told["begin"])
    except FileNotFoundError:
        return 0, 0


def _note(archive: Path, inode: int, begin: int) -> None:
    half = archive / "copied.new"
    half.write_text(json.dumps({"inode": inode, "begin": begin}))
    half.replace(archive / "copied")
