"""Addresses that sockets are bound to, and those that clients come from."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address

ANY_IPV4, ANY = "0.0.0.0", "::"  # noqa: S104  (compared, not bound)
LOOPBACK = "127.0.0.1"


def same_place(one: str, other: str) -> bool:
    """Whether sockets of one port, bound to these, hinder each other.

    "::" takes IPv4 too while no one asks for IPV6_V6ONLY (ipv6(7)).
    """
    pair = {one, other}
    return len(pair) == 1 or ANY in pair or (ANY_IPV4 in pair and not any(":" in a for a in pair))


@lru_cache(1024)
def peer_key(address: str) -> str:
    """What a client is counted by in every limit: an IPv4 address, or the /64 of an IPv6 one, which
    is the least that a site gives a host (RFC 6177 §2). What is no address is its own key.
    """
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Network((int(found) >> 64 << 64, 64)))
    return str(found)


@lru_cache(1024)
def source_key(address: str) -> str:
    """Whose turn it is, and who guesses at passwords: `peer_key`, but all of loopback is one: each
    user of this machine has each of its 16 million addresses (RFC 1122 §3.2.1.3).
    """
    key = peer_key(address)
    try:
        return LOOPBACK if ip_address(key).is_loopback else key
    except ValueError:  # a network, which loopback has none of in IPv6
        return key
