"""Addresses that other tools know by a name."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from nospoon.errors import UsageError
from nospoon.runtime.reasons import reason


def resolved(name: str) -> str:
    """The first IP address of a host's name; an address as it is. Raises `UsageError`."""
    try:
        return str(ip_address(name))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"cannot resolve the address {name!r}: {reason(error)}") from error
    return str(found[0][4][0])
