"""Numbers of NICs on networks with DHCP of ours, from which their addresses follow.

A NIC keeps its number while its node has it: nodes that come and go in the middle of the file
change nobody else's address. A new one gets the smallest that is free; at first, that is its place
in the file.

On an overlay each host has an address, too. The hosts that a cluster begins with have the first
ones, below those of machines; who comes later gets one of the last: neither moves the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from itertools import chain, count, islice, takewhile

from nospoon.model.cluster import Cluster, Netboot, Network

NumberOf = Mapping[str, int]
"""See `nic_key`."""


@dataclass(frozen=True, slots=True)
class HostNumbers:
    """Host -> its number on overlays, from 0. The first `low` numbers stand for the first
    addresses, the others for the last, downwards. `low` 0: nothing is decided yet.
    """

    low: int = 0
    of: Mapping[str, int] = field(default_factory=dict)


def in_order(hosts: Sequence[str]) -> HostNumbers:
    """As a cluster begins, and as earlier versions always had it."""
    return HostNumbers(len(hosts), {name: number for number, name in enumerate(hosts)})


def nic_key(network: str, node: str, index: int) -> str:
    """Names a NIC of a node on a network."""
    return f"{network}/{node}/{index}"


def network_of(key: str) -> str:
    """Of a NIC's key."""
    return key.partition("/")[0]


def node_of(key: str) -> str:
    """Of a NIC's key."""
    return key.split("/")[1]


def host_numbers(
    cluster: Cluster,
    cidrs: Mapping[str, str],
    earlier: HostNumbers,
    *,
    nics: NumberOf,
    standing: Collection[str],
) -> HostNumbers:
    """Those of the file's hosts; known ones stay. `nics`: numbers that NICs have; `standing`: hosts
    where there are machines, also those that have left the file.
    """
    names = [host.name for host in cluster.hosts]
    if not earlier.low:
        return in_order(names)
    known = {name: n for name, n in earlier.of.items() if name in names or name in standing}
    taken = {*known.values(), *_of_nics(cluster, cidrs, earlier, nics)}
    free = (number for number in count() if number not in taken)
    new = {name: next(free) for name in names if name not in known}
    return HostNumbers(earlier.low, {**known, **new})


def _of_nics(
    cluster: Cluster, cidrs: Mapping[str, str], hosts: HostNumbers, nics: NumberOf
) -> Iterator[int]:
    """Numbers of hosts whose addresses machines have."""
    for network in cluster.networks:
        given = [number for key, number in nics.items() if network_of(key) == network.name]
        if network.overlay is None or network.name not in cidrs or not given:
            continue
        cidr = IPv4Network(cidrs[network.name])
        first = list(islice(of_machines(cluster, network, cidr, hosts), max(given) + 1))
        taken = {first[number] for number in given if number < len(first)}
        most = len(taken) + len(hosts.of) + len(cluster.hosts)
        last = islice(_last(cluster, cidr, hosts.low), most)
        yield from (hosts.low + n for n, address in enumerate(last) if address in taken)


def numbers(
    cluster: Cluster,
    cidrs: Mapping[str, str],
    earlier: NumberOf,
    hosts: HostNumbers,
    *,
    standing: Collection[str],
) -> dict[str, int]:
    """NIC -> its number, from 0, for all networks with DHCP of ours. `cidrs` by network.

    `standing`: nodes that are there. Those that left the file keep their numbers until they go.
    """
    names = {node.name for node in cluster.nodes}
    there = names | {*standing}
    known = {key: n for key, n in earlier.items() if node_of(key) in there}
    result = {key: n for key, n in known.items() if node_of(key) not in names}
    for network in cluster.networks:
        if network.netboot is Netboot.BUILTIN and not network.existing:
            text = cidrs.get(network.name)
            cidr = IPv4Network(text) if text else None
            result |= numbers_on(cluster, network, cidr, known, hosts)
    return result


