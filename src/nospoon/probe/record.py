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

import msgspec

MAX_LINES = 4096  # about 144 KiB of record: forged totals must not cost memory
MAX_RECORDS = 16
"""Records whose lines are kept; of more, the oldest is forgotten."""
FREE_TRIES = 4096
"""Lines that may be joined in vain for a record before it depends on how many came."""
LONGEST_LINE = 128
"""Bytes of an unfinished line that are kept: more than a line of a record has."""
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


_RECORD = msgspec.json.Decoder(Record)


def decode(body: bytes) -> Record | None:
    """The record in this JSON text, None where it is none."""
    try:
        return _RECORD.decode(body)
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
    return Finder().feed(stream)


class Finder:
    """Finds records in a console stream that comes in pieces.

    The guest writes what it likes there. So the work for a piece does not grow with what came
    before it, and of that only the lines of a few records are kept.
    """

    def __init__(self) -> None:
        self._copies: dict[tuple[bytes, int], _Copy] = {}
        self._rest, self._offset = b"", 0
        self.tries = 0
        """Lines that were joined to try whether a record is whole."""

    def feed(self, piece: bytes) -> tuple[Located, ...]:
        """Every record that this piece completed; `end` counts from the stream's beginning."""
        found: dict[str, Located] = {}
        stream = self._rest + piece
        for match in _LINE.finditer(stream):
            mark, number, total = match.group(1), int(match.group(2)), int(match.group(3))
            if not 1 <= number <= total <= MAX_LINES:
                continue
            copy = self._copy(mark, total)
            before = copy.tried
            record = copy.take(number, match.group(4))
            self.tries += copy.tried - before
            if record is not None:
                found.pop(copy.mark, None)
                found[copy.mark] = Located(record, self._offset + match.end())
        end = max(stream.rfind(b"\n"), stream.rfind(b"\r")) + 1
        keep = max(end, len(stream) - LONGEST_LINE)
        self._rest, self._offset = stream[keep:], self._offset + keep
        return tuple(found.values())

    @property
    def kept(self) -> int:
        """Bytes of the stream that are kept."""
        lines = (line for copy in self._copies.values() for line in copy.lines.values())
        return len(self._rest) + sum(map(len, lines))

    def _copy(self, mark: bytes, total: int) -> _Copy:
        key = (mark, total)
        if key not in self._copies:
            while len(self._copies) >= MAX_RECORDS:
                del self._copies[next(iter(self._copies))]
            self._copies[key] = _Copy(mark.decode(), total)
        return self._copies[key]


@dataclass(slots=True)
class _Copy:
    """Lines of one record seen so far; a later line takes the place of an earlier one, until the
    record is found.

    `tried`: lines that were joined so far. They are at most `FREE_TRIES` and two for each line that
    came.
    """

    mark: str
    total: int
    lines: dict[int, bytes] = field(default_factory=dict)
    record: Record | None = None
    came: int = 0
    tried: int = 0

    def take(self, number: int, text: bytes) -> Record | None:
        """The record, if it is whole with this line."""
        self.came += 1
        same = self.lines.get(number) == text
        if self.record is not None:
            return self.record if same else None
        self.lines[number] = text
        allowed = FREE_TRIES + 2 * self.came
        if len(self.lines) == self.total and self.tried + self.total <= allowed:
            self.tried += self.total
            self.record = self._joined()
        return self.record

    def _joined(self) -> Record | None:
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
