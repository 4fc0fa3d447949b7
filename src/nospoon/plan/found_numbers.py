"""Numbers of hosts and NICs (`plan.numbers`) by the addresses that they are found with.

Addresses of BMCs within a network are not known here: numbers beyond them are found too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Interface, ip_interface

from nospoon.model.resources import Link, Machine, NetbootService, Observed
from nospoon.plan.addresses import FIRST6
from nospoon.plan.numbers import HostNumbers, nic_key


def found_hosts(things: Iterable[Observed]) -> HostNumbers:
    """Those of the hosts of an overlay; nothing is decided where there is none."""
    seen = list(things)
    overlays = sorted(_overlays(seen))
    if not overlays:
        return HostNumbers()
    at = {
        each.key.host: ip_interface(each.shape.address)
        for each in seen
        if isinstance(each.shape, Link) and each.key.name == overlays[0] and each.shape.address
    }
    return _numbered({host: each for host, each in at.items() if isinstance(each, IPv4Interface)})


def found_nics(things: Iterable[Observed], hosts: HostNumbers) -> dict[str, int]:
    """Those of NICs that DHCP of ours gives addresses, of nodes that are there."""
    seen = list(things)
    overlays = _overlays(seen)
    nics = {
        nic.mac: (each.key.name, index)
        for each in seen
        if isinstance(each.shape, Machine)
        for index, nic in enumerate(each.shape.nics)
    }
    result: dict[str, int] = {}
    for each in seen:
        if isinstance(each.shape, NetbootService):
            first = 1 + (hosts.low if each.key.name in overlays else 1)
            for mac, number in _given(each.shape, first):
                if mac in nics and number >= 0:
                    result[nic_key(each.key.name, *nics[mac])] = number
    return result


def _overlays(things: Iterable[Observed]) -> set[str]:
    """Networks on which hosts have addresses of their own: they lead to others, or have no range
    for strangers.
    """
    found = set()
    for each in things:
        match each.shape:
            case Link(tunnel=tunnel, address=address) if tunnel is not None and address:
                found.add(each.key.name)
            case NetbootService(address=address, range=("", "")) if address:
                found.add(each.key.name)
            case _:
                pass
    return found


def _numbered(at: Mapping[str, IPv4Interface]) -> HostNumbers:
    """The lower half of a network has the first addresses, the upper one the last."""
    places = {host: int(each.ip) - int(each.network[0]) for host, each in at.items()}
    sizes = {host: each.network.num_addresses for host, each in at.items()}
    first = {host: place for host, place in places.items() if place < sizes[host] // 2}
    low = max(first.values(), default=1)
    return HostNumbers(
        low,
        {
            host: place - 1 if host in first else low + sizes[host] - 2 - place
            for host, place in places.items()
        },
    )


def _given(service: NetbootService, first: int) -> Iterator[tuple[str, int]]:
    """MAC -> number; `first`: the place of machines' first address."""
    own = ip_interface(service.address or service.address6).network
    begin = int(own[0]) + (first if service.address else FIRST6)
    for each in service.reservations:
        address = each.address if service.address else each.address6
        if address:
            yield each.mac, int(ip_interface(address).ip) - begin
