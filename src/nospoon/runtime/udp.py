"""UDP sockets on the loop: one for an address and port, or one for every address of a port.

The second tells to which address a datagram was sent and answers from that address (ip(7),
IP_PKTINFO), so that ten thousand addresses cost one descriptor.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nospoon.errors import ProviderError

ANY = "0.0.0.0"  # noqa: S104  (asked for by whoever opens such a socket)
BATCH = 16
"""Datagrams taken at once before other work has its turn."""
MAX_DATAGRAM = 2048
IP_PKTINFO = getattr(socket, "IP_PKTINFO", 8)
_PKTINFO = struct.Struct("=I4s4s")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who sent a datagram, and to which address of ours. `zone`: the interface behind which an
    IPv6 address of a link is, without which nobody there can be answered (RFC 4007 §11).
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
    """An open socket. `address` ANY serves all addresses that this machine answers to."""

    def __init__(self, address: str, port: int, receive: Receive) -> None:
        self._receive, self._address = receive, address
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(family_of(address), kind)
        if address == ANY:
            self._socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise _cannot_bind(address, port, error) from error
        self.port = int(self._socket.getsockname()[1])
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._readable)

    def _readable(self) -> None:
        for _ in range(BATCH):
            try:
                data, ancillary, _, (address, port, *rest) = self._socket.recvmsg(MAX_DATAGRAM, 64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                continue  # an ICMP error of an earlier send; the datagram is not ours
            local = _destination(ancillary) if ancillary else self._address
            self._receive(data, Peer(address, port, local, rest[1] if rest else 0))

    def send(self, data: bytes, peer: Peer) -> None:
        """Send, or drop when the kernel has no room: UDP clients try again."""
        ancillary = []
        if self._address == ANY:
            info = _PKTINFO.pack(0, socket.inet_aton(peer.local), bytes(4))
            ancillary = [(socket.IPPROTO_IP, IP_PKTINFO, info)]
        try:
            self._socket.sendmsg([data], ancillary, 0, peer.place)
        except OSError:
            return

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()


def family_of(address: str) -> socket.AddressFamily:
    """Of an IPv4 or IPv6 address in text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _destination(ancillary: list[tuple[int, int, bytes]]) -> str:
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == IP_PKTINFO:
            return socket.inet_ntoa(_PKTINFO.unpack(data[: _PKTINFO.size])[2])
    return ""


def _cannot_bind(address: str, port: int, error: OSError) -> ProviderError:
    holder = holder_of("udp", port)
    by = f" by {holder}" if holder else ""
    return ProviderError(
        f"cannot serve UDP {address}:{port}: {error.strerror}{by}",
        hint=instead(holder, "other `bmc.ports`"),
    )


def instead(holder: str, fields: str) -> str:
    """What to do about a port that `holder` has; to end ourselves would mend nothing."""
    stop = "" if holder.endswith(f"(pid {os.getpid()})") else "Stop that, or choose "
    return f"{stop or 'Choose '}{fields} in the cluster file."


def holder_of(protocol: str, port: int) -> str:
    """'dnsmasq (pid 12)': who has a local port (proc(5)), "" when that cannot be seen."""
    inodes = _inodes(protocol, port)
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.removeprefix("socket:[").removesuffix("]") in inodes:
            pid = descriptor.parts[2]
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            return f"{name} (pid {pid})"
    return ""


def _inodes(protocol: str, port: int) -> set[str]:
    rows = [line.split() for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]]
    return {row[9] for row in rows if int(row[1].rsplit(":", 1)[1], 16) == port}


def ports_in_use(protocol: str) -> frozenset[tuple[str, int]]:
    """(address, port) of every local IPv4 socket (proc(5), /proc/net/udp)."""
    rows = [line.split() for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]]
    found = set()
    for row in rows:
        address, port = row[1].rsplit(":", 1)
        found.add((socket.inet_ntoa(int(address, 16).to_bytes(4, "little")), int(port, 16)))
    return frozenset(found)
