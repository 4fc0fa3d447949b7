"""How this machine reaches an address, and the MAC address that answers there (rtnetlink(7)).

    nlmsghdr    u32 length, u16 type, u16 flags, u32 sequence, u32 port
    rtmsg       u8 family, destination length, source length, tos, table, protocol, scope, type,
                u32 flags
    ndmsg       u8 family, 3 bytes, s32 interface, u16 state, u8 flags, type
    rtattr      u16 length, type, then the value, up to a multiple of 4

A table of the kernel as text has IPv4 only, and an address whose MAC the kernel forgot is not in
it: who has one on a network of this machine decides when it is, by answering no question for it.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from ipaddress import IPv4Address, IPv6Address, ip_address

_NETLINK, _ROUTE = getattr(socket, "AF_NETLINK", 16), 0
_GET_ROUTE, _GET_NEIGHBOR, _ERROR, _REQUEST = 26, 30, 2, 1
_HEADER = struct.Struct("=IHHII")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=B3xiHBB")
_ATTRIBUTE = struct.Struct("=HH")
_DESTINATION, _INTERFACE, _GATEWAY, _MULTIPATH, _VIA = 1, 4, 5, 9, 18
_NEIGHBOR, _LINK_ADDRESS = 1, 2
_LOCAL = 2
"""RTN_LOCAL: an address of this machine."""
_KNOWN = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
"""States with a MAC address that holds: reachable, stale, delay, probe, permanent."""
_GET_FLAGS = 0x8913
_WITHOUT_MACS = 0x10 | 0x80
"""Of an interface (netdevice(7)): IFF_POINTOPOINT, IFF_NOARP."""
_ANSWER = 8192


class Way(Enum):
    """To an address. HERE: it is this machine's. LINK: it is on a network of it, where neighbors
    have MAC addresses. ROUTED: it is behind a router, or a link without MAC addresses.
    """

    HERE = auto()
    LINK = auto()
    ROUTED = auto()


@dataclass(frozen=True, slots=True)
class Neighbor:
    """Of a LINK `interface`, and `mac`: in lower case; "" where none is known."""

    way: Way
    mac: str = ""
    interface: str = ""


def neighbor(address: str) -> Neighbor:
    """Who is at an address, as the kernel knows it now. `address` may name its interface as
    getpeername(2) does (`fe80::1%eth0`). Raises `OSError` where the kernel cannot be asked, and for
    an address to which there is no route.
    """
    plain, _, scope = address.partition("%")
    found = ip_address(plain)
    if found.is_loopback:
        return Neighbor(Way.HERE)
    kind, attributes = _route(found, _index(scope))
    if kind == _LOCAL:
        return Neighbor(Way.HERE)
    if attributes.keys() & {_GATEWAY, _MULTIPATH, _VIA}:
        return Neighbor(Way.ROUTED)
    index = struct.unpack("=i", attributes[_INTERFACE])[0]
    interface = socket.if_indextoname(index)
    if _flags(interface) & _WITHOUT_MACS:
        return Neighbor(Way.ROUTED)
    return Neighbor(Way.LINK, _mac(found, index), interface)


def is_here(address: str) -> bool:
    """Whether it is an address of this machine."""
    try:
        return neighbor(address).way is Way.HERE
    except OSError:
        return False


def _route(address: IPv4Address | IPv6Address, interface: int) -> tuple[int, dict[int, bytes]]:
    """Its type and attributes."""
    head = _RTMSG.pack(_family(address), address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    more = _attribute(_INTERFACE, struct.pack("=i", interface)) if interface else b""
    answer = _ask(_GET_ROUTE, head + _attribute(_DESTINATION, address.packed) + more)
    kind = _RTMSG.unpack_from(answer)[7]
    return kind, dict(_attributes(answer[_RTMSG.size :]))


def _mac(address: IPv4Address | IPv6Address, interface: int) -> str:
    head = _NDMSG.pack(_family(address), interface, 0, 0, 0)
    try:
        answer = _ask(_GET_NEIGHBOR, head + _attribute(_NEIGHBOR, address.packed))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return ""
        raise
    state = _NDMSG.unpack_from(answer)[2]
    mac = dict(_attributes(answer[_NDMSG.size :])).get(_LINK_ADDRESS, b"")
    return mac.hex(":") if state & _KNOWN else ""


def _index(scope: str) -> int:
    if not scope:
        return 0
    return int(scope) if scope.isdecimal() else socket.if_nametoindex(scope)


def _flags(interface: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        answer = fcntl.ioctl(line, _GET_FLAGS, struct.pack("16sH14x", interface.encode(), 0))
    flags: int = struct.unpack_from("16sH", answer)[1]
    return flags


def _family(address: IPv4Address | IPv6Address) -> int:
    return socket.AF_INET6 if address.version == 6 else socket.AF_INET


def _ask(kind: int, asked: bytes) -> bytes:
    """What follows the header of the one message that answers. Raises `OSError`."""
    with socket.socket(_NETLINK, socket.SOCK_RAW, _ROUTE) as line:
        line.settimeout(1.0)  # it answers at once
        line.send(_HEADER.pack(_HEADER.size + len(asked), kind, _REQUEST, 1, 0) + asked)
        answer = line.recv(_ANSWER)
    length, got = _HEADER.unpack_from(answer)[:2]
    if got == _ERROR:
        code = -struct.unpack_from("=i", answer, _HEADER.size)[0]
        raise OSError(code, "the kernel does not know that address")
    return answer[_HEADER.size : length]


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(-length % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[length + -length % 4 :]
