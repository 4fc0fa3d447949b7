"""UDP sockets on the loop: one for an address and port, or one for every address of a port.

The second tells to which address a datagram was sent and answers from that address (ip(7),
IP_PKTINFO; RFC 3542 §6, IPV6_PKTINFO), so that ten thousand addresses cost one descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from nospoon.errors import ProviderError
from nospoon.runtime import socket_diag
from nospoon.runtime.clock import Clock, monotonic
from nospoon.runtime.received import Received

ANY = "0.0.0.0"  # noqa: S104  (asked for by whoever opens such a socket)
ANY_IPV6 = "::"
BATCH, SECONDS = 16, 0.002
"""Datagrams taken at once before other work has its turn, and for how long: some take milliseconds.
"""
TOGETHER = Received()
"""Of all sockets: what comes at thousands of them at a moment has a few milliseconds of a turn."""
MAX_DATAGRAM = 2048
_NO_SUCH_SOURCE = frozenset({errno.EINVAL, errno.ENETUNREACH})
"""What Linux says of an IPv6 and of an IPv4 address that no machine has for itself."""
IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)
_PKTINFO, _PKTINFO_IPV6 = struct.Struct("=I4s4s"), struct.Struct("=16sI")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a datagram, and to which address of ours. `zone`: the interface behind which an
    IPv6 address of a link is, the peer's or the socket's, without which no answer finds its way
    (RFC 4007 §11).
    """

    address: str
    port: int
    local: str
    zone: int = 0

    @property
    def place(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """As sockets take it."""
        if self.zone:
            return self.address, self.port, 0, self.zone
        return self.address, self.port


Receive = Callable[[bytes, Peer], None]


class UdpSocket:
    """An open socket. `address` ANY serves all IPv4 addresses that this machine answers to,
    ANY_IPV6 those of IPv6 and of IPv4, in IPv6's form "::ffff:192.0.2.1".

    `fields` of the cluster file choose another port. `owner`: whose socket it is; owners take turns
    where datagrams wait, and so do the sockets of each. Raises `CannotServe`.
    """

    def __init__(
        self,
        address: str,
        port: int,
        receive: Receive,
        *,
        fields: str = "other `bmc.ports`",
        now: Clock = monotonic,
        owner: Callable[[], Hashable] = lambda: None,
        together: Received = TOGETHER,
    ) -> None:
        self._receive, self._address, self._now = receive, address, now
        self._owner, self._together, self._closed = owner, together, False
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(family_of(address), kind)
        if address == ANY:
            self._socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        elif address == ANY_IPV6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise CannotServe("UDP", "udp", (address, port), error, fields) from error
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        if self._together.may_begin():
            self._take(BATCH)  # the loop calls again: what is left is still readable
        else:
            self._loop.remove_reader(self._socket)
            self._together.put(self._owner(), self._take_later)

    def _take_later(self) -> bool:
        """One datagram, in a later turn of the loop. Returns whether there may be more."""
        if self._closed:
            return False
        more = False
        try:
            more = self._take(1)
        finally:
            if not more and not self._closed:
                self._loop.add_reader(self._socket, self._readable)
        return more

    def _take(self, most: int) -> bool:
        """Returns whether there may be more."""
        end = self._now() + SECONDS
        for _ in range(most):
            try:
                data, ancillary, _, (address, port, *rest) = self._socket.recvmsg(MAX_DATAGRAM, 64)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                continue  # an ICMP error of an earlier send; the datagram is not ours
            local, zone = _destination(ancillary) if ancillary else (self._address, 0)
            self._receive(data, Peer(address, port, local, rest[1] or zone if rest else 0))
            if self._closed:
                return False
            if self._now() >= end:
                break
        return True

    def send(self, data: bytes, peer: Peer) -> None:
        """Send, or drop when the kernel has no room: UDP clients try again."""
        ancillary = []
        if self._address == ANY:
            info = _PKTINFO.pack(0, socket.inet_aton(peer.local), bytes(4))
            ancillary = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
        elif self._address == ANY_IPV6:
            info = _PKTINFO_IPV6.pack(socket.inet_pton(socket.AF_INET6, peer.local), peer.zone)
            ancillary = [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, info)]
        with suppress(OSError):
            try:
                self._socket.sendmsg([data], ancillary, 0, peer.place)
            except OSError as error:
                if not ancillary or error.errno not in _NO_SUCH_SOURCE:
                    raise
                # It was sent to all of a network, from whose address nothing is: Linux chooses.
                self._socket.sendmsg([data], [], 0, peer.place)

    def close(self) -> None:
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._socket.close()


