"""Files of an ISO 9660 image, found by name (ECMA-119, 4th edition)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Read = Callable[[int, int], bytes]
"""(offset, length) in bytes -> that many, or fewer at the end."""
SECTOR = 2048
_DESCRIPTORS = 16
_DEEPEST = 8
"""ECMA-119 §6.8.2.1."""
_LARGEST_DIRECTORY = 1 << 20
MOST_RECORDS, MOST_BYTES = 4096, 8 << 20
"""What is looked at of one image: an agent's has some dozens of files, and
others may lead in circles.
"""
_DIRECTORY = 0x02


def find(read: Read, names: frozenset[str], *, largest: int) -> Iterator[bytes]:
    """The content of each file of one of these names, in small letters, wherever it is; longer
    ones are cut off at `largest` bytes. Nothing for what is no such image.
    """
    descriptor = read(_DESCRIPTORS * SECTOR, SECTOR)
    if len(descriptor) == SECTOR and descriptor[:6] == b"\x01CD001":  # §8.4
        yield from _Walk(read, names, largest).below(descriptor[156:190], _DEEPEST)


@dataclass(slots=True)
class _Walk:
    """Through one image; it ends where the image is larger or more tangled than any agent's."""

    read: Read
    names: frozenset[str]
    largest: int
    seen: set[int] = field(default_factory=set)
    records: int = MOST_RECORDS
    unread: int = MOST_BYTES

    def below(self, directory: bytes, levels: int) -> Iterator[bytes]:
        place, size = _extent(directory)
        if place in self.seen:
            return
        self.seen.add(place)
        for record in _records(self._take(place, min(size, _LARGEST_DIRECTORY))):
            self.records -= 1
            if self.records < 0:
                return
            name = record[33 : 33 + record[32]]
            if name in {b"\x00", b"\x01"}:  # itself, and what it is in (§9.1.11)
                continue
            if record[25] & _DIRECTORY:
                if levels:
                    yield from self.below(record, levels - 1)
            elif _plain(name) in self.names:
                place, size = _extent(record)
                yield self._take(place, min(size, self.largest))

    def _take(self, place: int, size: int) -> bytes:
        data = self.read(place, min(size, self.unread))
        self.unread -= len(data)
        return data


def _records(data: bytes) -> Iterator[bytes]:
    """Directory records (§9.1); none goes over a sector's end, the rest of which is zeros."""
    at = 0
    while at < len(data):
        length = data[at]
        if length == 0:
            at = (at // SECTOR + 1) * SECTOR
            continue
        record = data[at : at + length]
        if len(record) < 34 or len(record) < 33 + record[32]:
            return
        yield record
        at += length


def _extent(record: bytes) -> tuple[int, int]:
    """Offset and length in bytes (§9.1.3, §9.1.4)."""
    sector, size = record[2:6], record[10:14]
    return int.from_bytes(sector, "little") * SECTOR, int.from_bytes(size, "little")


def _plain(name: bytes) -> str:
    """Without its version (§7.5.1)."""
    return name.decode("ascii", "replace").partition(";")[0].rstrip(".").lower()
