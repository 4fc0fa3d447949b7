"""A router advertisement that says: no router here, no prefix, nothing to wait for (RFC 4861 §4.2).

iPXE configures IPv4 and IPv6 together and asks for an IPv6 router for 13 seconds before it goes on
without. An answer of lifetime 0 and without prefixes ends that at once; by §6.3.4 it gives a guest
neither a route nor an address.
"""

from __future__ import annotations

import struct
from ipaddress import IPv6Address

ETHERTYPE = 0x86DD
ICMPV6 = 58
SOLICITATION, ADVERTISEMENT = 133, 134
ALL_NODES = IPv6Address("ff02::1")
_IP_AT, _ICMP_AT = 14, 54
_HOP_LIMIT = 255  # §6.1.1: proof that the packet crossed no router

_LOAD_LENGTH, _LOAD_BYTE, _NOT_LESS, _EQUAL, _RETURN = 0x80, 0x30, 0x35, 0x15, 0x06
FILTER = (
    (_LOAD_LENGTH, 0, 0, 0),
    (_NOT_LESS, 0, 7, _ICMP_AT + 8),
    (_LOAD_BYTE, 0, 0, _IP_AT + 6),
    (_EQUAL, 0, 5, ICMPV6),
    (_LOAD_BYTE, 0, 0, _IP_AT + 7),
    (_EQUAL, 0, 3, _HOP_LIMIT),
    (_LOAD_BYTE, 0, 0, _ICMP_AT),
    (_EQUAL, 0, 1, SOLICITATION),
    (_RETURN, 0, 0, 0xFFFF),
    (_RETURN, 0, 0, 0),
)
"""Of frames of IPv6, those that `is_solicitation` takes: code, jumps if true and false, and operand
of each line (bpf(4); linux/filter.h).
"""


def is_solicitation(frame: bytes) -> bool:
    """Whether this Ethernet frame is a router solicitation (§4.1, checked as in §6.1.1)."""
    if len(frame) < _ICMP_AT + 8 or frame[12:14] != ETHERTYPE.to_bytes(2, "big"):
        return False
    next_header, hop_limit = frame[_IP_AT + 6], frame[_IP_AT + 7]
    return next_header == ICMPV6 and hop_limit == _HOP_LIMIT and frame[_ICMP_AT] == SOLICITATION


def nothing_here(mac: bytes) -> bytes:
    """The Ethernet frame to all nodes, from the link-local address that belongs to this MAC."""
    source = link_local(mac)
    body = struct.pack("!BBHBBHII", ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0)
    body += b"\x01\x01" + mac  # source link-layer address, §4.6.1
    checksum = _checksum(source, body)
    body = body[:2] + checksum.to_bytes(2, "big") + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), ICMPV6, _HOP_LIMIT)
    ip = header + source.packed + ALL_NODES.packed + body
    return b"\x33\x33" + ALL_NODES.packed[12:] + mac + ETHERTYPE.to_bytes(2, "big") + ip


def link_local(mac: bytes) -> IPv6Address:
    """fe80:: and the modified EUI-64 of a MAC (RFC 4291, appendix A)."""
    interface = bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]
    return IPv6Address(b"\xfe\x80" + bytes(6) + interface)


def _checksum(source: IPv6Address, body: bytes) -> int:
    """Of the pseudo-header and the message (RFC 4443 §2.3)."""
    pseudo = source.packed + ALL_NODES.packed + struct.pack("!II", len(body), ICMPV6)
    data = pseudo + body + b"\0" * (len(body) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
