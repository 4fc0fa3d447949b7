"""Console records: every byte since the first power-on, though virtlogd keeps the last few MiB.

virtlogd writes `UUID.log` whether this daemon lives or not, and rotates it at 2 MiB: `.0` is the
newest of the old ones, after three the oldest is removed. We give each file a second name in
`UUID.d/`, numbered in the order of writing, as soon as we see it: a hard link is the same file, so
it grows as virtlogd writes, and stays when virtlogd removes its own name. The record is all of
them, one after the other. While the daemon is dead, virtlogd's own 8 MiB bridge the gap.

`UUID.d/group` says to whom the record belongs and of which node it is, so that it can be read and
purged after its cluster is gone.
Functions here do file operations; the service calls them in threads.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

RECORD = re.compile(r"^(?P<uuid>[0-9a-f-]{36})\.log(\.(?P<age>\d+))?$")
GROUP = "group"
LONGEST_END = 4096
SEGMENT = "{:08d}.log"


@dataclass(frozen=True, slots=True)
class Records:
    """The records in one local directory, the one that was given to the connection."""

    directory: Path

    def keep(self, machine: UUID, *, group: str, node: str) -> None:
        """From now on this machine's record is kept, as a node's of this group (a cluster)."""
        archive = self._archive(machine)
        archive.mkdir(parents=True, exist_ok=True)
        archive.chmod(0o700)
        (archive / GROUP).write_text(f"{group}/{node}")

    def sweep(self) -> None:
        """Give new files their second name. Often enough is before three rotations, 6 MiB."""
        for machine, files in self._written().items():
            if self._archive(machine).is_dir():
                self._link(self._archive(machine), files)

    def find(self, group: str, node: str) -> UUID | None:
        """The machine of a node whose cluster may be gone; of several the last one kept."""
        labels = self.directory.glob(f"*.d/{GROUP}")
        found = [each for each in labels if each.read_text() == f"{group}/{node}"]
        newest = max(found, key=lambda each: each.stat().st_mtime_ns, default=None)
        return UUID(newest.parent.stem) if newest is not None else None

    def size(self, machine: UUID) -> int:
        """Bytes in the record now."""
        return sum(segment.stat().st_size for segment in self._segments(machine))

    def end(self, machine: UUID, lines: int) -> str:
        """The last lines of the record, "" of an empty one."""
        self.sweep()
        size = self.size(machine)
        text = self.read(machine, max(0, size - LONGEST_END), LONGEST_END)
        return "\n".join(text.decode("utf-8", "replace").splitlines()[-lines:])

    def read(self, machine: UUID, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; b"" at the end of what there is."""
        for segment in self._segments(machine):
            size = segment.stat().st_size
            if offset < size:
                with segment.open("rb") as file:
                    file.seek(offset)
                    return file.read(limit)
            offset -= size
        return b""

    def tail(self, machine: UUID, most: int) -> bytes:
        """The end of the record, which may be in several segments."""
        offset, parts = max(0, self.size(machine) - most), list[bytes]()
        while most > 0 and (part := self.read(machine, offset, most)):
            parts.append(part)
            offset, most = offset + len(part), most - len(part)
        return b"".join(parts)

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

    def _segments(self, machine: UUID) -> list[Path]:
        archive = self._archive(machine)
        if not archive.is_dir():
            return []
        self._link(archive, self._written().get(machine, []))
        return sorted(archive.glob("*.log"))

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
        segments = sorted(archive.glob("*.log"))
        known = {segment.stat().st_ino for segment in segments}
        number = int(segments[-1].stem) + 1 if segments else 0
        for _, file in files:
            try:
                if file.stat().st_ino in known:
                    continue
                os.link(file, archive / SEGMENT.format(number))
            except FileNotFoundError:
                continue  # rotated under our hands: the next sweep finds it by its next name
            number += 1
