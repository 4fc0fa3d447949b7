"""Console records of a host over ssh, copied here as they grow.

virtlogd writes them there whether we live or not, and rotates them at 2 MiB, keeping three. Here
what is new is appended to the machine's record; `UUID.d/copied` says which of the files there the
end of it comes from, by inode, and at which offset of ours that file begins. So nothing is
lost or doubled by a crash between two steps, or while this daemon is dead, up to 8 MiB a machine.
The record of a machine that is gone is removed there once it is here.

A host may list any machine: what it says of one that is on another host, or was when it went, is
nothing of it.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path, PurePosixPath
from uuid import UUID

import structlog

from nospoon.errors import HostUnreachable, NospoonError
from nospoon.runtime.paced import paced
from nospoon.runtime.process import printed_by
from nospoon.runtime.runner import Runner
from nospoon.services.consoles.records import MOST, RECORD, Records

log = structlog.get_logger()

CHUNK = 1 << 20
MOST_CODED = 2 * CHUNK
"""Characters of so much in base64."""
LONGEST_LIST = 16 << 20
"""Characters of a list of files: one of ten thousand machines with four files each has 3 Mi."""
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


@dataclass(frozen=True, slots=True)
class _Copied:
    """Of a record: which file of which host its end comes from, by its inode there, and at which
    offset of ours that file begins. `host`: "" where an earlier version wrote it.
    """

    inode: int
    begin: int
    host: str


class Mirror:
    """Copies the records of a host. `host`: by which it is known; `home`: the host of a machine,
    None for one that is gone; `lives`: whether some live there; `busy`: whether one runs.
    """

    def __init__(
        self,
        runner: Runner,
        there: PurePosixPath,
        records: Records,
        *,
        host: str,
        home: Callable[[UUID], str | None],
        lives: Callable[[], bool],
        busy: Callable[[], bool],
    ) -> None:
        self._runner, self._there, self._records = runner, there, records
        self._host, self._home, self._lives, self._busy = host, home, lives, busy
        self._turn = asyncio.Lock()
        self._away = False

    async def keep(self) -> None:
        """Copy for ever; a host that is away is told of once."""
        while True:
            if self._lives():
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
            async for machine, files in paced((await self._list()).items()):
                archive = self._archive(machine)
                if not await self._is_here(machine, archive):
                    continue
                await self._copy(machine, archive, files)
                if self._home(machine) is None:
                    await self._remove(files)

    async def _is_here(self, machine: UUID, archive: Path) -> bool:
        """Whether a machine lives on this host, or is gone and was last copied from it. One that
        lived for a moment was never copied, and has no record.
        """
        home = self._home(machine)
        if home is not None:
            return home == self._host
        noted = await asyncio.to_thread(_noted, archive)
        if noted is None:
            return not await asyncio.to_thread(self._records.size, machine)
        return noted.host == self._host

    async def _list(self) -> dict[UUID, list[_File]]:
        """Machine -> its files there, oldest first."""
        done = await self._runner.run(["sh", "-c", LIST, "sh", str(self._there)])
        return await asyncio.to_thread(self._listed, printed_by(done, LONGEST_LIST))

    def _listed(self, text: str) -> dict[UUID, list[_File]]:
        """Of machines of which a record is kept. Raises `ValueError` for what is no list."""
        found: dict[UUID, list[tuple[int, _File]]] = {}
        for line in StringIO(text):
            name, inode, size = line.rsplit(maxsplit=2)
            match = RECORD.match(name)
            if match is not None:
                age = int(match["age"]) + 1 if match["age"] is not None else 0
                file = _File(name, int(inode), min(int(size), MOST))
                found.setdefault(UUID(match["uuid"]), []).append((-age, file))
        return {
            machine: [file for _, file in sorted(files, key=lambda each: each[0])]
            for machine, files in found.items()
            if self._archive(machine).is_dir()
        }

    def _archive(self, machine: UUID) -> Path:
        return self._records.directory / f"{machine}.d"

    async def _copy(self, machine: UUID, archive: Path, files: list[_File]) -> None:
        noted = await asyncio.to_thread(_noted, archive)
        if noted is None or noted.host not in ("", self._host):
            noted = _Copied(0, 0, self._host)
        inode, begin = noted.inode, noted.begin
        inodes = [file.inode for file in files]
        if inode in inodes:
            files = files[inodes.index(inode) :]
            if noted.host != self._host:
                await asyncio.to_thread(_note, archive, _Copied(inode, begin, self._host))
        elif inode:
            log.warning("a console record was rotated away before it was copied", at=str(archive))
        end = await asyncio.to_thread(self._records.size, machine)
        for file in files:
            if file.inode != inode:
                inode, begin = file.inode, end
                await asyncio.to_thread(_note, archive, _Copied(inode, begin, self._host))
            while (have := end - begin) < file.size:
                data = await self._read(file, have)
                if not data:
                    return  # rotated or removed meanwhile: the next look finds it
                await asyncio.to_thread(self._records.append, machine, data)
                end += len(data)

    async def _read(self, file: _File, offset: int) -> bytes:
        words = [str(self._there / file.name), str(file.inode), str(offset + 1)]
        done = await self._runner.run(["sh", "-c", READ, "sh", *words], check=False)
        coded = printed_by(done, MOST_CODED)
        return await asyncio.to_thread(b64decode, coded) if done.status == 0 else b""

    async def _remove(self, files: list[_File]) -> None:
        names = [str(self._there / file.name) for file in files]
        await self._runner.run(["rm", "-f", "--", *names])


def _noted(archive: Path) -> _Copied | None:
    try:
        note = json.loads((archive / "copied").read_text())
        return _Copied(int(note["inode"]), int(note["begin"]), str(note.get("host", "")))
    except FileNotFoundError:
        return None


def _note(archive: Path, noted: _Copied) -> None:
    half = archive / "copied.new"
    half.write_text(json.dumps(asdict(noted)))
    half.replace(archive / "copied")
