"""Protocol data units (RFC 3416 §3; RFC 1157 for v1) and messages by community (RFC 1901)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from nospoon.protocols.snmp import ber
from nospoon.protocols.snmp.ber import Garbage, Oid, Reader, Value

MAX_BINDINGS = 128
"""More than fit into a datagram that we take."""


class Version(IntEnum):
    """The number in `msgVersion`."""

    V1 = 0
    V2C = 1
    V3 = 3


class Type(IntEnum):
    """Tag of a PDU."""

    GET = 0xA0
    GET_NEXT = 0xA1
    RESPONSE = 0xA2
    SET = 0xA3
    GET_BULK = 0xA5
    REPORT = 0xA8


class Status(IntEnum):
    """error-status (RFC 3416 §3)."""

    NO_ERROR = 0
    TOO_BIG = 1
    NO_SUCH_NAME = 2
    BAD_VALUE = 3
    READ_ONLY = 4
    GEN_ERR = 5
    NO_ACCESS = 6
    WRONG_TYPE = 7
    WRONG_LENGTH = 8
    WRONG_ENCODING = 9
    WRONG_VALUE = 10
    NO_CREATION = 11
    INCONSISTENT_VALUE = 12
    RESOURCE_UNAVAILABLE = 13
    COMMIT_FAILED = 14
    UNDO_FAILED = 15
    AUTHORIZATION_ERROR = 16
    NOT_WRITABLE = 17
    INCONSISTENT_NAME = 18


@dataclass(frozen=True, slots=True)
class Binding:
    """A variable binding."""

    oid: Oid
    value: Value = ber.NULL


@dataclass(frozen=True, slots=True)
class Pdu:
    """`status` and `index` are non-repeaters and max-repetitions in a GET_BULK."""

    type: Type
    request: int
    bindings: tuple[Binding, ...]
    status: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """Of v1 or v2c."""

    version: Version
    community: bytes
    pdu: Pdu


def version_of(data: bytes) -> Version:
    """Whose message this is. Raises `Garbage`."""
    try:
        return Version(Reader(data).inside().integer())
    except ValueError:
        raise Garbage("no version that we know") from None


def read_pdu(reader: Reader) -> Pdu:
    """Raises `Garbage`."""
    found, begin, end = reader.element()
    try:
        type_ = Type(found)
    except ValueError:
        raise Garbage(f"no PDU that we know: {found:#x}") from None
    inside = reader.part(begin, end)
    request, status, index = inside.integer(), inside.integer(), inside.integer()
    listed, bindings = inside.inside(), []
    while not listed.done:
        each = listed.inside()
        bindings.append(Binding(each.oid(), each.value()))
    if len(bindings) > MAX_BINDINGS:
        raise Garbage("too many variables")
    return Pdu(type_, request, tuple(bindings), status, index)


def write_pdu(pdu: Pdu) -> bytes:
    bindings = (
        ber.sequence(ber.encode_oid(each.oid), ber.encode_value(each.value))
        for each in pdu.bindings
    )
    return ber.sequence(
        ber.encode_int(pdu.request),
        ber.encode_int(pdu.status),
        ber.encode_int(pdu.index),
        ber.sequence(*bindings),
        tag=pdu.type,
    )


def read_message(data: bytes) -> Message:
    """Raises `Garbage`."""
    inside = Reader(data).inside()
    version = inside.integer()
    if version not in (Version.V1, Version.V2C):
        raise Garbage("no message with a community")
    return Message(Version(version), inside.octets(), read_pdu(inside))


def write_message(message: Message) -> bytes:
    return ber.sequence(
        ber.encode_int(message.version),
        ber.encode_octets(message.community),
        write_pdu(message.pdu),
    )
