"""What the helpers on a relay and the daemon say to each other, over connections of TCP.

Of BMCs: a connection begins with a line, that of the PROXY protocol, version 1
(https://www.haproxy.org/download/1.8/doc/proxy-protocol.txt), or `DATAGRAMS`:

    PROXY TCP4 CLIENT BMC CLIENT-PORT PORT CR LF    then what that client and the BMC send
    DATAGRAMS CR LF                                 then frames, in both directions

A frame is a datagram of IPMI: length of the payload (2 bytes), address of the BMC and of its client
(4 bytes each), port of the client (2 bytes), and the payload; numbers are big-endian.

Of network boot: a relay has the files of one service, known by the SHA-256 of their manifest, in
hexadecimal, `-` for none. It says so first, and what became of them each time that this changes:

    HAS REVISION LF            first of all
    SERVES REVISION LF         dnsmasq runs with them, or, of none, does not run
    WAITS WORDS LF             what it has to do before takes its time
    FAILS WORDS LF             it does not serve them, and tries again

The daemon sends archives of tar(1), each after its length (4 bytes): files that changed, and last
the manifest, a line per file with its SHA-256 and path. The relay drops files that are not in it.

PURE. Whoever has the relay may send anything: a line or a frame that is none raises `Malformed`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

LONGEST_LINE = 107
"""Bytes, CR and LF included (PROXY protocol, section 2.1)."""
HEAD = struct.Struct("!H4s4sH")
LENGTH = struct.Struct("!I")
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


@dataclass(frozen=True, slots=True)
class Has:
    """Files of this revision, "" for none."""

    revision: str


@dataclass(frozen=True, slots=True)
class Serves:
    """What it serves, "" for nothing."""

    revision: str


@dataclass(frozen=True, slots=True)
class Waits:
    """`why`: in its own words, which may be any."""

    why: str


@dataclass(frozen=True, slots=True)
class Fails:
    """`why`: in its own words, which may be any."""

    why: str


Report = Has | Serves | Waits | Fails
LONGEST_REPORT = 2048
NONE = "-"
_REVISION = re.compile(r"[0-9a-f]{64}")


def report(line: bytes) -> Report:
    """What a relay says of its files. Raises `Malformed`."""
    if len(line) > LONGEST_REPORT or not line.endswith(b"\n"):
        raise Malformed
    word, _, rest = line.decode("utf-8", "replace").rstrip("\r\n").partition(" ")
    match word:
        case "WAITS":
            return Waits(rest)
        case "FAILS":
            return Fails(rest)
        case "HAS" | "SERVES" if rest == NONE or _REVISION.fullmatch(rest):
            revision = "" if rest == NONE else rest
            return Has(revision) if word == "HAS" else Serves(revision)
    raise Malformed


def framed(flow: Flow, payload: bytes) -> bytes:
    head = HEAD.pack(len(payload), flow.bmc.packed, flow.client.packed, flow.port)
    return head + payload


def head_of(data: bytes) -> tuple[Flow, int]:
    """Of a frame: its ends, and how many bytes follow. Raises `Malformed`."""
    length, bmc, client, port = HEAD.unpack(data)
    if length > MOST_PAYLOAD:
        raise Malformed
    return Flow(IPv4Address(bmc), IPv4Address(client), port), length
