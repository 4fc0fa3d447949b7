"""Finds the probe's record in what a serial console said.

PURE. The record is one JSON object. The probe (`init`) prints it as lines of their own worth,

    #nospoon ID NUMBER/TOTAL BASE64

where ID is the first 16 hexadecimal digits of the record's SHA-256, NUMBER counts from 1 to TOTAL
and BASE64 holds at most 48 characters of the record's encoding (RFC 4648 §4). A console is a rough
place: kernel messages, echoes, firmware's escape sequences and half lines come in between. So
every line is looked at alone, lines of several copies fill one another's gaps, a damaged line is
outdone by a sound copy of it, and a record counts when its checksum does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from typing import Self

import msgspec

MAX_LINES = 4096  # about 144 KiB of record: forged totals must not cost memory
_LINE = re.compile(
    rb"#nospoon ([0-9a-f]{16}) ([0-9]{1,4})/([0-9]{1,4}) ([A-Za-z0-9+/]{1,48}={0,2})(?=[\r\n])"
)
HELLO = b"nospoon-probe: hello"
DONE = b"nospoon-probe: done"


class FoundDisk(msgspec.Struct, frozen=True):
    """A disk that the guest sees; `size` in bytes. `rotational` None: nothing was told."""

    name: str
    size: int
    serial: str
    bus: str
    rotational: bool | None = None


class FoundNic(msgspec.Struct, frozen=True):
    """A NIC that the guest sees; `link`: it has a carrier. `ipv6`: what it is reached by."""

    name: str
    mac: str
    driver: str
    link: bool
    ipv6: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """What the probe found. Memory in bytes: as SMBIOS tells it (0: it doesn't), as the firmware's
    memory map gives it, and as Linux has left. `uptime`: seconds since the kernel started.
    """

    version: int
    uuid: str
    serial: str
    product: str
    manufacturer: str
    arch: str
    firmware: str
    secure_boot: bool
    tpm: bool
    cpus: int
    memory: int
    memory_mapped: int
    memory_usable: int
    disks: tuple[FoundDisk, ...]
    nics: tuple[FoundNic, ...]
    kernel: str
    uptime: float
    cmdline: str


def decode(body: bytes) -> Record | None:
    """The record in this JSON text, None where it is none."""
    try:
        return msgspec.json.decode(body, type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Located:
    """A record and the offset behind its last line in the console stream."""

    record: Record
    end: int


def find(stream: bytes) -> Record | None:
    """The record that was completed last in this console stream, None where none is whole."""
    found = find_all(stream)
    return found[-1].record if found else None


def find_all(stream: bytes) -> tuple[Located, ...]:
    """Every record that was completed, in order; copies of one count once, where the last ends."""
    copies: dict[tuple[bytes, int], _Copy] = {}
    found: dict[str, Located] = {}
    for match in _LINE.finditer(stream):
        mark, number, total = match.group(1), int(match.group(2)), int(match.group(3))
        if not 1 <= number <= total <= MAX_LINES:
            continue
        copy = copies.setdefault((mark, total), _Copy(mark.decode(), total))
        record = copy.with_line(number, match.group(4)).complete()
        if record is not None:
            found.pop(copy.mark, None)
            found[copy.mark] = Located(record, match.end())
    return tuple(found.values())


@dataclass(slots=True)
class _Copy:
    """Lines of one record seen so far; a later line takes the place of an earlier one."""

    mark: str
    total: int
    lines: dict[int, bytes] = field(default_factory=dict)

    def with_line(self, number: int, text: bytes) -> Self:
        self.lines[number] = text
        return self

    def complete(self) -> Record | None:
        if len(self.lines) < self.total:
            return None
        text = b"".join(self.lines[number] for number in range(1, self.total + 1))
        try:
            body = base64.b64decode(text, validate=True)
        except binascii.Error:
            return None
        sound = hashlib.sha256(body).hexdigest()[:16] == self.mark
        return decode(body) if sound else None


def frame(body: bytes) -> bytes:
    """The lines that the probe prints for this record: for simulators and tests."""
    mark = hashlib.sha256(body).hexdigest()[:16]
    text = base64.b64encode(body).decode()
    pieces = [text[start : start + 48] for start in range(0, len(text), 48)]
    lines = [f"#nospoon {mark} {n}/{len(pieces)} {piece}" for n, piece in enumerate(pieces, 1)]
    return "".join(line + "\n" for line in lines).encode()