def numbers_on(
    cluster: Cluster,
    network: Network,
    cidr: IPv4Network | None,
    earlier: NumberOf,
    hosts: HostNumbers,
) -> dict[str, int]:
    """The same for one network; `cidr` is that of its IPv4, which may be too small for a number.
    Who finds no address has a number past its end.
    """
    keys = [
        nic_key(network.name, node.name, index)
        for node in cluster.nodes
        for index, nic in enumerate(node.nics)
        if nic.network == network.name
    ]
    known = {key: earlier[key] for key in keys if key in earlier}
    if cidr is not None and known:
        most = max(known.values())
        free_ones = _free_of_hosts(cluster, network, cidr, hosts)
        fits = set(takewhile(lambda number: number <= most, free_ones))
        known = {key: number for key, number in known.items() if number in fits}
    taken, spared = set(known.values()), _of_leavers(cluster, network, earlier)
    places = count() if cidr is None else _free_of_hosts(cluster, network, cidr, hosts)
    unused = (number for number in places if number not in spared)
    beyond = count(cidr.num_addresses if cidr is not None else 0)
    free = (n for n in chain(unused, sorted(spared), beyond) if n not in taken)
    return {key: known[key] if key in known else next(free) for key in keys}


def _of_leavers(cluster: Cluster, network: Network, earlier: NumberOf) -> set[int]:
    """Numbers of nodes that left the file: given to others when there are no more."""
    names = {node.name for node in cluster.nodes}
    return {
        number
        for key, number in earlier.items()
        if network_of(key) == network.name and node_of(key) not in names
    }


def _free_of_hosts(
    cluster: Cluster, network: Network, cidr: IPv4Network, hosts: HostNumbers
) -> Iterator[int]:
    """Numbers of machines that stand for an address which no host has."""
    names = hosts.of if network.overlay is not None else ()
    taken = {of_host(cluster, network, cidr, hosts, name) for name in names}
    for number, address in enumerate(of_machines(cluster, network, cidr, hosts)):
        if address not in taken:
            yield number


def of_machines(
    cluster: Cluster, network: Network, cidr: IPv4Network, hosts: HostNumbers
) -> Iterator[IPv4Address]:
    """Those that are neither the hosts' first (of an overlay each has one) nor of a BMC."""
    low = 1 if network.overlay is None else _low(cluster, hosts)
    yield from _beside_bmcs(cluster, cidr, range(1 + low, cidr.num_addresses - 1))


def number_of(cluster: Cluster, network: Network, hosts: HostNumbers, host: str) -> int:
    """A host's number on a network: 0 where it is the only one."""
    if network.overlay is None:
        return 0
    known = hosts.of if hosts.low else in_order([each.name for each in cluster.hosts]).of
    return known[host]


def of_host(
    cluster: Cluster, network: Network, cidr: IPv4Network, hosts: HostNumbers, host: str
) -> IPv4Address | None:
    """A host's address on a network; None: there is none left."""
    number, low = number_of(cluster, network, hosts, host), _low(cluster, hosts)
    if number < low:
        return cidr[1 + number] if number + 1 < cidr.num_addresses else None
    return next(islice(_last(cluster, cidr, low), number - low, None), None)


def _low(cluster: Cluster, hosts: HostNumbers) -> int:
    return hosts.low or len(cluster.hosts)


def _last(cluster: Cluster, cidr: IPv4Network, low: int) -> Iterator[IPv4Address]:
    """From the last address downwards, those that are neither the first hosts' nor of a BMC."""
    return _beside_bmcs(cluster, cidr, range(cidr.num_addresses - 2, low, -1))


def _beside_bmcs(
    cluster: Cluster, cidr: IPv4Network, places: Sequence[int]
) -> Iterator[IPv4Address]:
    pool = cluster.addressing.pool
    return (cidr[n] for n in places if pool is None or cidr[n] not in pool)
