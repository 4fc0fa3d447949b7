"""Packets: RMCP, ASF presence, IPMI 1.5 and RMCP+ session headers, IPMI messages.

Each decoder takes bytes and gives a value or raises `Garbage`; nothing else.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

RMCP_VERSION = 0x06
RMCP_NO_ACK = 0xFF
CLASS_ASF = 0x06
CLASS_IPMI = 0x07
ASF_IANA = 4542
ASF_PING = 0x80
ASF_PONG = 0x40
AUTH_NONE = 0x00
AUTH_RMCP_PLUS = 0x06
BMC_ADDRESS = 0x20
NEXT_HEADER = 0x07


class Garbage(Exception):
    """Not a packet that anybody should answer."""


class Payload(IntEnum):
    """Payload types (§13.27.3)."""

    IPMI = 0x00
    SOL = 0x01
    OPEN_REQUEST = 0x10
    OPEN_RESPONSE = 0x11
    RAKP1 = 0x12
    RAKP2 = 0x13
    RAKP3 = 0x14
    RAKP4 = 0x15


@dataclass(frozen=True, slots=True)
class Ping:
    """ASF presence ping (ASF 2.0 §3.2.4.2)."""

    tag: int


@dataclass(frozen=True, slots=True)
class Plain:
    """An IPMI 1.5 packet without authentication (§13.6); `message` is an IPMI message."""

    session: int
    sequence: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Packet:
    """An RMCP+ packet (§13.6). `covered` and `trailer`: what integrity is computed over,
    and what was sent as such; empty for unauthenticated packets.
    """

    payload_type: int
    encrypted: bool
    authenticated: bool
    session: int
    sequence: int
    payload: bytes
    covered: bytes = b""
    trailer: bytes = b""


@dataclass(frozen=True, slots=True)
class Message:
    """An IPMI request (§13.8). `netfn` is even."""

    netfn: int
    lun: int
    requester: int
    sequence: int
    command: int
    data: bytes
    responder: int = BMC_ADDRESS


_RMCP = struct.Struct("<BBBB")
_PLUS = struct.Struct("<BBIIH")
_PLAIN = struct.Struct("<BIIB")


def decode(data: bytes) -> Ping | Plain | Packet:
    """A datagram. Raises `Garbage`."""
    if len(data) < 4 or data[0] != RMCP_VERSION or data[1] != 0:
        raise Garbage("no RMCP header")
    match data[3]:
        case 0x06:
            return _ping(data)
        case 0x07:
            return _ipmi(data[4:])
        case _:
            raise Garbage("unknown RMCP class")


def _ping(data: bytes) -> Ping:
    if len(data) < 12 or int.from_bytes(data[4:8]) != ASF_IANA or data[8] != ASF_PING:
        raise Garbage("no presence ping")
    return Ping(tag=data[9])


def _ipmi(body: bytes) -> Plain | Packet:
    if not body:
        raise Garbage("no session header")
    if body[0] == AUTH_NONE:
        return _plain(body)
    if body[0] == AUTH_RMCP_PLUS:
        return _plus(body)
    raise Garbage("IPMI 1.5 authentication is not offered")


def _plain(body: bytes) -> Plain:
    if len(body) < _PLAIN.size:
        raise Garbage("short IPMI 1.5 header")
    _, sequence, session, length = _PLAIN.unpack_from(body)
    message = body[_PLAIN.size : _PLAIN.size + length]
    if len(message) != length:
        raise Garbage("short IPMI 1.5 payload")
    return Plain(session, sequence, message)


def _plus(body: bytes) -> Packet:
    if len(body) < _PLUS.size:
        raise Garbage("short RMCP+ header")
    _, kind, session, sequence, length = _PLUS.unpack_from(body)
    end = _PLUS.size + length
    if kind & 0x3F == 0x02 or len(body) < end:
        raise Garbage("OEM payload or short RMCP+ payload")
    packet = Packet(
        payload_type=kind & 0x3F,
        encrypted=bool(kind & 0x80),
        authenticated=bool(kind & 0x40),
        session=session,
        sequence=sequence,
        payload=body[_PLUS.size : end],
    )
    return _with_trailer(packet, body, end) if packet.authenticated else packet


def _with_trailer(packet: Packet, body: bytes, end: int) -> Packet:
    """The trailer begins with pad bytes to a multiple of four, their count, and 07h."""
    pad = -(end + 2) % 4
    covered = end + pad + 2
    if len(body) <= covered or body[covered - 1] != NEXT_HEADER or body[covered - 2] != pad:
        raise Garbage("no integrity trailer")
    return Packet(
        packet.payload_type,
        packet.encrypted,
        packet.authenticated,
        packet.session,
        packet.sequence,
        packet.payload,
        covered=body[:covered],
        trailer=body[covered:],
    )


def rmcp(body: bytes) -> bytes:
    """An RMCP datagram of class IPMI."""
    return _RMCP.pack(RMCP_VERSION, 0, RMCP_NO_ACK, CLASS_IPMI) + body


def pong(tag: int) -> bytes:
    """Presence pong: IPMI is supported (ASF 2.0 §3.2.4.3)."""
    data = ASF_IANA.to_bytes(4) + bytes(4) + b"\x81\x00" + bytes(6)
    header = _RMCP.pack(RMCP_VERSION, 0, RMCP_NO_ACK, CLASS_ASF)
    return header + ASF_IANA.to_bytes(4) + bytes([ASF_PONG, tag, 0, len(data)]) + data


def plain(message: bytes, *, session: int = 0, sequence: int = 0) -> bytes:
    """An IPMI 1.5 datagram without authentication."""
    return rmcp(_PLAIN.pack(AUTH_NONE, sequence, session, len(message)) + message)


def plus(
    payload_type: int,
    payload: bytes,
    *,
    session: int = 0,
    sequence: int = 0,
    encrypted: bool = False,
    authenticated: bool = False,
) -> bytes:
    """The body of an RMCP+ packet, up to what integrity is computed over."""
    kind = payload_type | (0x80 if encrypted else 0) | (0x40 if authenticated else 0)
    body = _PLUS.pack(AUTH_RMCP_PLUS, kind, session, sequence, len(payload)) + payload
    if authenticated:
        pad = -(len(body) + 2) % 4
        body += b"\xff" * pad + bytes([pad, NEXT_HEADER])
    return body


def checksum(data: bytes) -> int:
    """Two's complement checksum (§13.8)."""
    return -sum(data) & 0xFF


def decode_message(data: bytes) -> Message:
    """An IPMI request message. Raises `Garbage`."""
    if len(data) < 7 or checksum(data[:3]) or checksum(data[3:]):
        raise Garbage("IPMI message is short or its checksum is wrong")
    if (data[1] >> 2) & 1:
        raise Garbage("a response where a request was expected")
    return Message(
        netfn=data[1] >> 2,
        lun=data[1] & 3,
        requester=data[3],
        sequence=data[4] >> 2,
        command=data[5],
        data=data[6:-1],
        responder=data[0],
    )


def encode_reply(request: Message, code: int, data: bytes = b"") -> bytes:
    """The response to a request, with its completion code."""
    head = bytes([request.requester, (request.netfn | 1) << 2])
    rest = bytes([request.responder, request.sequence << 2 | request.lun, request.command, code])
    body = rest + data
    return head + bytes([checksum(head)]) + body + bytes([checksum(body)])
