"""Addresses that sockets are bound to."""

from __future__ import annotations

ANY_IPV4, ANY = "0.0.0.0", "::"  # noqa: S104  (compared, not bound)


def same_place(one: str, other: str) -> bool:
    """Whether sockets of one port, bound to these, hinder each other.

    "::" takes IPv4 too while nobody asks for IPV6_V6ONLY (ipv6(7)).
    """
    pair = {one, other}
    return len(pair) == 1 or ANY in pair or (ANY_IPV4 in pair and not any(":" in a for a in pair))
