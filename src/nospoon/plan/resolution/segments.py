"""What a network is on a host: its name and the host's addresses there, and those of its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from nospoon.model.cluster import Arch, Firmware, Host, Network, Node
from nospoon.model.declared import Networking
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import Loader, Reservation
from nospoon.plan import identity
from nospoon.plan.addresses.addresses import reserved
from nospoon.plan.addresses.numbers import number_of, of_host
from nospoon.plan.resolution.context import Context


class Segments:
    """Remembers what it has found: many nodes are on the same networks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reserved: dict[str, defaultdict[str, list[tuple[Node, int, str, str]]]] = {}
        self._given: dict[str, dict[tuple[str, int], str]] = {}
        self._names: dict[tuple[str, str], str] = {}
        """By host and network."""

    def name_there(self, host: Host, name: str) -> str:
        """What a host or cloud calls a network of the file: a host by its bridge."""
        if (host.name, name) not in self._names:
            network = self._context.networks[name]
            self._names[host.name, name] = self._name_there(host, network)
        return self._names[host.name, name]

    def _name_there(self, host: Host, network: Network) -> str:
        declares = host.declares
        if not declares.has_networks:
            return ""
        named = declares.is_real or declares.networking is Networking.EXISTING
        if network.physnet and named:
            link = dict(host.physnets)[network.physnet]
            known = self._context.around.facts.get(host.network_place)
            return known.bridge(link) if known is not None else link
        return network.bridge or identity.bridge_name(self._context.id, network.name)

    def cidr(self, network: Network) -> IPv4Network | None:
        text = self._context.allocations.cidrs.get(network.name)
        return IPv4Network(text) if text else None

    def host_address(self, host: Host, network: Network) -> str:
        cidr = self.cidr(network)
        if cidr is None or not network.addressed:
            return ""
        context = self._context
        address = of_host(context.cluster, network, cidr, context.allocations.ends, host.name)
        return f"{address}/{cidr.prefixlen}" if address is not None else ""

    def host_address6(self, host: Host, network: Network) -> str:
        cidr = network.cidr6
        if cidr is None or not network.addressed:
            return ""
        context = self._context
        number = number_of(context.cluster, network, context.allocations.ends, host.name)
        return f"{cidr[1 + number]}/{cidr.prefixlen}"

    def router_name(self, network: Network) -> str:
        """As the cloud has the router that leads out of a network, "" for none."""
        name = network.router or network.name
        return identity.bridge_name(self._context.id, name) if network.nat else ""

    def reservations(self, host: Host, network: Network) -> Iterator[Reservation]:
        for node, index, address, address6 in self._reserved_on(network)[host.name]:
            uuid = identity.uuid_of(self._context.id, node)
            mac = node.nics[index].mac or identity.mac_address(uuid, index)
            yield Reservation(mac, address, node.name, uuid, _loader(node), address6)

    def given(self, network: Network) -> Mapping[tuple[str, int], str]:
        """By node and number of its NIC, what nospoon's DHCP gives it."""
        if network.name not in self._given:
            self._given[network.name] = {
                (node.name, index): address
                for given in self._reserved_on(network).values()
                for node, index, address, _ in given
            }
        return self._given[network.name]

    def _reserved_on(self, network: Network) -> defaultdict[str, list[tuple[Node, int, str, str]]]:
        """By the place of the network: node, number of its NIC, and that NIC's addresses."""
        if network.name not in self._reserved:
            context = self._context
            by_host = self._reserved[network.name] = defaultdict(list)
            for each in reserved(context.cluster, network, context.allocations):
                by_host[context.host_of(each[0]).network_place].append(each)
        return self._reserved[network.name]


def router_key(host: Host, network: Network) -> Key:
    return Key(Kind.ROUTER, host.name, network.router or network.name)


def _loader(node: Node) -> Loader:
    if node.arch is Arch.AARCH64:
        return Loader.GRUB
    return Loader.SHIM if node.firmware is Firmware.UEFI_SECURE else Loader.IPXE
