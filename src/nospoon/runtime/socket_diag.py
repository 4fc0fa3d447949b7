"""TCP sockets of this machine, asked of the kernel (sock_diag(7)): one by its two ends, or all that
listen.

/proc/net/tcp has all of them in a text, tens of thousands where clients connect and leave: reading
that took the event loop for as long as some client liked.

    nlmsghdr            u32 length, u16 type, u16 flags, u32 sequence, u32 port
    inet_diag_req_v2    u8 family, protocol, extensions, pad, u32 states, then a sockid
    inet_diag_sockid    u16 source port, destination port (big-endian), 16 bytes of each address,
                        u32 interface, 2 × u32 cookie
    inet_diag_msg       u8 family, state, timer, retrans, then a sockid, u32 expires, rqueue,
                        wqueue, uid, inode
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address

Place = tuple[str, int]
ESTABLISHED = 1
"""Linux's TCP_ESTABLISHED."""
_LISTEN = 10
"""TCP_LISTEN of include/net/tcp_states.h."""
_NETLINK, _SOCK_DIAG = getattr(socket, "AF_NETLINK", 16), 4
_BY_FAMILY, _ERROR, _DONE, _REQUEST, _DUMP = 20, 2, 3, 1, 0x300
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBBI")
_ENDS = struct.Struct("!HH16s16s")
_NO_INTERFACE_OR_COOKIE = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_FOUND = struct.Struct("=BBBB48sIIIII")
_ANSWER = 4096
_LONGEST_ANSWER = 64 << 10
"""A dump comes in messages of up to 32 KiB (net/netlink/af_netlink.c)."""


@dataclass(frozen=True, slots=True)
class Found:
    """A socket's state, user and inode; inode 0: no process has it."""

    state: int
    uid: int
    inode: int


def find(local: Place, remote: Place) -> Found | None:
    """The socket at `local` that is connected to `remote`; None: there is none.

    Raises `OSError` where the kernel cannot be asked.
    """
    family = socket.AF_INET6 if ip_address(local[0]).version == 6 else socket.AF_INET
    ends = _ENDS.pack(local[1], remote[1], _packed(local[0]), _packed(remote[0]))
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ends
    asked += _NO_INTERFACE_OR_COOKIE
    with socket.socket(_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as line:
        line.settimeout(1.0)  # it answers at once
        line.send(_HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST, 1, 0) + asked)
        answer = line.recv(_ANSWER)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        if code == errno.ENOENT:
            return None
        raise OSError(code, "the kernel does not find sockets")
    _, state, _, _, place, _, _, _, uid, inode = _FOUND.unpack_from(answer, _HEADER.size)
    return Found(state, uid, inode) if place[: len(ends)] == ends else None  # else one that listens


def listening() -> frozenset[Place]:
    """Where sockets listen, of IPv4 and IPv6. Raises `OSError` as `find`."""
    return frozenset((*_listening(socket.AF_INET), *_listening(socket.AF_INET6)))


def _listening(family: socket.AddressFamily) -> Iterator[Place]:
    asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTEN)
    asked += bytes(_ENDS.size) + _NO_INTERFACE_OR_COOKIE
    with socket.socket(_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as line:
        line.settimeout(1.0)  # it answers at once
        header = _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _REQUEST | _DUMP, 1, 0)
        line.send(header + asked)
        while True:
            answer, at = line.recv(_LONGEST_ANSWER), 0
            while at < len(answer):
                length, kind, *_ = _HEADER.unpack_from(answer, at)
                if kind == _DONE:
                    return
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", answer, at + _HEADER.size)[0]
                    raise OSError(code, "the kernel does not list sockets")
                place = _FOUND.unpack_from(answer, at + _HEADER.size)[4]
                port, _, address, _ = _ENDS.unpack_from(place)
                packed = address[:4] if family == socket.AF_INET else address
                yield str(ip_address(packed)), port
                at += length + -length % 4


def _packed(address: str) -> bytes:
    return ip_address(address).packed.ljust(16, b"\0")
