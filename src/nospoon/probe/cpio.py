"""A writer for cpio "newc" archives, which the Linux kernel unpacks as its first file system.

PURE. The format is told in the kernel's Documentation/driver-api/early-userspace/buffer-format.rst:
a header of 110 ASCII bytes ("070701" and thirteen numbers of eight hexadecimal digits), the name
with a NUL, padding to a multiple of four, the data, padding again; the last entry is called
"TRAILER!!!". Owner is root, and times are zero unless given, so that equal input makes equal bytes.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

MAGIC = "070701"
TRAILER = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: its path without a leading slash, its full mode, its data (a link's target).

    `device`: major and minor number of a device node. `modified`: Unix seconds.
    """

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)
    modified: int = 0


def directory(path: str) -> Entry:
    return Entry(path, stat.S_IFDIR | 0o755)


def file(path: str, data: bytes, *, mode: int = 0o644) -> Entry:
    return Entry(path, stat.S_IFREG | mode, data)


def symlink(path: str, target: str) -> Entry:
    return Entry(path, stat.S_IFLNK | 0o777, target.encode())


def character_device(path: str, *, major: int, minor: int) -> Entry:
    return Entry(path, stat.S_IFCHR | 0o600, device=(major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """The archive of these entries and of every directory above them, in the order given."""
    chunks: list[bytes] = []
    for number, entry in enumerate(with_parents(entries), start=1):
        chunks.append(_packed(entry, number))
    chunks.append(_packed(Entry(TRAILER, 0), 0))
    return b"".join(chunks)


def with_parents(entries: Iterable[Entry]) -> list[Entry]:
    """The same entries, each after the directories above it; of two with one path, the first."""
    known: dict[str, Entry] = {}
    for entry in entries:
        parts = entry.path.split("/")
        for depth in range(1, len(parts)):
            parent = "/".join(parts[:depth])
            known.setdefault(parent, directory(parent))
        known.setdefault(entry.path, entry)
    return list(known.values())


def _packed(entry: Entry, number: int) -> bytes:
    name = entry.path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        number,
        entry.mode,
        0,  # uid
        0,  # gid
        links,
        entry.modified,
        len(entry.data),
        0,  # device that holds the file
        0,
        *entry.device,
        len(name),
        0,  # checksum: only in format 070702
    )
    header = (MAGIC + "".join(f"{value:08X}" for value in fields)).encode()
    return _padded(header + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
