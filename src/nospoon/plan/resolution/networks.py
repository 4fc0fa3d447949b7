"""Networks of hosts and clouds, the routers that lead out of them, and their network boot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network

from nospoon.model.cluster import Host, Netboot, Network
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Led, Link, Router, Tunnel
from nospoon.model.resources.resource import Resource
from nospoon.model.segments import SegmentType
from nospoon.plan import identity, relays
from nospoon.plan.addresses.numbers import virtual4
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.segments import Segments, router_key

NO_RANGE = ("", "")
"""The range for strangers on an overlay: each of its hosts would answer them all."""
STRANGERS = 1024
"""Addresses of a network, of each family, for clients without a reservation, at most: a guest may
lease them all, and dnsmasq writes all leases to the disk with each change of one, and waits for it.
"""
STRANGERS6 = 0x100000
"""Where addresses of strangers begin in an IPv6 network."""


class Networks:
    def __init__(self, context: Context, segments: Segments) -> None:
        self._context, self._segments = context, segments

    def on(self, host: Host) -> Iterator[Resource]:
        """What is made there for the networks of the cluster."""
        if not host.declares.makes_networks:
            return
        if host.declares.has_ports:
            yield from self._in_cloud(host)
            return
        for network in self._context.cluster.networks:
            if network.existing:
                continue
            yield Resource(
                Key(Kind.NETWORK, host.name, network.name),
                Link(
                    name=identity.bridge_name(self._context.id, network.name),
                    address=self._segments.host_address(host, network),
                    mtu=network.mtu,
                    nat=network.nat,
                    tunnel=self._tunnel(host, network),
                    address6=self._segments.host_address6(host, network),
                    host_ports=self._host_ports(network),
                ),
            )
            if network.netboot is Netboot.BUILTIN and host.declares.has_bridges:
                yield self._netboot(host, network)

    def _tunnel(self, host: Host, network: Network) -> Tunnel | None:
        context = self._context
        others = (name for name in context.network_places if name != host.name)
        peers = tuple(context.hosts[name].address for name in others)
        if network.overlay is None or not peers or not host.declares.is_real:
            return None
        vni = identity.network_identifier(context.id, network.name)
        return Tunnel(vni, host.address, peers)

    def _host_ports(self, network: Network) -> tuple[int, ...] | None:
        if network.host_ports is None:
            return None
        builtin = network.netboot is Netboot.BUILTIN
        served = {self._context.around.boot_port} if builtin else set()
        return tuple(sorted({*network.host_ports, *served}))

    def _in_cloud(self, host: Host) -> Iterator[Resource]:
        """With the routers that lead out of them."""
        context, there = self._context, self._context.allocations.hosts
        here = list(context.nodes_on(host.name))
        elsewhere = (node for node in context.cluster.nodes if there[node.name] != host.name)
        made = context.trunks.made(host, here, elsewhere)
        yield from (self._cloud_network(host, network) for network in made)
        yield from self._routers(host, made)

    def _cloud_network(self, host: Host, network: Network) -> Resource:
        bridge = identity.bridge_name(self._context.id, network.name)
        key = Key(Kind.NETWORK, host.name, network.name)
        address = self._segments.host_address(host, network) if network.nat else ""
        vlan = network.vlan if network.provider else None
        relay = host.connection.relay
        spared = relay is not None and relay.bmcs and relay.network == network.name
        served, silent = relays.serves(network, host), network.nat and not network.dhcp
        link = Link(
            bridge,
            address,
            network.mtu,
            network.nat,
            provider=network.provider,
            vlan=vlan,
            segment="" if network.segment in {None, SegmentType.VLAN} else str(network.segment),
            segment_id=network.segment_id,
            spared=str(self._context.cluster.addressing.pool or "") if spared else "",
            relayed=served,
            silent=silent,
            nameservers=relay.nameservers if relay is not None and (served or silent) else (),
        )
        return Resource(key, link)

    def _routers(self, host: Host, made: Iterable[Network]) -> Iterator[Resource]:
        """Those that lead out of networks of a cloud, each with its network, or with those that
        share it.
        """
        led: defaultdict[Key, list[Network]] = defaultdict(list)
        for network in made:
            if network.nat:
                led[router_key(host, network)].append(network)
        for key, networks in led.items():
            ways = sorted(
                Led(
                    identity.bridge_name(self._context.id, each.name),
                    str(self._segments.cidr(each) or ""),
                )
                for each in networks
            )
            name = self._segments.router_name(networks[0])
            needs = tuple(Key(Kind.NETWORK, host.name, each.name) for each in networks)
            yield Resource(key, Router(name, tuple(ways), self._external(host)), needs)

    def _external(self, host: Host) -> str:
        """The external network that a host's routers lead to."""
        facts = self._context.facts(host)
        only = facts.external_networks if facts is not None else ()
        return host.connection.external or next((name for name, _ in only), "")

    def _netboot(self, host: Host, network: Network) -> Resource:
        segments = self._segments
        cidr, cidr6 = segments.cidr(network), network.cidr6
        strangers = network.overlay is None
        shape = NetbootService(
            bridge=identity.bridge_name(self._context.id, network.name),
            address=segments.host_address(host, network),
            range=self._range(cidr, network) if cidr is not None and strangers else NO_RANGE,
            reservations=tuple(segments.reservations(host, network)),
            routed=network.nat,
            address6=segments.host_address6(host, network),
            range6=_range6(cidr6) if cidr6 is not None and strangers else NO_RANGE,
        )
        key = Key(Kind.NETBOOT, host.name, network.name)
        return Resource(key, shape, (Key(Kind.NETWORK, host.name, network.name),))

    def _range(self, cidr: IPv4Network, network: Network) -> tuple[str, str]:
        """First and last address for strangers: of the largest part beside the addresses of BMCs
        and virtual ones the last, because nodes take the first.
        """
        pool = self._context.cluster.addressing.pool
        spared = [(address, address) for address in virtual4(network) if address in cidr]
        if pool is not None and pool.subnet_of(cidr):
            spared.append((pool[0], pool[-1]))
        begins = [cidr[2], *(last + 1 for _, last in sorted(spared))]
        ends = [*(first - 1 for first, _ in sorted(spared)), cidr[-2]]
        parts = zip(begins, ends, strict=True)
        low, high = max(parts, key=lambda part: int(part[1]) - int(part[0]))
        return str(max(low, high - (STRANGERS - 1))), str(high)


def _range6(cidr: IPv6Network) -> tuple[str, str]:
    return str(cidr[STRANGERS6]), str(cidr[STRANGERS6 + STRANGERS - 1])
