"""Console records: the last 64 MiB of each machine, though virtlogd keeps only the last few.

virtlogd writes `UUID.log` whether this daemon lives or not, and rotates it at 2 MiB: `.0` is the
newest of the old ones, after three the oldest is removed. We give each file a second name in
`UUID.d/`, numbered in the order of writing, as soon as we see it: a hard link is the same file, so
it grows as virtlogd writes, and stays when virtlogd removes its own name. The record is all of
them, one after the other. While the daemon is dead, virtlogd's own 8 MiB bridge the gap.

Offsets count from the first byte that the machine ever wrote. Beyond `MOST` bytes the oldest files
are removed, once virtlogd has removed its own name of them; `UUID.d/dropped` says which were and
how many bytes they had, so that offsets stay what they are.

`UUID.d/group` says to whom the record belongs and of which node it is, so that it can be read and
purged after its cluster is gone.
Functions here do file operations; the service calls them in threads.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from uuid import UUID, uuid4

RECORD = re.compile(r"^(?P<uuid>[0-9a-f-]{36})\.log(\.(?P<age>\d+))?$")
ARCHIVE = re.compile(r"^[0-9a-f-]{36}\.d$")
GROUP = "group"
DROPPED = "dropped"
LONGEST_END = 4096
SEGMENT = "{:08d}.log"
SEGMENT_SIZE = 2 << 20
"""Bytes of a file of a record, as virtlogd has them by default (max_size of virtlogd.conf)."""
MOST_ROTATED = 8
"""Numbers of a record's files that are looked for though one before them is missing."""
MOST = 64 << 20
"""Bytes of a machine's record; at more, its oldest files are removed."""
Stamp = frozenset[tuple[str, int, int]]
"""Name, inode and size of each file of a record."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a record. `names`: its hard links; with more than one, virtlogd has it still."""

    path: Path
    inode: int
    size: int
    names: int

    @property
    def number(self) -> int:
        return int(self.path.stem)


