"""What is decided once and then kept: placement, networks, BMC ports and addresses.

`allocate` keeps every earlier decision that still fits and decides the rest in the order of the
file, so that the same file gives the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from typing import TypeVar

from nospoon.model.cluster import BmcProtocol, Cluster, Host, Network, Node
from nospoon.model.host_facts import HostFacts
from nospoon.plan.addresses.networks import networks
from nospoon.plan.addresses.numbers import (
    HostNumbers,
    NumberOf,
    host_numbers,
    network_of,
    node_of,
    numbers,
    of_host,
)
from nospoon.plan.addresses.occupants import Occupant, numbers_held
from nospoon.plan.addresses.pdus import Socket, plug
from nospoon.plan.addresses.ports import TakenPorts
from nospoon.plan.placement.placement import Placed, place
from nospoon.plan.placement.room import Usage
from nospoon.plan.relays import relays_left_out

T = TypeVar("T")
IPMI_PORT = 623
REDFISH_TRIED = 1000
"""Ports that are looked at for a free one where the file names none: a member has 100 clusters,
each with a port.
"""
NOTHING_KNOWN: Mapping[str, HostFacts] = {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a BMC answers. `ipmi_port` 0: not by IPMI, `redfish_port` 0: not by Redfish."""

    address: str
    ipmi_port: int
    redfish_port: int


@dataclass(frozen=True, slots=True)
class Allocations:
    """Decisions of a cluster. `cidrs` by network name; `hosts`, `endpoints` and
    `outlets` by node name; `why`: node name -> why it is on its host; `numbers` of NICs and
    `ends`, the numbers of hosts, see `nospoon.plan.addresses.numbers`.
    """

    cidrs: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    outlets: Mapping[str, Socket] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)
    ends: HostNumbers = field(default_factory=HostNumbers)

    def keeping(self, before: Allocations, nodes: Collection[str]) -> Allocations:
        """These, but for some nodes as they were before."""

        def kept(now: Mapping[str, T], then: Mapping[str, T]) -> dict[str, T]:
            others = {name: each for name, each in now.items() if name not in nodes}
            return others | {name: each for name, each in then.items() if name in nodes}

        return Allocations(
            cidrs=self.cidrs,
            hosts=kept(self.hosts, before.hosts),
            endpoints=kept(self.endpoints, before.endpoints),
            why=kept(self.why, before.why),
            outlets=kept(self.outlets, before.outlets),
            numbers=self.numbers,
            ends=self.ends,
        )

    def with_leavers(self, before: Allocations, names: Collection[str]) -> Allocations:
        """These, and where the BMCs of nodes answer that are not in the file any more: until they
        are removed they keep that, also when they are put back.
        """
        return replace(
            self,
            endpoints={**_those(before.endpoints, names), **self.endpoints},
            outlets={**_those(before.outlets, names), **self.outlets},
        )

    def without(self, names: Collection[str]) -> Allocations:
        """These without those of nodes that are gone."""
        return replace(
            self,
            endpoints={name: e for name, e in self.endpoints.items() if name not in names},
            outlets={name: e for name, e in self.outlets.items() if name not in names},
        )


def redfish_of(given: Allocations) -> set[tuple[str, int]]:
    """Where Redfish answers."""
    return {(e.address, e.redfish_port) for e in given.endpoints.values() if e.redfish_port}


def _those(given: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: each for name, each in given.items() if name in names}


@dataclass(frozen=True, slots=True)
class Occupied:
    """What others have, where this cluster looks for something free (`scopes`): networks of all
    hosts' routes; (address, port) pairs; `usage` of hosts by other clusters, by their identity.

    `others`: networks of other clusters on these hosts, which no new one gets; one that this
    cluster has stays, but for those in `disputed`, by name: another cluster has the same on a host
    to which this one's nodes come. `elsewhere`: those on any host, and `avoided`: addresses, as
    `networks` has them. `claimed`: of `endpoints`, those that other clusters have.

    `holder`: which program has a UDP port, "" where that is not known. `redfish`: TCP ports of
    other processes and users, and of this user at other addresses; clusters of one user share those
    at the same one. `foreign`: those of other users.
    `identifiers`: of VXLAN, that other clusters have.

    `standing`: what this cluster's own nodes take that are there, by name; `nics`: what their
    machines have; `unseen`: nodes on hosts that are away, of which no one knows what they have.
    """

    networks: tuple[IPv4Network, ...] = ()
    others: tuple[IPv4Network, ...] = ()
    elsewhere: tuple[IPv4Network, ...] = ()
    avoided: Collection[IPv4Address] = ()
    disputed: Collection[str] = frozenset()
    endpoints: Collection[tuple[str, int]] = frozenset()
    claimed: Collection[tuple[str, int]] = frozenset()
    holder: Callable[[int], str] = lambda _: ""
    redfish: Collection[tuple[str, int]] = frozenset()
    foreign: Collection[tuple[str, int]] = frozenset()
    identifiers: Collection[str] = frozenset()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    standing: Mapping[str, Usage] = field(default_factory=dict)
    nics: Sequence[Occupant] = ()
    unseen: Collection[str] = ()


