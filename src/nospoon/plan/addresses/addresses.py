"""Addresses of nodes on networks whose DHCP is ours: by numbers that they keep (`numbers`), so
that they fit also on several hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, IPv6Address, ip_address, ip_interface, ip_network
from itertools import islice
from uuid import UUID

from nospoon.model.cluster import DHCP, Cluster, Host, Netboot, Network, Node
from nospoon.plan import relays
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.numbers import FIRST6, nics_on, numbers_on, of_machines
from nospoon.plan.identity import bridge_name

_METADATA = frozenset(map(ip_address, ("168.63.129.16", "100.100.100.200", "fd00:ec2::254")))
"""Of clouds (Azure, Alibaba, AWS) whose metadata is not at a link-local address."""
_THIS_HOST = ip_network("0.0.0.0/8")  # Linux takes it for loopback (RFC 1122 §3.2.1.3)


def reserved(
    cluster: Cluster, network: Network, allocations: Allocations
) -> Iterator[tuple[Node, int, str, str]]:
    """Node, number of its NIC, and that NIC's IPv4 and IPv6 address ("" for none), for all NICs on
    a network.
    """
    cidr, six = _cidr(allocations, network), network.cidr6
    given = numbers_on(cluster, network, cidr, allocations.numbers, allocations.ends)
    most = max(given.values(), default=-1) + 1
    all_ = of_machines(cluster, network, cidr, allocations.ends) if cidr is not None else ()
    four = list(islice(all_, most))
    for node, index, key in nics_on(cluster, network):
        number = given[key]
        address6 = str(six[FIRST6 + number]) if six is not None else ""
        yield node, index, str(four[number]) if number < len(four) else "", address6


def known_addresses(cluster: Cluster, allocations: Allocations) -> dict[tuple[str, int], str]:
    """(node, number of its NIC) -> the address that the file or our DHCP gives it."""
    static = {
        (node.name, index): str(ip_interface(nic.address).ip)
        for node in cluster.nodes
        for index, nic in enumerate(node.nics)
        if nic.address not in ("", DHCP)
    }
    hosts = {host.name: host for host in cluster.hosts}
    return {
        (node.name, index): address or address6
        for network in cluster.networks
        if network.netboot is Netboot.BUILTIN and not network.existing
        for node, index, address, address6 in reserved(cluster, network, allocations)
        if (address or address6)
        if _serves(network, hosts, allocations.hosts.get(node.name, ""))
    } | static


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """Where a node's host finds it. `link`: the bridge of the network there, or an interface that
    is plugged into it. `is_certain`: nospoon made the network, and the host has an address on it;
    it may have none on an existing one, such as a VLAN, and then finds the node at one of `others`.
    `is_outside`: a cloud leads to the node from there, for this machine.
    """

    address: str
    link: str
    is_certain: bool = False
    others: tuple[GuestAddress, ...] = ()
    is_outside: bool = False

    @property
    def best(self) -> str:
        """The address at which the host is known to find it, if there is one."""
        return next((o.address for o in (self, *self.others) if o.is_certain), self.address)


def looked_at(
    cluster: Cluster, cluster_id: UUID, allocations: Allocations
) -> dict[str, GuestAddress]:
    """Node -> the first of its addresses at which its host may look for a service: on a network on
    which the host has an address, too, or that nospoon did not make. Others would lead elsewhere,
    as loopback and link-local ones do.
    """
    networks = {network.name: network for network in cluster.networks}
    nics = {node.name: node.nics for node in cluster.nodes}
    hosts = {host.name: host for host in cluster.hosts}
    found: dict[str, list[GuestAddress]] = {}
    for (node, index), address in sorted(known_addresses(cluster, allocations).items()):
        network = networks[nics[node][index].network]
        inside = network.existing or (network.addressed and _holds(allocations, network, address))
        host = hosts.get(allocations.hosts.get(node, ""))
        is_near = host is None or not host.declares.has_ports  # nothing of a cloud looks there
        if inside and is_near and _of_a_guest(address):
            link = _link(network, host) if network.existing else ""
            link = link or bridge_name(cluster_id, network.name)
            mine = found.setdefault(node, [])
            if not mine or not mine[-1].is_certain:  # there is no need to look elsewhere then
                mine.append(GuestAddress(address, link, is_certain=not network.existing))
    return {node: replace(first, others=tuple(others)) for node, (first, *others) in found.items()}


def login_addresses(cluster: Cluster, cluster_id: UUID, allocations: Allocations) -> dict[str, str]:
    """Node -> the address by which users reach it from its host: rather one at which the host is
    known to find it than the first that is known.
    """
    known = sorted(known_addresses(cluster, allocations).items(), reverse=True)
    found = {node: address for (node, _), address in known}
    looked = looked_at(cluster, cluster_id, allocations)
    return found | {node: each.best for node, each in looked.items()}


def _link(network: Network, host: Host | None) -> str:
    """Of a network that nospoon did not make."""
    if network.physnet:
        return dict(host.physnets).get(network.physnet, "") if host is not None else ""
    return network.bridge


def _of_a_guest(address: str) -> bool:
    """Not one at which the host finds itself, or the metadata of the cloud that it is in."""
    there = ip_address(address)
    meant = (isinstance(there, IPv6Address) and there.ipv4_mapped) or there
    return not (
        meant.is_loopback
        or meant.is_link_local
        or meant.is_multicast
        or meant.is_unspecified
        or meant.is_reserved
        or meant in _THIS_HOST
        or meant in _METADATA
    )


def _holds(allocations: Allocations, network: Network, address: str) -> bool:
    there = ip_address(address)
    return any(there in each for each in (_cidr(allocations, network), network.cidr6) if each)


def _cidr(allocations: Allocations, network: Network) -> IPv4Network | None:
    text = allocations.cidrs.get(network.name)
    return IPv4Network(text) if text else None


def _serves(network: Network, hosts: Mapping[str, Host], name: str) -> bool:
    """Whether nospoon serves DHCP for nodes of a place, on a network with `netboot: builtin`."""
    place = hosts.get(hosts[name].network_place) if name in hosts else None
    return place is not None and (place.declares.has_bridges or relays.serves(network, place))
