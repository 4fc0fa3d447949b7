"""The relay of a cloud: it, its port, its floating IP, and what it serves (docs/adr/0030)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_interface

from nospoon.model.cluster import Host, Network
from nospoon.model.connections import RELAY_PORT, RelaySpec
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import FloatingIp
from nospoon.model.resources.relays import RELAY, Relay, relay_of
from nospoon.model.resources.resource import Resource
from nospoon.plan import identity, relays
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.networks import NO_RANGE
from nospoon.plan.resolution.ports import Ports
from nospoon.plan.resolution.segments import Segments, router_key


class Relays:
    def __init__(self, context: Context, segments: Segments, ports: Ports) -> None:
        self._context, self._segments, self._ports = context, segments, ports
        self._addresses: dict[str, str] = {}
        """By host."""

    def boot_url(self, host: Host) -> str:
        """Where machines of a host ask what to boot: its relay, else this daemon."""
        relay = host.connection.relay
        if relay is not None:
            return relays.url_of(self._address(host, relay))
        address = host.connection.boot_address
        shown = f"[{address}]" if ":" in address else address
        return f"http://{shown}:{self._context.around.boot_port}"

    def serves(self, host: Host) -> bool:
        """Whether nodes of a host are on a network where its relay serves DHCP."""
        networks = self._context.cluster.networks
        served = {each.name for each in networks if relays.serves(each, host)}
        nodes = self._context.nodes_on(host.name)
        return any(nic.network in served for node in nodes for nic in node.nics)

    def of(self, host: Host, spec: RelaySpec) -> Iterator[Resource]:
        """It, its port, and its floating IP."""
        context = self._context
        network, mac = context.networks[spec.network], relays.mac_of(context.id, host.name)
        made = () if network.existing else (Key(Kind.NETWORK, host.name, network.name),)
        port, floating = (Key(each, host.name, RELAY) for each in (Kind.PORT, Kind.FLOATING_IP))
        address = self._address(host, spec)
        pool = str(context.cluster.addressing.pool or "") if spec.bmcs else ""
        plug = replace(self._ports.shape(host, network, mac), address=address)
        served = relays.serves(network, host)
        if plug.guarded and pool:
            plug = replace(plug, virtual_ips=(pool,))
        yield Resource(port, plug, made)
        needs = [port]
        if spec.floating_ip:
            router = [router_key(host, network)] if network.nat else []
            by = self._segments.router_name(network)
            leads = FloatingIp(spec.floating_ip, mac, chosen=spec.floating_address, router=by)
            yield Resource(floating, leads, (port, *router))
            needs.append(floating)
        relay = Relay(
            image=spec.image,
            flavor=spec.flavor,
            mac=mac,
            address=address,
            listens=RELAY_PORT,
            ssh=spec.port,
            key=context.around.relay_keys.get(host.name, ""),
            zone=host.connection.zone,
            bmcs=pool,
            redfish=context.cluster.addressing.redfish_port if spec.bmcs else 0,
            netboot=served,
            key_pair=host.connection.key_pair,
        )
        yield Resource(relay_of(host.name), relay, tuple(needs))
        if served:
            yield self._netboot(host, network, address)

    def _netboot(self, host: Host, network: Network, address: str) -> Resource:
        """What its relay serves: to the nodes alone, for others on a network of a cloud have
        addresses of that.
        """
        router = ip_interface(self._segments.host_address(host, network))
        shape = NetbootService(
            bridge=identity.bridge_name(self._context.id, network.name),
            address=f"{address}/{router.network.prefixlen}",
            range=NO_RANGE,
            reservations=tuple(self._segments.reservations(host, network)),
            routed=True,
            router=str(router.ip),
        )
        needs = (Key(Kind.NETWORK, host.name, network.name), relay_of(host.name))
        return Resource(Key(Kind.NETBOOT, host.name, network.name), shape, needs)

    def _address(self, host: Host, spec: RelaySpec) -> str:
        if host.name not in self._addresses:
            context, network = self._context, self._context.networks[spec.network]
            cidr = context.allocations.cidrs.get(spec.network, "")
            own = self._segments.host_address(host, network) if cidr and network.nat else ""
            router = own.partition("/")[0]
            self._addresses[host.name] = relays.address_of(spec, context.cluster, cidr, router)
        return self._addresses[host.name]