def allocate(
    cluster: Cluster,
    earlier: Allocations,
    occupied: Occupied,
    *,
    facts: Mapping[str, HostFacts] = NOTHING_KNOWN,
    unmade: Collection[str] = (),
    first_choice: int = 0,
    rebalance: bool = False,
) -> tuple[Allocations, list[str]]:
    """The decisions for this file, and the reasons why some cannot be made.

    `facts`: what is known of hosts, by name. `unmade`: nodes of which nothing has come to the host
    that was decided. `rebalance`: place all nodes as if none was there.

    `first_choice`: number of the /24 where the search for a free network begins. Taken from the
    cluster's id, it keeps daemons that plan at the same moment from choosing the same one.
    """
    reasons: list[str] = []
    before = {} if rebalance else earlier.hosts
    there = {name: host for name, host in before.items() if name not in unmade}
    placed, homeless = place(
        cluster, there, facts, occupied.usage, planned=before, standing=occupied.standing
    )
    reasons += homeless
    stays = {name: earlier.why.get(name, each.why) for name, each in placed.items()}
    cidrs = _cidrs(cluster, earlier, occupied, reasons, first_choice)
    known = {*earlier.hosts.values()}
    had, held = _had(cluster, cidrs, earlier, occupied)
    ends = host_numbers(cluster, cidrs, earlier.ends, nics=had, standing=known)
    given = numbers(cluster, cidrs, had, ends, standing=earlier.hosts, held=held)
    reasons += (
        *_hosts_left_out(cluster, cidrs, ends),
        *_virtual_of_hosts(cluster, cidrs, ends),
        *relays_left_out(cluster, cidrs, partial(_router, cluster, cidrs, ends)),
        *_nics_left_out(cluster, cidrs, given, placed),
    )
    return (
        Allocations(
            cidrs=cidrs,
            hosts={name: each.host for name, each in placed.items()},
            why={
                name: stays[name] if before.get(name) == each.host else each.why
                for name, each in placed.items()
            },
            endpoints=dict(_endpoints(cluster, earlier, occupied, reasons)),
            outlets=dict(
                plug(
                    cluster, earlier.outlets, occupied.endpoints, reasons, claimed=occupied.claimed
                )
            ),
            numbers=given,
            ends=ends,
        ),
        reasons,
    )


def _cidrs(
    cluster: Cluster,
    earlier: Allocations,
    occupied: Occupied,
    reasons: list[str],
    first_choice: int,
) -> dict[str, str]:
    return dict(
        networks(
            cluster,
            earlier.cidrs,
            routed=occupied.networks,
            others=occupied.others,
            elsewhere=occupied.elsewhere,
            avoided=occupied.avoided,
            disputed=occupied.disputed,
            reasons=reasons,
            first_choice=first_choice,
        )
    )


def _had(
    cluster: Cluster, cidrs: Mapping[str, str], earlier: Allocations, occupied: Occupied
) -> tuple[dict[str, int], list[str]]:
    """Numbers that NICs have, and those NICs that keep theirs. What DHCP gives one that stays goes
    before what was decided, which an `up` may not have come to.
    """
    stay = [each for each in occupied.nics if each.stays]
    found = numbers_held(cluster, cidrs, earlier.ends, occupied.nics)
    lasting = numbers_held(cluster, cidrs, earlier.ends, stay)
    unseen = (key for key in earlier.numbers if node_of(key) in occupied.unseen)
    held = dict.fromkeys((*(each.key for each in stay), *unseen))
    return {**found, **earlier.numbers, **lasting}, list(held)


