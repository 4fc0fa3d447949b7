"""Ports, trunks and floating IPs of NICs in a cloud."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nospoon.model.cluster import Host, Network, Node
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Carried, FloatingIp, Port, Trunk
from nospoon.model.resources.relays import RELAY
from nospoon.model.resources.resource import Resource
from nospoon.plan import relays
from nospoon.plan.resolution.boot_images import has_image
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.segments import Segments, router_key


class Ports:
    def __init__(self, context: Context, segments: Segments) -> None:
        self._context, self._segments = context, segments

    def of(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """Of its NICs: ports, and trunks of those that get tagged frames with the ports by which
        they get them. These have the MAC of the NIC, as VLAN interfaces of its guest have.
        """
        context = self._context
        for nic, plug in zip(node.nics, self._own(node, host, macs), strict=True):
            yield plug
            assert isinstance(plug.shape, Port), "it is a NIC's port"
            carried, needs = [], [plug.key]
            for vlan, name in context.trunks.carried(nic):
                network = context.networks[name]
                key = Key(Kind.PORT, host.name, f"{plug.key.name}.{vlan}")
                shape = replace(self.shape(host, network, plug.shape.mac), vlan=vlan)
                shape = replace(shape, virtual_ips=network.virtual_ips if shape.guarded else ())
                made = [] if network.existing else [Key(Kind.NETWORK, host.name, name)]
                yield Resource(key, shape, tuple(made), node.name)
                carried.append(Carried(vlan, shape.network))
                needs.append(key)
            if carried:
                key = Key(Kind.TRUNK, host.name, plug.key.name)
                trunk = Trunk(plug.shape.network, plug.shape.mac, tuple(sorted(carried)))
                yield Resource(key, trunk, tuple(needs), node.name)

    def _own(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """One for each NIC. The cloud filters what is on networks of others, where it gives
        addresses; the others are like a wire.
        """
        relay = host.connection.relay
        for index, (mac, nic) in enumerate(zip(macs, node.nics, strict=True)):
            network, name = self._context.networks[nic.network], nic.network
            needs = [] if network.existing else [Key(Kind.NETWORK, host.name, name)]
            if relay is not None and relay.network == name and has_image(node, host):
                needs.append(Key(Kind.PORT, host.name, RELAY))  # whose address is to be free
            key = Key(Kind.PORT, host.name, f"{node.name}-{index}")
            port = self.shape(host, network, mac)
            port = replace(port, virtual_ips=network.virtual_ips if port.guarded else ())
            if relays.serves(network, host):
                given = self._segments.given(network)
                port = replace(port, address=given.get((node.name, index), ""))
            yield Resource(key, port, tuple(needs), node.name)

    def shape(self, host: Host, network: Network, mac: str) -> Port:
        """Of a port on a network."""
        facts = self._context.facts(host)
        own = facts.own_networks if facts is not None else frozenset()
        where = self._segments.name_there(host, network.name)
        guarded = network.anti_spoofing or (network.existing and where not in own)
        given = str(self._segments.cidr(network) or "") if network.nat else ""
        return Port(where, mac, guarded, range=given)

    def floating_ips(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """Of NICs that have one, beside their ports."""
        for index, (mac, nic) in enumerate(zip(macs, node.nics, strict=True)):
            if nic.floating_ip:
                name = f"{node.name}-{index}"
                key, port = (Key(each, host.name, name) for each in (Kind.FLOATING_IP, Kind.PORT))
                network = self._context.networks[nic.network]
                router = [router_key(host, network)] if network.nat else []
                by = self._segments.router_name(network)
                shape = FloatingIp(nic.floating_ip, mac, chosen=nic.floating_address, router=by)
                yield Resource(key, shape, (port, *router), node.name)
