"""Numbers of NICs on networks with DHCP of ours, from which their addresses follow.

A NIC keeps its number while its node has it: nodes that come and go in the middle of the file
change no one else's address, nor do NICs on other networks. A new one gets the smallest that is
free; at first, that is its place in the file.

DHCP knows a NIC by its MAC, so that is what it is named by (`nic_key`). One with a new MAC gets the
number of one that its node has no more on that network: who changes a MAC, or removes a NIC before
it, moves no address. What a machine has in spite of the file (`occupants`) keeps its number.

On an overlay each host has an address, too. The hosts that a cluster begins with have the first
ones, below those of machines; who comes later gets one of the last: neither moves the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, ip_address
from itertools import chain, count, islice, takewhile

from nospoon.model.cluster import Cluster, Netboot, Network, Node
from nospoon.plan import relays

NumberOf = Mapping[str, int]
"""See `nic_key`."""
FIRST6 = 0x1000
"""Where addresses of machines begin in an IPv6 network."""


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


def nic_key(network: str, node: str, name: int | str) -> str:
    """Names a NIC of a node on a network: by its MAC, or by its place among the node's NICs if its
    MAC is derived from that. Earlier versions named all by their places.
    """
    return f"{network}/{node}/{name}"


def nics_on(cluster: Cluster, network: Network) -> Iterator[tuple[Node, int, str]]:
    """Node, place among its NICs, and key of every NIC of the file on a network."""
    for node in cluster.nodes:
        for index, nic in enumerate(node.nics):
            if nic.network == network.name:
                yield node, index, nic_key(network.name, node.name, nic.mac.lower() or index)


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
        if network.overlay is None or network.name not in cidrs:
            continue
        given = [number for key, number in nics.items() if network_of(key) == network.name]
        if not given:
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
    held: Sequence[str] = (),
) -> dict[str, int]:
    """NIC -> its number, from 0, for all networks with DHCP of ours. `cidrs` by network.

    `standing`: nodes that are there. Those that left the file keep their numbers until they go.
    `held`: NICs that machines have and keep, those that they run with first.
    """
    names = {node.name for node in cluster.nodes}
    there = names | {*standing} | {node_of(key) for key in held}
    known = {key: n for key, n in earlier.items() if node_of(key) in there}
    result = {key: n for key, n in known.items() if node_of(key) not in names}
    mine: defaultdict[str, dict[str, int]] = defaultdict(dict)  # a network may be one of a thousand
    for key, number in known.items():
        mine[network_of(key)][key] = number
    keep: defaultdict[str, list[str]] = defaultdict(list)
    for key in held:
        keep[network_of(key)].append(key)
    for network in cluster.networks:
        if network.netboot is Netboot.BUILTIN and not network.existing:
            text = cidrs.get(network.name)
            cidr = IPv4Network(text) if text else None
            before, kept = mine[network.name], keep[network.name]
            fit = _fitting(cluster, network, cidr, before, hosts)
            result |= {key: fit[key] for key in kept if key in fit}
            result |= numbers_on(cluster, network, cidr, before, hosts, held=kept)
    return result


def numbers_on(
    cluster: Cluster,
    network: Network,
    cidr: IPv4Network | None,
    earlier: NumberOf,
    hosts: HostNumbers,
    *,
    held: Sequence[str] = (),
) -> dict[str, int]:
    """The same for one network; `cidr` is that of its IPv4, which may be too small for a number.
    Who finds no address has a number past its end.
    """
    places = {
        key: nic_key(network.name, node.name, index)
        for node, index, key in nics_on(cluster, network)
    }
    fit = _fitting(cluster, network, cidr, earlier, hosts)
    lasting = [key for key in held if key in fit]
    known = _known(places, fit, lasting)
    taken = {*known.values(), *(fit[key] for key in lasting)}
    spared = _of_leavers(cluster, network, earlier)
    free_ones = count() if cidr is None else _free_of_hosts(cluster, network, cidr, hosts)
    unused = (number for number in free_ones if number not in spared)
    beyond = count(cidr.num_addresses if cidr is not None else 0)
    free = (n for n in chain(unused, sorted(spared), beyond) if n not in taken)
    return {key: known[key] if key in known else next(free) for key in places}


def _fitting(
    cluster: Cluster,
    network: Network,
    cidr: IPv4Network | None,
    earlier: NumberOf,
    hosts: HostNumbers,
) -> dict[str, int]:
    """The numbers on a network that stand for addresses of machines."""
    here = {key: n for key, n in earlier.items() if network_of(key) == network.name}
    if cidr is None or not here:
        return here
    most = max(here.values())
    free_ones = _free_of_hosts(cluster, network, cidr, hosts)
    fits = set(takewhile(lambda number: number <= most, free_ones))
    return {key: number for key, number in here.items() if number in fits}


def _known(places: Mapping[str, str], earlier: NumberOf, held: Sequence[str]) -> dict[str, int]:
    """Numbers of those NICs of the file that have one: their own, that of who had their place, or
    one that their node needs no more. `places`: their keys -> keys of their places.
    """
    owners = {earlier[key]: node_of(key) for key in reversed(held)}
    first = [key for key in held if key in places]
    claims = chain(
        ((key, earlier[key]) for key in (*first, *places) if key in earlier),
        ((key, earlier[place]) for key, place in places.items() if place in earlier),
    )
    result = _claimed(claims, owners)
    return result | _claimed(_left_over(places, earlier, result), owners)


def _claimed(claims: Iterable[tuple[str, int]], owners: Mapping[int, str]) -> dict[str, int]:
    """First come, first served. `owners`: number -> the node that alone may have it."""
    result: dict[str, int] = {}
    given: set[int] = set()
    for key, number in claims:
        mine = owners.get(number, node_of(key)) == node_of(key)
        if mine and key not in result and number not in given:
            result[key] = number
            given.add(number)
    return result


def _left_over(
    places: Iterable[str], earlier: NumberOf, known: NumberOf
) -> Iterator[tuple[str, int]]:
    """For NICs without a number, those of their nodes that no NIC of the file has."""
    given = {*known.values()}
    rest: dict[str, list[int]] = {}
    for key, number in sorted(earlier.items(), key=lambda each: each[1]):
        if number not in given:
            rest.setdefault(node_of(key), []).append(number)
    for key in places:
        if key not in known:
            yield from ((key, number) for number in rest.get(node_of(key), ()))


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
    """Numbers of machines that stand for an address which no host has, and which is not virtual."""
    names = hosts.of if network.overlay is not None else ()
    taken = {of_host(cluster, network, cidr, hosts, name) for name in names}
    taken |= {*virtual4(network), *_of_relays(cluster, network, cidr, hosts)}
    for number, address in enumerate(of_machines(cluster, network, cidr, hosts)):
        if address not in taken:
            yield number


def _of_relays(
    cluster: Cluster, network: Network, cidr: IPv4Network, hosts: HostNumbers
) -> Iterator[IPv4Address]:
    """Addresses of relays that serve a network."""
    for host in cluster.hosts:
        if host.connection.relay is not None and relays.serves(network, host):
            router = str(of_host(cluster, network, cidr, hosts, host.name) or "")
            address = relays.address_of(host.connection.relay, cluster, str(cidr), router)
            if address:
                yield IPv4Address(address)


def virtual4(network: Network) -> Iterator[IPv4Address]:
    """Virtual addresses of IPv4."""
    yield from (each for each in map(ip_address, network.virtual_ips) if each.version == 4)


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
