"""Writes what machines say into their records, where no other program does."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import structlog

from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
AGAIN = 2.0
"""Seconds until what could not be written is tried again."""
MOST_RECORD = 2 << 20
"""Bytes of a machine's record; at more, its older half goes. virtlogd's files are as large."""
MOST_WAITING = 8 << 20
"""Bytes of one user's machines that wait to be written, as on a full disk; what these say then is
not recorded.
"""


def _nothing() -> int:
    return 0


@dataclass(frozen=True, slots=True)
class RecordSpace:
    """What the recorders of all hosts share. `lacking`: bytes that the disk has less than its
    reserve; nothing is recorded while it has. `waiting`: bytes that wait to be written, by user.
    """

    lacking: Callable[[], int] = _nothing
    waiting: Counter[int | None] = field(default_factory=Counter)


@dataclass(slots=True)
class _Said:
    """What one machine said, joined: each part would be an object and a write, and guests and who
    types choose how small the parts are.
    """

    path: Path
    user: int | None
    data: bytearray = field(default_factory=bytearray)


_Waiting = dict[tuple[UUID, int | None], _Said]
"""By machine and its user."""


class Recorder:
    """Keeps what ports say in their records: many writes at a time, and none on the loop.

    `directory` None: nothing is recorded.
    """

    def __init__(
        self, directory: Path | None, tasks: Tasks, space: RecordSpace | None = None
    ) -> None:
        self._directory, self._tasks = directory, tasks
        self._space = space if space is not None else RecordSpace()
        self._said: _Waiting = {}
        self._writing: asyncio.Task[None] | None = None
        self._stuck = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written, of all hosts that share the space."""
        return self._space.waiting.total()

    def path(self, machine: UUID) -> Path | None:
        """Where the record of a machine's port is."""
        return self._directory / f"{machine}.log" if self._directory is not None else None

    def take(self, machine: UUID, data: bytes, user: int | None = None) -> None:
        """Write this soon, after what was taken before. `user`: whose machine it is."""
        path, waiting = self.path(machine), self._space.waiting
        if path is None or waiting[user] + len(data) > MOST_WAITING:
            return
        waiting[user] += len(data)
        self._said.setdefault((machine, user), _Said(path, user)).data += data
        if self._writing is None:
            self._writing = self._tasks.start(self._write(), name="write console records")

    async def flush(self) -> None:
        """Until everything is written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def tried(self) -> None:
        """Until everything is written, or waits for disk space: then who said it goes on."""
        if self._writing is None:
            return
        stuck = self._tasks.start(self._stuck.wait(), name="see whether the disk is full")
        await asyncio.wait([self._writing, stuck], return_when=asyncio.FIRST_COMPLETED)
        stuck.cancel()

    async def _write(self) -> None:
        try:
            while self._said:
                said, self._said = self._said, {}
                try:
                    why, written = await asyncio.to_thread(_append, said, self._space.lacking)
                finally:
                    self._keep(said)
                self._space.waiting.subtract(written)
                if not why:
                    self._stuck.clear()
                    continue
                log.warning("console logs wait for disk space", why=why)
                self._stuck.set()
                await asyncio.sleep(AGAIN)
        finally:
            self._writing = None
            self._stuck.clear()

    def _keep(self, said: _Waiting) -> None:
        """What was not written goes before what was said meanwhile."""
        for key, later in self._said.items():
            said.setdefault(key, _Said(later.path, later.user)).data += later.data
        self._said = said

    def close(self) -> None:
        """What still waits is lost, once the tasks have ended."""
        for each in list(self._said.values()):
            self._space.waiting[each.user] -= len(each.data)
        self._said.clear()


def _append(said: _Waiting, lacking: Callable[[], int]) -> tuple[str, Counter[int | None]]:
    """Write all there is; why it had to stop, "" when it had not, and the bytes that are written,
    by user. What stopped it stays.
    """
    written = Counter[int | None]()
    for key, each in list(said.items()):
        try:
            if lacking():  # the rest is for the daemon's store
                return os.strerror(errno.ENOSPC), written
            _write_whole(each.path, bytes(each.data))
        except OSError as error:
            return str(error), written
        del said[key]
        written[each.user] += len(each.data)
    return "", written


def _private(path: str, flags: int) -> int:
    """Opens what its owner alone may read, also where an earlier version let others: who knows a
    machine's UUID, which its processes show, knows the path.
    """
    opened = os.open(path, flags | os.O_CLOEXEC, 0o600)
    os.fchmod(opened, 0o600)
    return opened


def _write_whole(path: Path, data: bytes) -> None:
    """All of it or nothing; of a record that would be too long, the end."""
    data = data[-MOST_RECORD // 2 :]
    with open(path, "a+b", buffering=0, opener=_private) as file:
        if file.seek(0, os.SEEK_END) + len(data) > MOST_RECORD:
            file.seek(-(MOST_RECORD // 2 - len(data)), os.SEEK_END)
            data = file.read() + data
            file.truncate(0)  # not another file: the archive has a link to this one
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) == len(data):
                return
        except OSError:
            file.truncate(before)
            raise
        file.truncate(before)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
