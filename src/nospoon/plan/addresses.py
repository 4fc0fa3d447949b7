"""Addresses of nodes on networks whose DHCP is ours: by their place in the file, so that they fit
also on several hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from itertools import count, repeat

from nospoon.model.cluster import Cluster, ConnectionKind, Host, Netboot, Network, Node
from nospoon.plan.allocate import Allocations

FIRST6 = 0x1000
"""Where addresses of machines begin in an IPv6 network."""


def reserved(
    cluster: Cluster, network: Network, cidr: IPv4Network | None
) -> Iterator[tuple[Node, int, str, str]]:
    """Node, number of its NIC, and that NIC's IPv4 and IPv6 address ("" for none), for all NICs on
    a network.
    """
    free = _of_machines(cluster, network, cidr) if cidr is not None else repeat("")
    six = network.cidr6
    free6 = map(six.__getitem__, count(FIRST6)) if six is not None else repeat("")
    for node in cluster.nodes:
        for index, nic in enumerate(node.nics):
            if nic.network == network.name:
                yield node, index, str(next(free)), str(next(free6))


def _of_machines(cluster: Cluster, network: Network, cidr: IPv4Network) -> Iterator[IPv4Address]:
    """Those that are neither the hosts' own (of an overlay each has one) nor of a BMC."""
    hosts = 1 if network.overlay is None else len(cluster.hosts)
    pool = cluster.addressing.pool
    for number in range(1 + hosts, cidr.num_addresses - 1):
        if pool is None or cidr[number] not in pool:
            yield cidr[number]


def known_addresses(cluster: Cluster, allocations: Allocations) -> dict[tuple[str, int], str]:
    """(node, number of its NIC) -> the address that it is given by DHCP of ours."""
    hosts = {host.name: host for host in cluster.hosts}
    return {
        (node.name, index): address or address6
        for network in cluster.networks
        if network.netboot is Netboot.BUILTIN and not network.existing
        for node, index, address, address6 in reserved(
            cluster, network, _cidr(allocations, network)
        )
        if (address or address6)
        if _serves(hosts.get(allocations.hosts.get(node.name, "")))
    }


def _cidr(allocations: Allocations, network: Network) -> IPv4Network | None:
    text = allocations.cidrs.get(network.name)
    return IPv4Network(text) if text else None


def _serves(host: Host | None) -> bool:
    """Whether there is DHCP of ours on a host."""
    return host is not None and host.kind is ConnectionKind.LIBVIRT and not host.unprivileged