@dataclass(frozen=True, slots=True)
class Records:
    """The records in one local directory, the one that was given to the connection."""

    directory: Path
    most: int = MOST
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, machine: UUID, *, group: str, node: str) -> None:
        """From now on this machine's record is kept, as a node's of this group (UID/CLUSTER). What
        another user's machine of the same id wrote before stays that user's.
        """
        archive = self._archive(machine)
        if self.group(machine) and _owner(self.group(machine)) != _owner(group):
            self._set_aside(machine)
        with self._lock:  # `remove` may be at it
            archive.mkdir(parents=True, exist_ok=True)
            archive.chmod(0o700)
            (archive / GROUP).write_text(f"{group}/{node}")

    def _set_aside(self, machine: UUID) -> None:
        """Make its record that of a machine of its own, which is gone."""
        files = self._written_of(machine)
        self._link(self._archive(machine), files)
        with self._lock:
            for _, file in files:
                file.unlink(missing_ok=True)
            self._archive(machine).rename(self._archive(uuid4()))

    def sweep(self) -> None:
        """Give new files their second name. Often enough is before three rotations, 6 MiB. Those
        that have one are passed by: there may be tens of thousands of machines that are gone.
        """
        for machine in self._growing():
            archive = self._archive(machine)
            if archive.is_dir():
                self._link(archive, self._written_of(machine))

    def _growing(self) -> set[UUID]:
        """Machines with files that have no second name, or with several, which may be too much."""
        found = set[str]()
        for entry in self._entries():
            match = RECORD.match(entry.name)
            if match is not None and (match["age"] is not None or _has_one_name(entry)):
                found.add(match["uuid"])
        return set(map(UUID, found))

    def find(self, group: str, node: str) -> UUID | None:
        """The machine of a node whose cluster may be gone; of several the last one kept."""
        labels = self.directory.glob(f"*.d/{GROUP}")
        found = [each for each in labels if each.read_text() == f"{group}/{node}"]
        newest = max(found, key=lambda each: each.stat().st_mtime_ns, default=None)
        return UUID(newest.parent.stem) if newest is not None else None

    def size(self, machine: UUID) -> int:
        """The offset of the end: bytes since the first one, those that were dropped as well."""
        self._refresh(machine)
        with self._lock:
            return self._end(self._archive(machine))

    def stamp(self, machine: UUID) -> Stamp:
        """Another one whenever something was written, for a tenth of what `read` takes: it is for
        who looks again and again.
        """
        written = list[tuple[str, int, int]]()
        with suppress(FileNotFoundError):
            status = (self.directory / f"{machine}.log").stat()
            written.append(("", status.st_ino, status.st_size))
        with suppress(FileNotFoundError), os.scandir(self._archive(machine)) as entries:
            for each in entries:
                if each.name.endswith(".log"):
                    status = each.stat()
                    written.append((each.name, status.st_ino, status.st_size))
        return frozenset(written)

    def end(self, machine: UUID, lines: int) -> str:
        """The last lines of the record, "" of an empty one."""
        text = self.tail(machine, LONGEST_END)
        return "\n".join(text.decode("utf-8", "replace").splitlines()[-lines:])

    def read(self, machine: UUID, offset: int, limit: int) -> tuple[int, bytes]:
        """Up to `limit` bytes from `offset`, and the offset that they begin at: a later one where
        those before were dropped, an earlier one where the record has become shorter than that.
        b"" at the end of what there is.
        """
        self._refresh(machine)
        archive = self._archive(machine)
        with self._lock:
            begin = _dropped(archive)[1]
            if offset < begin or offset > self._end(archive):
                offset = begin
            for segment in _segments(archive):
                if offset < begin + segment.size:
                    with segment.path.open("rb") as file:
                        file.seek(offset - begin)
                        return offset, file.read(limit)
                begin += segment.size
        return offset, b""

    def tail(self, machine: UUID, most: int) -> bytes:
        """The end of the record, which may be in several segments."""
        offset, parts = max(0, self.size(machine) - most), list[bytes]()
        while most > 0:
            offset, part = self.read(machine, offset, most)
            if not part:
                break
            parts.append(part)
            offset, most = offset + len(part), most - len(part)
        return b"".join(parts)

    def append(self, machine: UUID, data: bytes) -> None:
        """Add what was written elsewhere. A record has either such or virtlogd's files."""
        archive = self._archive(machine)
        with self._lock:
            segments = _segments(archive)
            number = segments[-1].number if segments else _dropped(archive)[0] + 1
            if segments and segments[-1].size + len(data) > SEGMENT_SIZE:
                number += 1
            with (archive / SEGMENT.format(number)).open("ab") as file:
                file.write(data)
            self._drop(archive, _segments(archive), self.most)

    def machines(self) -> list[UUID]:
        """Those of which something is kept."""
        return [UUID(each.name[:-2]) for each in self._entries() if ARCHIVE.match(each.name)]

    def group(self, machine: UUID) -> str:
        """The group of a record, "" for none."""
        try:
            return (self._archive(machine) / GROUP).read_text().rpartition("/")[0]
        except FileNotFoundError:
            return ""

    def usage(self, machine: UUID) -> tuple[float, int]:
        """When something of a record was last written (Unix seconds), and how many bytes it has."""
        times, size = [0.0], 0
        with self._lock:
            for file in (*self._archive(machine).glob("*.log"), self._archive(machine) / GROUP):
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                times.append(status.st_mtime)
                size += status.st_size
        return max(times), size

    def shorten(self, machine: UUID, most: int) -> None:
        """Drop the oldest files of a record beyond so many bytes, but what virtlogd has."""
        with self._lock:
            archive = self._archive(machine)
            if archive.is_dir():
                self._drop(archive, _segments(archive), most)

    def remove(self, machine: UUID, *, only_if: Callable[[UUID], bool]) -> None:
        """Remove a record for good, where that holds for its machine at that moment."""
        files = [each.path for each in self._entries() if each.name.startswith(f"{machine}.log")]
        with self._lock:
            if only_if(machine):
                for file in files:
                    Path(file).unlink(missing_ok=True)
                shutil.rmtree(self._archive(machine), ignore_errors=True)

    async def purge(self, group: str) -> None:
        """Remove all records of a group, for good."""
        await asyncio.to_thread(self._purge, group)

    def _purge(self, group: str) -> None:
        if not self.directory.is_dir():
            return
        written = self._written()
        for archive in self.directory.glob("*.d"):
            label = archive / GROUP
            if label.is_file() and label.read_text().rpartition("/")[0] == group:
                for _, file in written.get(UUID(archive.stem), []):
                    file.unlink(missing_ok=True)
                shutil.rmtree(archive)

    def _archive(self, machine: UUID) -> Path:
        return self.directory / f"{machine}.d"

    def _refresh(self, machine: UUID) -> None:
        archive = self._archive(machine)
        if archive.is_dir():
            self._link(archive, self._written_of(machine))

    def _written_of(self, machine: UUID) -> list[tuple[int, Path]]:
        """The same of one machine, without a look at those of all others. virtlogd numbers what it
        rotated from 0; while it rotates, a number may be missing (util/virrotatingfile.c).
        """
        paths = [self.directory / f"{machine}.log"]
        for age in count():
            path = self.directory / f"{machine}.log.{age}"
            if path.exists():
                paths.append(path)
            elif age >= MOST_ROTATED:
                break
        return [(-age, path) for age, path in enumerate(paths)][::-1]

    def _end(self, archive: Path) -> int:
        return _dropped(archive)[1] + sum(segment.size for segment in _segments(archive))

    def _written(self) -> dict[UUID, list[tuple[int, Path]]]:
        """virtlogd's files by machine, each oldest first: (minus age, path)."""
        found: dict[UUID, list[tuple[int, Path]]] = {}
        for entry in self._entries():
            match = RECORD.match(entry.name)
            if match is not None:
                age = int(match["age"]) + 1 if match["age"] is not None else 0
                found.setdefault(UUID(match["uuid"]), []).append((-age, Path(entry.path)))
        return {machine: sorted(files) for machine, files in found.items()}

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        if self.directory.is_dir():
            with os.scandir(self.directory) as entries:
                yield from entries

    def _link(self, archive: Path, files: list[tuple[int, Path]]) -> None:
        with self._lock:
            segments = _segments(archive)
            known = {segment.inode for segment in segments}
            number = segments[-1].number + 1 if segments else _dropped(archive)[0] + 1
            for _, file in files:
                try:
                    if file.stat().st_ino in known:
                        continue
                    os.link(file, archive / SEGMENT.format(number))
                except FileNotFoundError:
                    continue  # rotated under our hands: the next sweep finds it by its next name
                number += 1
            self._drop(archive, segments, self.most)

    def _drop(self, archive: Path, segments: list[Segment], most: int) -> None:
        """Remove the oldest of these files while there is too much with them."""
        size = sum(segment.size for segment in segments)
        gone = list[Segment]()
        for segment in segments[:-1]:
            if size <= most or segment.names > 1:
                break
            size -= segment.size
            gone.append(segment)
        if not gone:
            return
        through = gone[-1].number
        begin = _dropped(archive)[1] + sum(segment.size for segment in gone)
        # First what was dropped, then the files: those that a crash leaves do not count any more.
        half = archive / f"{DROPPED}.new"
        half.write_text(f"{through} {begin}")
        half.replace(archive / DROPPED)
        _segments(archive)


def _has_one_name(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat().st_nlink == 1
    except FileNotFoundError:
        return False  # rotated under our hands: the next sweep finds it by its next name


def _owner(group: str) -> str:
    return group.partition("/")[0]


def _dropped(archive: Path) -> tuple[int, int]:
    """The number of the last segment that was dropped, -1 for none; bytes of all of them."""
    try:
        through, size = (archive / DROPPED).read_text().split()
    except FileNotFoundError:
        return -1, 0
    return int(through), int(size)


def _segments(archive: Path) -> list[Segment]:
    """The files of a record, oldest first. Those that were dropped are removed."""
    through = _dropped(archive)[0]
    found = []
    for path in sorted(archive.glob("*.log")):
        if int(path.stem) <= through:
            path.unlink(missing_ok=True)
            continue
        status = path.stat()
        found.append(Segment(path, status.st_ino, status.st_size, status.st_nlink))
    return found
