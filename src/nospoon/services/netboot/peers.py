"""Who may ask what a machine boots: the machine itself, by an address that is reserved for it.

Kernels' command lines may have secrets, so no one else is told. A service's address is known only
on its own bridge; a reply to a forged source goes to whom it was forged of. Guests with user-mode
networking and whoever else runs on this machine are known by their user: the owner of the node and
the daemon's. The daemon itself is told nothing: it fetches what members and BMC clients name.
Nor is root as such: another daemon, which is root's, does so as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from ipaddress import IPv6Interface, ip_address
from uuid import UUID

from nospoon.model.resources.keys import Key
from nospoon.model.resources.netboot import NetbootService, Reservation
from nospoon.protocols.ipxe.dnsmasq import addresses6
from nospoon.runtime.local_peers import user_of
from nospoon.runtime.socket_diag import Place

Owner = Callable[[UUID], int | None]
"""Whose a machine is."""
UserOf = Callable[[Place, Place], int | None]
"""Whose socket is at the other end of a connection from another process of this machine."""


class Peers:
    """The reserved addresses of the services that run, kept by their drivers."""

    def __init__(self, owner: Owner, user: UserOf = user_of) -> None:
        self._owner, self._user = owner, user
        self._of: dict[tuple[UUID, Key], dict[str, dict[UUID, set[str]]]] = {}

    def serve(self, cluster: UUID, key: Key, shape: NetbootService) -> None:
        """From now on these reservations hold at this service's addresses."""
        known: dict[UUID, set[str]] = {}
        for each in shape.reservations:
            known.setdefault(each.uuid, set()).update(_addresses(each, shape))
        self._of[cluster, key] = {_plain(address): known for address in shape.addresses}

    def leave(self, cluster: UUID, key: Key) -> None:
        self._of.pop((cluster, key), None)

    def may_ask(self, machine: UUID, *, peer: Place, here: Place) -> bool:
        """Whether who connected from `peer` to `here` may be told what the machine boots."""
        there, at = _plain(peer[0]), _plain(here[0])
        for service in self._of.values():
            if there in service.get(at, {}).get(machine, ()):
                return True
        if there != at and not ip_address(there).is_loopback:
            return False
        user = self._user((there, peer[1]), (at, here[1]))
        return user is not None and user in {os.geteuid(), self._owner(machine)}


def _addresses(each: Reservation, shape: NetbootService) -> Iterator[str]:
    """Those that dnsmasq gives a NIC, and of IPv6 the one that it makes of its MAC (RFC 4862)."""
    if each.address:
        yield _plain(each.address)
    if each.address6:
        yield from (_plain(address) for address in addresses6(each.address6))
    if shape.address6:
        network = IPv6Interface(shape.address6).network
        for mac in each.macs:
            yield _plain(str(network[_interface_id(mac)]))


def _interface_id(mac: str) -> int:
    """Modified EUI-64 (RFC 4291, appendix A)."""
    octets = bytes.fromhex(mac.replace(":", ""))
    return int.from_bytes(bytes([octets[0] ^ 2, *octets[1:3], 0xFF, 0xFE, *octets[3:]]))


def _plain(address: str) -> str:
    return str(ip_address(address.partition("%")[0]))
