"""Numbers of NICs on networks with DHCP of ours, from which their addresses follow.

A NIC keeps its number while its node has it: nodes that come and go in the middle of the file
change nobody else's address. A new one gets the smallest that is free; at first, that is its place
in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from nospoon.model.cluster import Cluster, Netboot, Network

NumberOf = Mapping[str, int]
"""See `nic_key`."""


def nic_key(network: str, node: str, index: int) -> str:
    """Names a NIC of a node on a network."""
    return f"{network}/{node}/{index}"


def numbers(cluster: Cluster, cidrs: Mapping[str, str], earlier: NumberOf) -> dict[str, int]:
    """NIC -> its number, from 0, for all networks with DHCP of ours. `cidrs` by network."""
    result: dict[str, int] = {}
    for network in cluster.networks:
        if network.netboot is Netboot.BUILTIN and not network.existing:
            text = cidrs.get(network.name)
            cidr = IPv4Network(text) if text else None
            result |= numbers_on(cluster, network, cidr, earlier)
    return result


def numbers_on(
    cluster: Cluster, network: Network, cidr: IPv4Network | None, earlier: NumberOf
) -> dict[str, int]:
    """The same for one network; `cidr` is that of its IPv4, which may be too small for a number."""
    keys = [
        nic_key(network.name, node.name, index)
        for node in cluster.nodes
        for index, nic in enumerate(node.nics)
        if nic.network == network.name
    ]
    known = {key: earlier[key] for key in keys if key in earlier}
    if cidr is not None and known:
        room = sum(1 for _ in of_machines(cluster, network, cidr))
        known = {key: number for key, number in known.items() if number < room}
    taken = set(known.values())
    free = (number for number in count() if number not in taken)
    return {key: known[key] if key in known else next(free) for key in keys}


def of_machines(cluster: Cluster, network: Network, cidr: IPv4Network) -> Iterator[IPv4Address]:
    """Those that are neither the hosts' own (of an overlay each has one) nor of a BMC."""
    hosts = 1 if network.overlay is None else len(cluster.hosts)
    pool = cluster.addressing.pool
    for number in range(1 + hosts, cidr.num_addresses - 1):
        if pool is None or cidr[number] not in pool:
            yield cidr[number]
