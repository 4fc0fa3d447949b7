"""Virtual IPs of networks: addresses that a node may take over and that no node is given."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_interface

from nospoon.clusterfile.expand import Complaint, Expansion
from nospoon.clusterfile.models import NetworkSection
from nospoon.clusterfile.sections import Sections
from nospoon.model.cluster import DHCP, Netboot
from nospoon.plan.addresses.numbers import FIRST6

FREE6 = range(FIRST6 // 2, FIRST6)
"""Numbers in an IPv6 network with `netboot: builtin`: above hosts' addresses, below machines'."""
Address = IPv4Address | IPv6Address


def virtual_ips(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Every complaint about them."""
    static = _static(expansion)
    for name, network in sections.networks.items():
        if not network.virtual_ips:
            continue
        path = ("networks", name, "virtual_ips")
        if network.cidr == () and not (network.physnet or network.bridge) and _addressed(network):
            message = "expected a `cidr` beside them: nospoon would choose one"
            yield Complaint(path, message, "Write the network that they lie in")
        seen = set[Address]()
        for index, address in enumerate(network.virtual_ips):
            for message, hint in (
                *(((f"{address} is there twice", "Write it once"),) if address in seen else ()),
                *_unfit(address, network, sections),
                *_given(address, static.get((name, address), "")),
            ):
                yield Complaint((*path, index), message, hint)
            seen.add(address)


def _addressed(network: NetworkSection) -> bool:
    return network.nat or network.netboot is Netboot.BUILTIN


def _static(expansion: Expansion) -> dict[tuple[str, Address], str]:
    """(Network, address) -> the node whose file gives it to a NIC."""
    return {
        (nic.network, ip_interface(nic.address).ip): node.name
        for node in expansion.nodes
        for nic in node.nics
        if nic.address not in ("", DHCP)
    }


def _given(address: Address, node: str) -> Iterator[tuple[str, str]]:
    if node:
        yield f"{address} is the address of node {node}", "Take one that no node has"


def _unfit(
    address: Address, network: NetworkSection, sections: Sections
) -> Iterator[tuple[str, str]]:
    """(What is wrong with it, how to correct it)."""
    if (
        address.is_multicast or address.is_loopback or address.is_link_local
        or address.is_unspecified or address.is_reserved or getattr(address, "scope_id", None)
    ):  # fmt: skip
        yield f"{address} is not an address that hosts have on a network", "Take a unicast one"
        return
    if network.anti_spoofing and address.version == 6:
        hint = "Take IPv4 addresses, or drop `anti_spoofing`"
        yield f"{address} is IPv6, which `anti_spoofing` drops", hint
    cidr = network.ipv4 if address.version == 4 else network.ipv6
    if cidr is None:
        if network.cidr:
            example = ", ".join(map(str, network.cidr))
            yield f"{address} is not in {example}", "Take one of the network's `cidr`"
        return
    if address not in cidr:
        yield f"{address} is not in {cidr}", "Take one of the network's `cidr`"
    elif address == cidr.network_address or (
        address.version == 4 and cidr.prefixlen < 31 and address == cidr.broadcast_address
    ):
        yield f"{address} is an end of {cidr}, which no host has", "Take one between"
    elif address.version == 6 and network.netboot is Netboot.BUILTIN:
        number = int(address) - int(cidr.network_address)
        if number not in FREE6:
            message = f"{address} may be given to a host or by DHCP"
            first, last = cidr[FREE6[0]], cidr[FREE6[-1]]
            yield message, f"Take one from {first} to {last}"
    pool = sections.bmc.pool
    if pool is not None and address.version == 4 and address in pool:
        yield f"{address} is in bmc.pool {pool}", "Take one beside it"
