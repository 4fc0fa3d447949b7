"""Where a connection may go that someone else names.

A name is resolved once, its addresses are judged, and the one that was judged is connected to: what
the name means a moment later (DNS rebinding) does not matter.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from nospoon.errors import Obstacle, Unfetchable
from nospoon.runtime.lookups import Place

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
MOST_ADDRESSES = 8
"""Addresses of one name that are tried."""
CONNECT_SECONDS = 20.0
"""For which one address may be silent when it is connected to."""
# IANA's registries of special-purpose addresses (RFC 6890), but for what a lab uses: private and
# shared ones, those of benchmarks and of documents; Teredo, 6to4 and NAT64 count as what they mean.
SPECIAL = tuple(
    ip_network(each)
    for each in (
        "0.0.0.0/8",  # this host (RFC 1122 §3.2.1.3); Linux takes it for loopback
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local (RFC 3927), where clouds have their metadata
        "192.0.0.0/24",  # of the protocols themselves: DS-Lite, PCP and TURN by anycast (RFC 6890)
        "192.88.99.0/24",  # relays of 6to4, deprecated (RFC 7526)
        "224.0.0.0/4",
        "240.0.0.0/4",  # reserved, and broadcast
        "100.100.100.200/32",  # metadata of Alibaba Cloud
        "168.63.129.16/32",  # the host of a machine at Azure
        "::/128",
        "::1/128",
        "::ffff:0:0:0/96",  # IPv4-translated (RFC 2765 §2.1), which translators take apart
        "64:ff9b:1::/48",  # of translators of this network alone (RFC 8215)
        "100::/64",  # discarded (RFC 6666)
        "100:0:0:1::/64",  # a prefix that stands for none (RFC 9780)
        "2001:1::/32",  # of the protocols themselves: PCP and TURN by anycast (RFC 7723, RFC 8155)
        "5f00::/16",  # identifiers of segment routing (RFC 9602)
        "fe80::/10",
        "fec0::/10",  # site-local, deprecated (RFC 3879)
        "ff00::/8",
        "fd00:ec2::254/128",  # metadata of AWS
    )
)
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052 §2.1
_COMPATIBLE = ip_network("::/96")  # IPv4-compatible (RFC 4291 §2.5.5.1)
HINT = "NOSPOON_MEDIA_NETWORKS names networks that BMCs may reach besides"


Names = Callable[[str, int, Hashable], Awaitable[Sequence[Place]]]
"""Name, port and who named it -> addresses, as `socket.getaddrinfo` returns them."""


async def _by_loop(host: str, port: int, _owner: Hashable) -> Sequence[Place]:
    """For names that no client chose: the loop's own threads wait for their servers."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


@dataclass(frozen=True, slots=True)
class Reach:
    """What may be connected to: everything but special addresses; `besides`: these as well.

    `anywhere`: no address is judged. `closed`: whether an address and port are of a listener that
    is never connected to. `names`: looks up names, `owner`: whose turn that is.
    """

    besides: tuple[Network, ...] = ()
    anywhere: bool = False
    closed: Callable[[str, int], bool] = lambda _address, _port: False
    names: Names = _by_loop
    owner: Hashable = None

    def admits(self, address: str, port: int) -> bool:
        """Whether a port of an address may be connected to."""
        meant = _meant(ip_address(address.partition("%")[0]))
        return self.allows(address) and not any(self.closed(str(each), port) for each in meant)

    def allows(self, address: str) -> bool:
        """Whether an IP address, perhaps with a zone (RFC 4007 §11), may be connected to."""
        given = ip_address(address.partition("%")[0])
        return self.anywhere or not any(
            _within(each, SPECIAL) and not _within(each, self.besides) for each in _meant(given)
        )


ANYWHERE = Reach(anywhere=True)


def _within(address: Address, among: Iterable[Network]) -> bool:
    return any(address.version == each.version and address in each for each in among)


def _meant(address: Address) -> list[Address]:
    """The address, and for IPv6 the IPv4 addresses that it stands for; only them where it is
    mapped, for that is what the system connects to.
    """
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found += address.teredo
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return found


def dial(host: str, port: int, reach: Reach, patience: float) -> socket.socket:
    """A connection to a name or address that may be reached; blocks.

    Raises `Unfetchable` when it may not be, `OSError` when no one answers.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    trouble: OSError | None = None
    for family, kind, protocol, _, place in _allowed(host, found, reach):
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(min(patience, CONNECT_SECONDS))
            made.connect(place)
        except OSError as error:
            made.close()
            trouble = error
        else:
            made.settimeout(patience)
            return made
    raise trouble or OSError(f"{host} has no address")


async def places_of(host: str, port: int, reach: Reach) -> list[str]:
    """The addresses of a name that may be reached: to be connected to instead of the name.

    Raises `Unfetchable`, `OSError`.
    """
    found = _literal(host, port) or await reach.names(host, port, reach.owner)
    return [str(each[4][0]) for each in _allowed(host, found, reach)]


def _literal(host: str, port: int) -> Sequence[Place]:
    """Of an address in text, for which no server is asked; [] for a name."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return []


def _allowed(host: str, found: Sequence[Place], reach: Reach) -> Sequence[Place]:
    """Of what `getaddrinfo` told. Raises `Unfetchable` when none may be reached."""
    allowed = [each for each in found if reach.admits(str(each[4][0]), int(each[4][1]))]
    if not allowed:
        at = ", ".join(sorted({str(each[4][0]) for each in found}))
        raise Unfetchable(
            f"{host} is at {at or 'no address'}, where a BMC may not reach",
            why=Obstacle.UNREACHABLE,
            hint=HINT,
        )
    return allowed[:MOST_ADDRESSES]