def _nics_left_out(
    cluster: Cluster,
    cidrs: Mapping[str, str],
    given: NumberOf,
    placed: Mapping[str, Placed],
) -> Iterator[str]:
    """Only where DHCP of ours serves: ten thousand simulated machines ask for no address."""
    serving = {
        host.name
        for host in cluster.hosts
        if host.declares.has_bridges or host.connection.relay is not None
    }
    served = {host.name for host in cluster.hosts if host.network_place in serving}
    names = {name for name, each in placed.items() if each.host in served}
    for key, number in given.items():
        cidr = cidrs.get(network_of(key)) if node_of(key) in names else None
        if cidr is not None and number >= IPv4Network(cidr).num_addresses:
            yield (
                f"network {network_of(key)}: {cidr} has no address left for node {node_of(key)}. "
                "Take a larger `cidr`."
            )


def _hosts_left_out(cluster: Cluster, cidrs: Mapping[str, str], ends: HostNumbers) -> Iterator[str]:
    for network in cluster.networks:
        if network.overlay is not None and network.name in cidrs:
            cidr = IPv4Network(cidrs[network.name])
            for host in cluster.hosts:
                if of_host(cluster, network, cidr, ends, host.name) is None:
                    yield (
                        f"network {network.name}: {cidr} has no address left for host "
                        f"{host.name}. Take a larger `cidr`."
                    )


def _router(
    cluster: Cluster, cidrs: Mapping[str, str], ends: HostNumbers, network: Network, host: Host
) -> str:
    cidr = IPv4Network(cidrs[network.name])
    return str(of_host(cluster, network, cidr, ends, host.name)) if network.nat else ""


def _virtual_of_hosts(
    cluster: Cluster, cidrs: Mapping[str, str], ends: HostNumbers
) -> Iterator[str]:
    """Virtual IPs of the file that are a host's own address."""
    for network in cluster.networks:
        if not network.virtual_ips or not network.addressed or network.name not in cidrs:
            continue
        cidr = IPv4Network(cidrs[network.name])
        for host in cluster.hosts:
            address = str(of_host(cluster, network, cidr, ends, host.name))
            if address in network.virtual_ips:
                yield (
                    f"network {network.name}: {address} is the address of host {host.name} there. "
                    "Take another of its `virtual_ips`."
                )
                break


def _endpoints(
    cluster: Cluster, earlier: Allocations, occupied: Occupied, reasons: list[str]
) -> Iterator[tuple[str, Endpoint]]:
    nodes = [node for node in cluster.nodes if node.bmc]
    redfish = _redfish_port(cluster, earlier, occupied)
    given = {node.name: _given(cluster, node, redfish) for node in nodes if node.ipmi_port}
    places = {(each.address, each.ipmi_port): name for name, each in given.items()}
    kept = {
        node.name: _with_redfish(earlier.endpoints[node.name], _of_node(node, redfish))
        for node in nodes
        if node.name in earlier.endpoints
        and _still_fits(cluster, node, earlier)
        and _place(earlier.endpoints[node.name]) not in occupied.claimed
        and places.get(_place(earlier.endpoints[node.name]), node.name) == node.name
    }
    used = {*map(_place, kept.values()), *places}
    free = _free_endpoints(cluster, used, occupied, redfish)
    taken = TakenPorts(occupied.endpoints)
    for node in nodes:
        if node.name in kept:
            yield node.name, kept[node.name]
            continue
        if node.name in given:
            if taken.hinder(_place(given[node.name])):
                reasons.append(_taken(node, given[node.name], earlier, occupied))
            yield node.name, given[node.name]
            continue
        if cluster.addressing.pool is None and BmcProtocol.IPMI not in node.bmc:
            yield node.name, Endpoint(_address(cluster, node), 0, _of_node(node, redfish))
            continue
        endpoint = next(free, None)
        if endpoint is None:
            reasons.append(
                f"node {node.name}: no free BMC endpoint left. {_widen(cluster, occupied)}"
            )
            return
        ipmi = endpoint.ipmi_port if BmcProtocol.IPMI in node.bmc else 0
        yield node.name, Endpoint(endpoint.address, ipmi, _of_node(node, redfish))


def _with_redfish(endpoint: Endpoint, port: int) -> Endpoint:
    return endpoint if endpoint.redfish_port == port else replace(endpoint, redfish_port=port)


def _place(endpoint: Endpoint) -> tuple[str, int]:
    return endpoint.address, endpoint.ipmi_port