def family_of(address: str) -> socket.AddressFamily:
    """Of an IPv4 or IPv6 address in text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _destination(ancillary: list[tuple[int, int, bytes]]) -> tuple[str, int]:
    """Ours to which a datagram was sent, and the interface that it means where it is a link's."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
            return socket.inet_ntoa(_PKTINFO.unpack(data[: _PKTINFO.size])[2]), 0
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
            packed, zone = _PKTINFO_IPV6.unpack(data[: _PKTINFO_IPV6.size])
            address = socket.inet_ntop(socket.AF_INET6, packed)
            return address, zone if IPv6Address(packed).is_link_local else 0
    return "", 0


class CannotServe(ProviderError):
    """Why a socket of `what` cannot be bound, and what to do about it. Who has the port is not
    said yet: to look for that takes too long for the event loop.

    `protocol` as proc(5) calls it, "udp" or "tcp"; `fields` of the cluster file choose another.
    """

    def __init__(
        self, what: str, protocol: str, place: tuple[str, int], error: OSError, fields: str
    ) -> None:
        self._what, self._protocol, self._place = what, protocol, place
        self._error, self._fields = error, fields
        found = self._said("")
        super().__init__(found.message, hint=found.hint)

    def named(self) -> ProviderError:
        """The same with who has the port. Run it in a thread."""
        taken = self._error.errno == errno.EADDRINUSE
        return self._said(holder_of(self._protocol, self._place[1]) if taken else "")

    def _said(self, holder: str) -> ProviderError:
        address, port = self._place
        by = f" by {holder}" if holder else ""
        return ProviderError(
            f"cannot serve {self._what} {_written(address)}:{port}: {self._error.strerror}{by}",
            hint=_way_out(address, self._error, holder, self._fields),
        )


def _written(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _way_out(address: str, error: OSError, holder: str, fields: str) -> str:
    """What to do about it; to end ourselves would repair nothing."""
    other = f"{fields} in the cluster file."
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"This machine does not have the address {address}: set `bmc.address` to one that it "
            f"has, or add it with `ip address add {address} dev INTERFACE`."
        )
    if error.errno == errno.EACCES:
        return f"Only root may use ports below 1024: choose {other}"
    if not holder or holder.endswith(f"(pid {os.getpid()})"):
        return f"Choose {other}"
    return f"Stop {holder}, or choose {other}"


def holder_of(protocol: str, port: int) -> str:
    """'dnsmasq (pid 12)': who has a local port (proc(5)), "" when that cannot be seen."""
    inodes = _inodes(protocol, port)
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with suppress(OSError):  # it has ended, or is another user's
            if any(inode in inodes for inode in _sockets_of(process)):
                name = (process / "comm").read_text().strip()
                return f"{name} (pid {process.name})"
    return ""


def _sockets_of(process: Path) -> Iterator[str]:
    """Inodes of the sockets that a process has."""
    with os.scandir(process / "fd") as descriptors:
        for each in descriptors:
            with suppress(FileNotFoundError):  # closed meanwhile
                found = each.stat()
                if stat.S_ISSOCK(found.st_mode):
                    yield str(found.st_ino)


def ports_in_use(protocol: str) -> frozenset[tuple[str, int]]:
    """(address, port) of every local socket, of IPv4 and IPv6."""
    return frozenset(place for place, _ in _sockets(protocol))


def listening() -> frozenset[tuple[str, int]]:
    """(address, port) of every TCP socket that listens, of IPv4 and IPv6. The text of proc(5) is
    for kernels without sock_diag: for it Linux looks at all that are connected, too.
    """
    try:
        return socket_diag.listening()
    except OSError:
        return frozenset(place for place, _ in _sockets("tcp", only=LISTEN))


def _inodes(protocol: str, port: int) -> set[str]:
    return {inode for _, inode in _sockets(protocol, port=port)}


LISTEN = "0A"
"""A state of TCP sockets in proc(5), by include/net/tcp_states.h of Linux."""


def _sockets(
    protocol: str, *, only: str = "", port: int | None = None
) -> Iterator[tuple[tuple[str, int], str]]:
    """Place and inode of every local socket (proc(5), /proc/net/udp), or of those at a port. A
    kernel without IPv6 has no file of it; addresses stand there in words of 32 bits, in this
    machine's order.
    """
    ending = f":{port:04X}" if port is not None else ""
    for path in (Path(f"/proc/net/{protocol}"), Path(f"/proc/net/{protocol}6")):
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            row = line.split()
            if (only and row[3] != only) or not row[1].endswith(ending):
                continue
            address, number = row[1].rsplit(":", 1)
            words = struct.iter_unpack("=4s", bytes.fromhex(address))
            packed = b"".join(
                word[::-1] if sys.byteorder == "little" else word for (word,) in words
            )
            yield (str(ip_address(packed)), int(number, 16)), row[9]
