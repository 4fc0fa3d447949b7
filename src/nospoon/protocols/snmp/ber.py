"""The part of BER (ITU-T X.690) that SNMP uses (RFC 3417 §8): definite lengths, low tag numbers.

`Reader` either parses or raises `Garbage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

Oid = tuple[int, ...]
MAX_SUBIDS = 128
"""RFC 2578 §3.5."""
MAX_MESSAGE = 2048
"""Bytes of a datagram that we take (`msgMaxSize`)."""
_SUBID_LIMIT = 1 << 32
_SHORT = 0x80


class Garbage(Exception):
    """Bytes that are no SNMP."""


class Tag(IntEnum):
    """Of values (RFC 2578 §7.1, RFC 3416 §3)."""

    INTEGER = 0x02
    OCTETS = 0x04
    NULL = 0x05
    OID = 0x06
    IP_ADDRESS = 0x40
    COUNTER32 = 0x41
    GAUGE32 = 0x42
    TIMETICKS = 0x43
    OPAQUE = 0x44
    COUNTER64 = 0x46
    NO_SUCH_OBJECT = 0x80
    NO_SUCH_INSTANCE = 0x81
    END_OF_MIB = 0x82


SEQUENCE = 0x30
_INTEGERS = frozenset({Tag.INTEGER, Tag.COUNTER32, Tag.GAUGE32, Tag.TIMETICKS, Tag.COUNTER64})
_OCTETS = frozenset({Tag.OCTETS, Tag.IP_ADDRESS, Tag.OPAQUE})


@dataclass(frozen=True, slots=True)
class Value:
    """A value and its type; `content` None for NULL and the exceptions of RFC 3416."""

    tag: Tag
    content: int | bytes | Oid | None = None


NULL = Value(Tag.NULL)
NO_SUCH_OBJECT = Value(Tag.NO_SUCH_OBJECT)
NO_SUCH_INSTANCE = Value(Tag.NO_SUCH_INSTANCE)
END_OF_MIB = Value(Tag.END_OF_MIB)


def integer(number: int) -> Value:
    return Value(Tag.INTEGER, number)


def text(words: str) -> Value:
    return Value(Tag.OCTETS, words.encode())


def encode(tag: int, content: bytes) -> bytes:
    """One element with its length."""
    size = len(content)
    if size < _SHORT:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, _SHORT | len(length))) + length + content


def sequence(*parts: bytes, tag: int = SEQUENCE) -> bytes:
    return encode(tag, b"".join(parts))


def encode_int(number: int, tag: int = Tag.INTEGER) -> bytes:
    """Two's complement in as few bytes as hold it."""
    size = (number.bit_length() if number >= 0 else (number + 1).bit_length()) // 8 + 1
    return encode(tag, number.to_bytes(size, signed=True))


def encode_octets(data: bytes) -> bytes:
    return encode(Tag.OCTETS, data)


def encode_oid(oid: Oid) -> bytes:
    first, second = (*oid, 0, 0)[:2]
    subids = (first * 40 + second, *oid[2:])
    return encode(Tag.OID, b"".join(_subid(each) for each in subids))


def _subid(number: int) -> bytes:
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def encode_value(value: Value) -> bytes:
    match value.content:
        case None:
            return encode(value.tag, b"")
        case int(number):
            return encode_int(number, value.tag)
        case bytes(data):
            return encode(value.tag, data)
        case tuple(oid):
            return encode_oid(oid)


class Reader:
    """Reads one element after the other from `data[position:end]`."""

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data, self.position = data, position
        self._end = len(data) if end is None else end

    @property
    def done(self) -> bool:
        return self.position >= self._end

    def element(self) -> tuple[int, int, int]:
        """(tag, where its content begins, where it ends), and go past it."""
        data, at = self._data, self.position
        if at + 2 > self._end:
            raise Garbage("cut off")
        tag, size = data[at], data[at + 1]
        at += 2
        if size >= _SHORT:
            count = size & 0x7F
            if not 1 <= count <= 4 or at + count > self._end:
                raise Garbage("a length that SNMP does not use")
            size = int.from_bytes(data[at : at + count])
            at += count
        if at + size > self._end:
            raise Garbage("longer than what holds it")
        self.position = at + size
        return tag, at, at + size

    def expect(self, tag: int) -> tuple[int, int]:
        found, begin, end = self.element()
        if found != tag:
            raise Garbage(f"tag {found:#x} where {tag:#x} belongs")
        return begin, end

    def inside(self, tag: int = SEQUENCE) -> Reader:
        return Reader(self._data, *self.expect(tag))

    def part(self, begin: int, end: int) -> Reader:
        """Of what `element` has found."""
        return Reader(self._data, begin, end)

    def octets(self) -> bytes:
        begin, end = self.expect(Tag.OCTETS)
        return self._data[begin:end]

    def integer(self) -> int:
        return self._integer(*self.expect(Tag.INTEGER))

    def _integer(self, begin: int, end: int) -> int:
        if not 1 <= end - begin <= 9:
            raise Garbage("an integer of a size that SNMP does not use")
        return int.from_bytes(self._data[begin:end], signed=True)

    def oid(self) -> Oid:
        return self._oid(*self.expect(Tag.OID))

    def _oid(self, begin: int, end: int) -> Oid:
        subids, number, open_ = [], 0, False
        for byte in self._data[begin:end]:
            number = number << 7 | byte & 0x7F
            open_ = byte >= _SHORT
            if number >= _SUBID_LIMIT:
                raise Garbage("a sub-identifier past 32 bits")
            if not open_:
                subids.append(number)
                number = 0
        if open_ or not subids or len(subids) >= MAX_SUBIDS:
            raise Garbage("no object identifier")
        first = min(subids[0] // 40, 2)
        return (first, subids[0] - first * 40, *subids[1:])

    def value(self) -> Value:
        found, begin, end = self.element()
        try:
            tag = Tag(found)
        except ValueError:
            raise Garbage(f"no type of SNMP: {found:#x}") from None
        if tag in _INTEGERS:
            return Value(tag, self._integer(begin, end))
        if tag in _OCTETS:
            return Value(tag, self._data[begin:end])
        if tag is Tag.OID:
            return Value(tag, self._oid(begin, end))
        return Value(tag)


def dotted(oid: Sequence[int]) -> str:
    return ".".join(map(str, oid))