def _redfish_port(cluster: Cluster, earlier: Allocations, occupied: Occupied) -> int:
    """The file's. Where it names none, that of before, else the first that is free from the usual
    one on: another user may have that, of this machine or of this daemon.
    """
    addressing, address = cluster.addressing, str(cluster.addressing.address)
    usual = addressing.redfish_port
    if addressing.redfish_given or addressing.pool is not None:
        return usual
    known = redfish_before(cluster, earlier)
    if known and not TakenPorts(occupied.foreign).hinder((address, known)):
        return known
    taken = TakenPorts((*occupied.redfish, *occupied.foreign))
    ports = range(usual, usual + REDFISH_TRIED)
    return next((port for port in ports if not taken.hinder((address, port))), usual)


def redfish_before(cluster: Cluster, earlier: Allocations) -> int:
    """The port at which Redfish answered at the cluster's own address, 0 for none."""
    address = str(cluster.addressing.address)
    before = (each for each in earlier.endpoints.values() if each.address == address)
    return next((each.redfish_port for each in before if each.redfish_port), 0)


def _given(cluster: Cluster, node: Node, redfish: int) -> Endpoint:
    """Where the BMC answers of a node whose file says at which port."""
    return Endpoint(_address(cluster, node), node.ipmi_port, _of_node(node, redfish))


def _address(cluster: Cluster, node: Node) -> str:
    return node.bmc_address or str(cluster.addressing.address)


def _of_node(node: Node, redfish: int) -> int:
    """0 for a node whose BMC does not speak Redfish."""
    return redfish if BmcProtocol.REDFISH in node.bmc else 0


def _taken(node: Node, endpoint: Endpoint, earlier: Allocations, occupied: Occupied) -> str:
    where = f"node {node.name}: port {endpoint.ipmi_port} at {endpoint.address}"
    if _place(endpoint) not in occupied.claimed:
        ends = earlier.endpoints.items()
        own = next((name for name, end in ends if _place(end) == _place(endpoint)), node.name)
        if own != node.name:
            return (
                f"{where} is node {own}'s until an `up` removes that, or gives it another one. Do "
                "that first, or choose another `bmc.port`."
            )
    has = occupied.holder(endpoint.ipmi_port)
    by = f" by {has}" if has else ""
    return f"{where} is in use{by}. Free it, or choose another `bmc.port`."


def _widen(cluster: Cluster, occupied: Occupied) -> str:
    if cluster.addressing.pool is not None:
        return f"Take a larger `bmc.pool` than {cluster.addressing.pool}."
    first, last = cluster.addressing.ports
    has = occupied.holder(first)
    by = f", {first} by {has}" if has else ", maybe by nodes that leave"
    return f"All of {first}-{last} are in use{by}: widen `bmc.ports`."


def _still_fits(cluster: Cluster, node: Node, earlier: Allocations) -> bool:
    endpoint, addressing = earlier.endpoints[node.name], cluster.addressing
    if (endpoint.ipmi_port != 0) is not (BmcProtocol.IPMI in node.bmc):
        return False
    if addressing.pool is not None:
        return _is_in(endpoint.address, addressing.pool)
    first, last = (node.ipmi_port, node.ipmi_port) if node.ipmi_port else addressing.ports
    in_range = endpoint.ipmi_port == 0 or first <= endpoint.ipmi_port <= last
    return endpoint.address == _address(cluster, node) and in_range


def _is_in(address: str, pool: IPv4Network) -> bool:
    """The address is one that nospoon wrote: it is read in a tenth of the time of a parser."""
    if ":" in address:
        return False
    number = 0
    for octet in address.split("."):
        number = number << 8 | int(octet)
    return number & int(pool.netmask) == int(pool.network_address)


def _free_endpoints(
    cluster: Cluster, used: set[tuple[str, int]], occupied: Occupied, redfish: int
) -> Iterator[Endpoint]:
    addressing = cluster.addressing
    taken: Callable[[tuple[str, int]], bool]
    if addressing.pool is not None:
        pairs = ((str(address), IPMI_PORT) for address in addressing.pool.hosts())
        taken = occupied.endpoints.__contains__  # the socket of all addresses is shared
    else:
        first, last = addressing.ports
        pairs = ((str(addressing.address), port) for port in range(first, last + 1))
        taken = TakenPorts(occupied.endpoints).hinder
    for pair in pairs:
        if pair not in used and not taken(pair):
            yield Endpoint(*pair, redfish)
