"""What the helper on a relay and the daemon say to each other of BMCs, over connections of TCP.

A connection begins with a line, that of the PROXY protocol, version 1
(https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt), or `DATAGRAMS`:

    PROXY TCP4 CLIENT BMC CLIENT-PORT PORT CR LF    then what that client and the BMC send
    DATAGRAMS CR LF                                 then frames, in both directions

A frame is a datagram of IPMI: length of the payload (2 bytes), address of the BMC and of its client
(4 bytes each), port of the client (2 bytes), and the payload; numbers are big-endian.

PURE. Whoever has the relay may send anything: a line or a frame that is none raises `Malformed`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

LONGEST_LINE = 107
"""Bytes, CR and LF included (PROXY protocol, section 2.1)."""
HEAD = struct.Struct("!H4s4sH")
MOST_PAYLOAD = 1500
"""Bytes of a datagram: more is no message of IPMI on a network."""
DATAGRAMS = b"DATAGRAMS\r\n"
WORDS = 6
PORTS = range(1, 1 << 16)


class Malformed(Exception):
    """It is none of this protocol."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A client's connection to a port of a BMC."""

    client: IPv4Address
    bmc: IPv4Address
    port: int


@dataclass(frozen=True, slots=True)
class Datagrams:
    """Frames follow."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The two ends of datagrams."""

    bmc: IPv4Address
    client: IPv4Address
    port: int


def opening(line: bytes) -> Stream | Datagrams:
    """What a connection is for, by its first line. Raises `Malformed`."""
    if line == DATAGRAMS:
        return Datagrams()
    words = line.split(b" ")
    if len(line) > LONGEST_LINE or not line.endswith(b"\r\n") or len(words) != WORDS:
        raise Malformed
    _, _, client, bmc, _, port = (word.decode("ascii", "replace").strip() for word in words)
    if words[:2] != [b"PROXY", b"TCP4"] or not port.isdecimal() or int(port[:6]) not in PORTS:
        raise Malformed
    try:
        return Stream(IPv4Address(client), IPv4Address(bmc), int(port))
    except ValueError as error:
        raise Malformed from error


def framed(flow: Flow, payload: bytes) -> bytes:
    head = HEAD.pack(len(payload), flow.bmc.packed, flow.client.packed, flow.port)
    return head + payload


def head_of(data: bytes) -> tuple[Flow, int]:
    """Of a frame: its ends, and how many bytes follow. Raises `Malformed`."""
    length, bmc, client, port = HEAD.unpack(data)
    if length > MOST_PAYLOAD:
        raise Malformed
    return Flow(IPv4Address(bmc), IPv4Address(client), port), length
