"""Where a plan looks for what is free: of what others have, it needs to know no more than this."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from nospoon.model.addresses import ANY_IPV4
from nospoon.model.cluster import BmcProtocol, Cluster
from nospoon.plan.addresses.allocate import (
    IPMI_PORT,
    REDFISH_TRIED,
    Allocations,
    redfish_before,
)
from nospoon.plan.addresses.networks import PRIVATE, SECOND_PRIVATE
from nospoon.plan.addresses.pdus import SNMP_PORT

LAST = (1 << 32) - 1
"""The last IPv4 address, as a number."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports from `first` to `last`, at IPv4 addresses from `low` to `high`, which are numbers.
    Sockets of all addresses are at each of these, and those of IPv6 may be, too.
    """

    first: int
    last: int
    low: int = 0
    high: int = LAST


@dataclass(frozen=True, slots=True)
class Scopes:
    """What a plan asks for. `networks`: of these ranges."""

    udp: tuple[Ports, ...]
    redfish: tuple[Ports, ...]
    networks: tuple[IPv4Network, ...]


def scopes_of(cluster: Cluster, earlier: Allocations) -> Scopes:
    """Those in which a file has something chosen, or names what must be free."""
    addressing = cluster.addressing
    here = (str(addressing.address),)
    usual, before = addressing.redfish_port, redfish_before(cluster, earlier)
    tried = [Ports(usual, usual + REDFISH_TRIED - 1, *_numbers(here))]
    if before:
        tried.append(Ports(before, before, *_numbers(here)))
    return Scopes(
        tuple(_udp(cluster)),
        () if addressing.redfish_given or addressing.pool is not None else tuple(tried),
        tuple(_networks(cluster)),
    )


def _udp(cluster: Cluster) -> Iterator[Ports]:
    addressing, pool = cluster.addressing, cluster.addressing.pool
    here = _numbers((str(addressing.address),))
    with_ipmi = any(BmcProtocol.IPMI in node.bmc and not node.ipmi_port for node in cluster.nodes)
    with_pdu = any(BmcProtocol.PDU in node.bmc for node in cluster.nodes)
    if pool is not None:
        ends = int(pool.network_address), int(pool.broadcast_address)
        yield Ports(IPMI_PORT, IPMI_PORT, *ends)
        if with_pdu:
            yield Ports(SNMP_PORT, SNMP_PORT, *ends)
    else:
        if with_ipmi:
            yield Ports(*addressing.ports, *here)
        if with_pdu:
            yield Ports(*addressing.pdu.ports, *here)
    given = [node for node in cluster.nodes if node.ipmi_port]
    if given:
        ports = [node.ipmi_port for node in given]
        places = {node.bmc_address or str(addressing.address) for node in given}
        yield Ports(min(ports), max(ports), *_numbers(places))


def _numbers(addresses: Collection[str]) -> tuple[int, int]:
    """The first and last of addresses; all of them where one takes the port of all."""
    if any(each == ANY_IPV4 or ":" in each for each in addresses):
        return 0, LAST
    numbers = [int(IPv4Address(each)) for each in addresses]
    return min(numbers), max(numbers)


def _networks(cluster: Cluster) -> Iterator[IPv4Network]:
    if any(network.chosen and not network.existing for network in cluster.networks):
        yield from (PRIVATE, SECOND_PRIVATE)
