"""Files of an ISO 9660 image, found by name, and small images that are made (ECMA-119, 4th
edition; Joliet Specification of 22 May 1995).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
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


_PATH_TABLE = 10
"""Bytes of a path table that has the root alone: a record of ten (§9.4)."""
_JOLIET = b"%/E"
"""UCS-2 level 3 (Joliet, "SVD Escape Sequences")."""


def image(label: str, files: Mapping[str, bytes]) -> bytes:
    """An image with these files in its root, readable by their names as they are given.

    `label`: up to 16 characters of ASCII. Names of up to 27 characters of ASCII; the plain
    directory, which ECMA-119 restricts, has them in capitals, Joliet's as they are.
    """
    names = sorted(files)
    first = _DESCRIPTORS + 9  # 3 descriptors, 4 path tables, 2 directories
    places: dict[str, int] = {}
    for name in names:
        places[name] = first
        first += -(-len(files[name]) // SECTOR)
    plain, wide = _DESCRIPTORS + 7, _DESCRIPTORS + 8
    made = [
        _descriptor(1, label.ljust(32).encode("ascii"), b"", plain, _DESCRIPTORS + 3, first),
        _descriptor(2, _wide(label.ljust(16)), _JOLIET, wide, _DESCRIPTORS + 5, first),
        _sector(b"\xffCD001\x01"),
        *(
            _sector(struct.pack(f"{order}BBIHBx", 1, 0, root, 1, 0))
            for root in (plain, wide)
            for order in "<>"
        ),
    ]
    for root, coded in ((plain, lambda name: f"{name.upper()};1".encode("ascii")), (wide, _wide)):
        records = [
            _record(b"\0", root, SECTOR, _DIRECTORY),
            _record(b"\1", root, SECTOR, _DIRECTORY),
        ]
        records += [_record(coded(name), places[name], len(files[name]), 0) for name in names]
        made.append(_sector(b"".join(records)))
    return bytes(_DESCRIPTORS * SECTOR) + b"".join(
        (*made, *(_whole(files[name]) for name in names))
    )


def _descriptor(
    kind: int, label: bytes, escape: bytes, root: int, table: int, sectors: int
) -> bytes:
    """A primary or supplementary volume descriptor (§8.4, §8.5)."""
    blank = " ".encode("utf-16-be") if escape else b" "
    head = bytes([kind]) + b"CD001\x01\0" + blank * (32 // len(blank)) + label + bytes(8)
    head += _both(sectors, "I") + escape.ljust(32, b"\0")
    head += _both(1, "H") + _both(1, "H") + _both(SECTOR, "H") + _both(_PATH_TABLE, "I")
    head += struct.pack("<II", table, 0) + struct.pack(">II", table + 1, 0)
    head += _record(b"\0", root, SECTOR, _DIRECTORY)
    texts = blank * ((128 * 4 + 37 * 3) // len(blank))
    head += texts.ljust(128 * 4 + 37 * 3, b"\0") + (b"0" * 16 + b"\0") * 4 + b"\x01"
    return _sector(head)


def _record(name: bytes, place: int, size: int, flags: int) -> bytes:
    """A directory record (§9.1), without a date: equal files make equal images."""
    length = 33 + len(name) + (len(name) + 1) % 2
    head = bytes([length, 0]) + _both(place, "I") + _both(size, "I") + bytes(7)
    head += bytes([flags, 0, 0]) + _both(1, "H") + bytes([len(name)])
    return (head + name).ljust(length, b"\0")


def _both(number: int, form: str) -> bytes:
    """In both orders of bytes (§7.2.3, §7.3.3)."""
    return struct.pack(f"<{form}", number) + struct.pack(f">{form}", number)


def _wide(text: str) -> bytes:
    return text.encode("utf-16-be")


def _sector(data: bytes) -> bytes:
    assert len(data) <= SECTOR, "a few files"
    return data.ljust(SECTOR, b"\0")


def _whole(data: bytes) -> bytes:
    return data.ljust(-(-len(data) // SECTOR) * SECTOR, b"\0")
