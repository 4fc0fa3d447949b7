"""Numbers of hosts and NICs (`numbers`) by the addresses that they are found with.

Addresses of BMCs within a network are not known here: numbers beyond them are found too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Interface, ip_interface

from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed
from nospoon.plan.addresses.numbers import FIRST6, HostNumbers, network_of, nic_key
from nospoon.plan.addresses.occupants import nic_name


def found_hosts(things: Iterable[Observed], *, low: int = 0) -> HostNumbers:
    """Those of the hosts of an overlay; nothing is decided where there is none. `low`: so many
    numbers at least stand for the first addresses.
    """
    seen = list(things)
    overlays = sorted(_overlays(seen))
    if not overlays:
        return HostNumbers()
    at = {
        each.key.place: ip_interface(each.shape.address)
        for each in seen
        if isinstance(each.shape, Link) and each.key.name == overlays[0] and each.shape.address
    }
    return _numbered(
        {host: each for host, each in at.items() if isinstance(each, IPv4Interface)}, low=low
    )


def rebased(
    hosts: HostNumbers, nics: Mapping[str, int], things: Iterable[Observed], *, low: int
) -> tuple[HostNumbers, dict[str, int]]:
    """The same addresses, told by numbers of which the first `low` stand for hosts: no fewer than
    before. A machine that has the address of such a host has to take another.
    """
    more = low - hosts.low if hosts.low else 0
    overlays = _overlays(things) if more else ()
    shifted = {
        key: number - more if network_of(key) in overlays else number
        for key, number in nics.items()
    }
    ends = {name: n + more if n >= hosts.low else n for name, n in hosts.of.items()}
    return HostNumbers(low, ends), {key: n for key, n in shifted.items() if n >= 0}


def found_nics(things: Iterable[Observed], hosts: HostNumbers) -> dict[str, int]:
    """Those of NICs that DHCP of ours gives addresses, of nodes that are there."""
    seen = list(things)
    overlays = _overlays(seen)
    nics = {
        nic.mac: (each.key.name, nic_name(each, nic.mac))
        for each in seen
        for shape in (each.shape, each.live)
        if isinstance(shape, Machine)
        for nic in shape.nics
    }
    result: dict[str, int] = {}
    for each in seen:
        if isinstance(each.shape, NetbootService) and each.shape.addresses:  # its files are whole
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
            case NetbootService(address=address, range=("", ""), router="") if address:
                found.add(each.key.name)
            case _:
                pass
    return found


def _numbered(at: Mapping[str, IPv4Interface], *, low: int) -> HostNumbers:
    """The lower half of a network has the first addresses, the upper one the last."""
    places = {host: int(each.ip) - int(each.network[0]) for host, each in at.items()}
    sizes = {host: each.network.num_addresses for host, each in at.items()}
    first = {host: place for host, place in places.items() if place < sizes[host] // 2}
    low = max(low, 1, *first.values())
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
            number = int(ip_interface(address).ip) - begin
            yield from ((mac, number) for mac in each.macs)
