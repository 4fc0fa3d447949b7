"""MAC addresses of those who are on a network of this machine, as its kernel knows them."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

TABLE = Path("/proc/net/arp")
_ADDRESS, _FLAGS, _MAC = 0, 2, 3
COMPLETE = 0x02
"""Linux's ATF_COM, as proc_net(5) shows it: the entry has a MAC address."""


def mac_of(address: str, table: Path = TABLE) -> str:
    """In lower case; "" for addresses behind a router, of IPv6, and where none is known."""
    if ip_address(address.partition("%")[0]).version != 4:
        return ""
    for line in table.read_text().splitlines()[1:]:
        words = line.split()
        if words[_ADDRESS] == address and int(words[_FLAGS], 16) & COMPLETE:
            return words[_MAC].lower()
    return ""
