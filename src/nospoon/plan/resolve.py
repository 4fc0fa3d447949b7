"""A cluster and what was decided for it -> the resources that must exist, and what each needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_interface
from uuid import UUID

from nospoon.model.cluster import (
    Arch,
    BmcProtocol,
    Cluster,
    Disk,
    Firmware,
    Host,
    Netboot,
    Network,
    Node,
)
from nospoon.model.connections import RELAY_PORT, BootMethod, RelaySpec
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.images import HypervisorType, KeptIn, kept_in
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources import (
    RELAY,
    Bmc,
    BootImage,
    Carried,
    FloatingIp,
    Image,
    Key,
    Kind,
    Led,
    Link,
    Loader,
    Machine,
    MachineDisk,
    MachineNic,
    NetbootService,
    Outlet,
    Pool,
    Port,
    Relay,
    Reservation,
    Resource,
    Router,
    Trunk,
    Tunnel,
    Volume,
    boot_image,
    relay_of,
)
from nospoon.plan import identity, relays
from nospoon.plan.addresses import notes
from nospoon.plan.addresses.addresses import reserved
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.plan.addresses.notes import Noted
from nospoon.plan.addresses.numbers import number_of, of_host, virtual4
from nospoon.plan.enrollment.enrol import in_ironic
from nospoon.plan.enrollment.nova import in_nova
from nospoon.plan.placement.flavors import chosen
from nospoon.plan.trunks import Trunks

NO_RANGE = ("", "")
"""The range for strangers on an overlay: each of its hosts would answer them all."""
STRANGERS = 1024
"""Addresses of a network, of each family, for clients without a reservation, at most: a guest may
lease them all, and dnsmasq writes all leases to the disk with each change of one, and waits for it.
"""
STRANGERS6 = 0x100000
"""Where addresses of strangers begin in an IPv6 network."""
SILENT = Endpoint(address="", ipmi_port=0, redfish_port=0)
"""Where the BMC of a node answers that speaks no protocol: it serves the API only."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of an image that the file names: sizes in bytes; format as qemu-img says, or
    `ROOT_FORMAT`, of which `virtual_size` is that of the file. `hypervisor_type`: that a loaded
    image was given, None for none.
    """

    sha256: str
    format: str
    virtual_size: int
    hypervisor_type: HypervisorType | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the file does not say: where pools live, which images are which, and credentials.

    `pool_roots` by host; `images` by their `source`; `credentials_keys` by node;
    `facts` of hosts, by name. `certificate`: SHA-256 of that which the file gives. `boot_port`:
    where boot scripts are served by HTTP. `adopted`: machines of others that are nodes, by UUID.
    `made`: the machines that nodes have, by node. `seeds`: digests of what cloud-init gets, by
    node. `relay_keys`: of the keys of relays, by host.
    """

    pool_roots: Mapping[str, str]
    images: Mapping[str, ImageFacts]
    credentials_keys: Mapping[str, str]
    facts: Mapping[str, HostFacts] = field(default_factory=dict)
    certificate: str = ""
    boot_port: int = 8069
    adopted: Mapping[UUID, Adoptable] = field(default_factory=dict)
    made: Mapping[str, Machine] = field(default_factory=dict)
    seeds: Mapping[str, str] = field(default_factory=dict)
    relay_keys: Mapping[str, str] = field(default_factory=dict)


def resolve(
    cluster: Cluster, cluster_id: UUID, allocations: Allocations, around: Surroundings
) -> dict[Key, Resource]:
    """Every resource of the cluster, by key, in the order in which one would make them."""
    resolver = _Resolver(cluster, cluster_id, allocations, around)
    return {resource.key: resource for resource in resolver.resources()}


class _Resolver:
    def __init__(
        self, cluster: Cluster, cluster_id: UUID, allocations: Allocations, around: Surroundings
    ) -> None:
        self.cluster, self.id = cluster, cluster_id
        self.allocations, self.around = allocations, around
        self.hosts = {host.name: host for host in cluster.hosts}
        self.networks = {network.name: network for network in cluster.networks}
        self._trunks = Trunks.of(cluster)
        self.pool = identity.pool_name(cluster_id, cluster.name)
        self._reserved: dict[str, defaultdict[str, list[tuple[Node, int, str, str]]]] = {}
        self._senders: dict[str, dict[tuple[str, int], str]] = {}
        self._bridges: dict[tuple[str, str], str] = {}
        """By host and network."""
        self._needed: dict[tuple[str, tuple[str, ...]], list[Key]] = {}
        """What is made of networks, by host and networks: many nodes are on the same."""
        self._bmc_pool = str(cluster.addressing.pool or "")
        self._with_ipv6 = {each.name for each in cluster.networks if each.cidr6 is not None}
        self._relays: dict[str, str] = {}
        """Addresses of relays, by host."""
        used = set(allocations.hosts.values())
        self.used_hosts = [name for name in self.hosts if name in used]
        switching = {self.hosts[name].network_place for name in self.used_hosts}
        self.network_places = [name for name in self.hosts if name in switching]

    def resources(self) -> Iterator[Resource]:
        for host in self.used_hosts:
            yield from self._storage(self.hosts[host])
        for host in self.network_places:
            yield from self._links(self.hosts[host])
        for node in self.cluster.nodes:
            yield from self._node(node, self.hosts[self.allocations.hosts[node.name]])
        yield from in_nova(self.cluster, self.id)

    def _storage(self, host: Host) -> Iterator[Resource]:
        """What machines' disks are made in and of, and what machines boot that ask us."""
        if host.declares.has_pools:
            end = identity.pool_end(host.connection.socket)
            path = f"{self.around.pool_roots[host.name]}/{self.pool}{end}"
            yield Resource(self._pool_key(host.name), Pool(path=path))
            yield from self._images(host.name)
        elif host.declares.has_boot_image:
            yield from self._roots(host)
        if host.declares.has_boot_image:
            asking = [node for node in self._nodes_on(host.name) if _has_image(node, host)]
            relay = host.connection.relay
            needs = (relay_of(host.name),) if relay is not None else ()
            if relay is not None and (asking or self._relay_serves(host)):
                yield from self._relay(host, relay)
            for firmware in sorted({node.firmware for node in asking}):
                image = BootImage(firmware, self._boot_url(host))
                yield Resource(boot_image(host.name, firmware), image, needs)

    def _relay(self, host: Host, spec: RelaySpec) -> Iterator[Resource]:
        """It, its port, and its floating IP."""
        network, mac = self.networks[spec.network], relays.mac_of(self.id, host.name)
        made = () if network.existing else (Key(Kind.NETWORK, host.name, network.name),)
        port, floating = (Key(each, host.name, RELAY) for each in (Kind.PORT, Kind.FLOATING_IP))
        address = self._relay_address(host, spec)
        pool = str(self.cluster.addressing.pool or "") if spec.bmcs else ""
        plug = replace(self._port(host, network, mac), address=address)
        served = relays.serves(network, host)
        if plug.guarded and pool:
            plug = replace(plug, virtual_ips=(pool,))
        yield Resource(port, plug, made)
        needs = [port]
        if spec.floating_ip:
            router = [_router_key(host, network)] if network.nat else []
            by = self._router_name(network)
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
            key=self.around.relay_keys.get(host.name, ""),
            zone=host.connection.zone,
            bmcs=pool,
            redfish=self.cluster.addressing.redfish_port if spec.bmcs else 0,
            netboot=served,
        )
        yield Resource(relay_of(host.name), relay, tuple(needs))
        if served:
            yield self._relayed_netboot(host, network, address)

    def _relay_serves(self, host: Host) -> bool:
        """Whether nodes of a host are on a network where its relay serves DHCP."""
        served = {each.name for each in self.cluster.networks if relays.serves(each, host)}
        return any(nic.network in served for node in self._nodes_on(host.name) for nic in node.nics)

    def _relayed_netboot(self, host: Host, network: Network, address: str) -> Resource:
        """What its relay serves: to the nodes alone, for others on a network of a cloud have
        addresses of that.
        """
        router = ip_interface(self._host_address(host, network))
        shape = NetbootService(
            bridge=identity.bridge_name(self.id, network.name),
            address=f"{address}/{router.network.prefixlen}",
            range=NO_RANGE,
            reservations=tuple(self._reservations(host, network)),
            routed=True,
            router=str(router.ip),
        )
        needs = (Key(Kind.NETWORK, host.name, network.name), relay_of(host.name))
        return Resource(Key(Kind.NETBOOT, host.name, network.name), shape, needs)

    def _relay_address(self, host: Host, spec: RelaySpec) -> str:
        if host.name not in self._relays:
            network, cidr = (
                self.networks[spec.network],
                self.allocations.cidrs.get(spec.network, ""),
            )
            own = self._host_address(host, network) if cidr and network.nat else ""
            router = own.partition("/")[0]
            self._relays[host.name] = relays.address_of(spec, self.cluster, cidr, router)
        return self._relays[host.name]

    def _boot_url(self, host: Host) -> str:
        relay = host.connection.relay
        if relay is not None:
            return relays.url_of(self._relay_address(host, relay))
        address = host.connection.boot_address
        shown = f"[{address}]" if ":" in address else address
        return f"http://{shown}:{self.around.boot_port}"

    def _pool_key(self, host: str) -> Key:
        return Key(Kind.POOL, host, self.pool)

    def _nodes_on(self, host: str) -> Iterator[Node]:
        return (n for n in self.cluster.nodes if self.allocations.hosts[n.name] == host)

    def _images(self, host: str) -> Iterator[Resource]:
        named = {
            disk.source
            for node in self._nodes_on(host)
            for disk in node.disks
            if disk.image and kept_in(disk.image) is None
        }
        for image in sorted({self.around.images[name].sha256: name for name in named}.values()):
            facts = self.around.images[image]
            shape = Image(self.pool, facts.sha256, facts.format, facts.virtual_size)
            yield Resource(self._image_key(host, image), shape, (self._pool_key(host),))

    def _roots(self, host: Host) -> Iterator[Resource]:
        """Images of which a cloud makes roots: for each firmware and machine type another one."""
        vms = (
            node
            for node in self._nodes_on(host.name)
            if node.kind is NodeKind.VM and kept_in(node.disks[0].image) is None
        )
        made: dict[Key, Resource] = {}
        for node in vms:
            key = self._root_key(node, host.name)
            facts = self.around.images[node.disks[0].source]
            shape = Image(
                "", facts.sha256, facts.format, facts.virtual_size, node.firmware, _scheduled(node)
            )
            made[key] = Resource(key, shape)
        yield from (made[key] for key in sorted(made, key=lambda key: key.name))

    def _root_key(self, node: Node, host: str) -> Key:
        image = self._image_key(host, node.disks[0].source)
        parts = (image.name, str(node.firmware), _scheduled(node))
        return replace(image, name="-".join(filter(None, parts)))

    def _image_key(self, host: str, image: str) -> Key:
        return Key(Kind.IMAGE, host, f"image-{self.around.images[image].sha256[:16]}")

    def _links(self, host: Host) -> Iterator[Resource]:
        if not host.declares.has_networks:
            return
        if host.declares.has_ports:
            yield from self._cloud_networks(host)
            return
        for network in self.cluster.networks:
            if network.existing:
                continue
            yield Resource(
                Key(Kind.NETWORK, host.name, network.name),
                Link(
                    bridge=identity.bridge_name(self.id, network.name),
                    address=self._host_address(host, network),
                    mtu=network.mtu,
                    nat=network.nat,
                    tunnel=self._tunnel(host, network),
                    address6=self._host_address6(host, network),
                    host_ports=self._host_ports(network),
                ),
            )
            if network.netboot is Netboot.BUILTIN and host.declares.has_bridges:
                yield self._netboot(host, network)

    def _cloud_networks(self, host: Host) -> Iterator[Resource]:
        """With the routers that lead out of them."""
        here, there = list(self._nodes_on(host.name)), self.allocations.hosts
        elsewhere = (node for node in self.cluster.nodes if there[node.name] != host.name)
        made = self._trunks.made(host, here, elsewhere)
        yield from (self._cloud_network(host, network) for network in made)
        yield from self._routers(host, made)

    def _cloud_network(self, host: Host, network: Network) -> Resource:
        bridge = identity.bridge_name(self.id, network.name)
        key = Key(Kind.NETWORK, host.name, network.name)
        address = self._host_address(host, network) if network.nat else ""
        vlan = network.vlan if network.provider else None
        relay = host.connection.relay
        spared = relay is not None and relay.bmcs and relay.network == network.name
        served = relays.serves(network, host)
        link = Link(
            bridge,
            address,
            network.mtu,
            network.nat,
            provider=network.provider,
            vlan=vlan,
            spared=str(self.cluster.addressing.pool or "") if spared else "",
            relayed=served,
            nameservers=relay.nameservers if relay is not None and served else (),
        )
        return Resource(key, link)

    def _routers(self, host: Host, made: Iterable[Network]) -> Iterator[Resource]:
        """Those that lead out of networks of a cloud, each with its network, or with those that
        share it.
        """
        led: defaultdict[Key, list[Network]] = defaultdict(list)
        for network in made:
            if network.nat:
                led[_router_key(host, network)].append(network)
        for key, networks in led.items():
            ways = sorted(
                Led(identity.bridge_name(self.id, each.name), str(self._cidr(each) or ""))
                for each in networks
            )
            name = self._router_name(networks[0])
            needs = tuple(Key(Kind.NETWORK, host.name, each.name) for each in networks)
            yield Resource(key, Router(name, tuple(ways), self._external(host)), needs)

    def _router_name(self, network: Network) -> str:
        """As the cloud has the router that leads out of a network, "" for none."""
        name = network.router or network.name
        return identity.bridge_name(self.id, name) if network.nat else ""

    def _external(self, host: Host) -> str:
        """The external network that a host's routers lead to."""
        facts = self.around.facts.get(host.name)
        only = facts.external_networks if facts is not None else ()
        return host.connection.external or next((name for name, _ in only), "")

    def _host_ports(self, network: Network) -> tuple[int, ...] | None:
        if network.host_ports is None:
            return None
        served = {self.around.boot_port} if network.netboot is Netboot.BUILTIN else set()
        return tuple(sorted({*network.host_ports, *served}))

    def _cidr(self, network: Network) -> IPv4Network | None:
        text = self.allocations.cidrs.get(network.name)
        return IPv4Network(text) if text else None

    def _tunnel(self, host: Host, network: Network) -> Tunnel | None:
        peers = tuple(self.hosts[name].address for name in self.network_places if name != host.name)
        if network.overlay is None or not peers or not host.declares.is_real:
            return None
        vni = identity.network_identifier(self.id, network.name)
        return Tunnel(vni, host.address, peers)

    def _host_address(self, host: Host, network: Network) -> str:
        cidr = self._cidr(network)
        if cidr is None or not network.addressed:
            return ""
        address = of_host(self.cluster, network, cidr, self.allocations.ends, host.name)
        return f"{address}/{cidr.prefixlen}" if address is not None else ""

    def _host_address6(self, host: Host, network: Network) -> str:
        cidr = network.cidr6
        if cidr is None or not network.addressed:
            return ""
        number = number_of(self.cluster, network, self.allocations.ends, host.name)
        return f"{cidr[1 + number]}/{cidr.prefixlen}"

    def _netboot(self, host: Host, network: Network) -> Resource:
        cidr, cidr6 = self._cidr(network), network.cidr6
        strangers = network.overlay is None
        shape = NetbootService(
            bridge=identity.bridge_name(self.id, network.name),
            address=self._host_address(host, network),
            range=self._range(cidr, network) if cidr is not None and strangers else NO_RANGE,
            reservations=tuple(self._reservations(host, network)),
            routed=network.nat,
            address6=self._host_address6(host, network),
            range6=_range6(cidr6) if cidr6 is not None and strangers else NO_RANGE,
        )
        key = Key(Kind.NETBOOT, host.name, network.name)
        return Resource(key, shape, (Key(Kind.NETWORK, host.name, network.name),))

    def _reserved_on(self, network: Network) -> defaultdict[str, list[tuple[Node, int, str, str]]]:
        """By the place of the network: node, number of its NIC, and that NIC's addresses."""
        if network.name not in self._reserved:
            by_host = self._reserved[network.name] = defaultdict(list)
            for each in reserved(self.cluster, network, self.allocations):
                host = self.hosts[self.allocations.hosts[each[0].name]]
                by_host[host.network_place].append(each)
        return self._reserved[network.name]

    def _reservations(self, host: Host, network: Network) -> Iterator[Reservation]:
        for node, index, address, address6 in self._reserved_on(network)[host.name]:
            uuid = identity.uuid_of(self.id, node)
            mac = node.nics[index].mac or identity.mac_address(uuid, index)
            yield Reservation(mac, address, node.name, uuid, _loader(node), address6)

    def _range(self, cidr: IPv4Network, network: Network) -> tuple[str, str]:
        """First and last address for strangers: of the largest part beside the addresses of BMCs
        and virtual ones the last, because nodes take the first.
        """
        pool = self.cluster.addressing.pool
        spared = [(address, address) for address in virtual4(network) if address in cidr]
        if pool is not None and pool.subnet_of(cidr):
            spared.append((pool[0], pool[-1]))
        begins = [cidr[2], *(last + 1 for _, last in sorted(spared))]
        ends = [*(first - 1 for first, _ in sorted(spared)), cidr[-2]]
        parts = zip(begins, ends, strict=True)
        low, high = max(parts, key=lambda part: int(part[1]) - int(part[0]))
        return str(max(low, high - (STRANGERS - 1))), str(high)

    def _node(self, node: Node, host: Host) -> Iterator[Resource]:
        uuid = identity.uuid_of(self.id, node)
        macs = [nic.mac or identity.mac_address(uuid, i) for i, nic in enumerate(node.nics)]
        volumes = [
            self._volume(node, host, index)
            for index, disk in enumerate(node.disks)
            if not disk.volume and host.declares.has_pools
        ]
        yield from volumes
        ports = list(self._plugs(node, host, macs)) if host.declares.has_ports else []
        if host.declares.has_ports:
            yield from (*ports, *self._floating_ips(node, host, macs))
        key = Key(Kind.MACHINE, host.name, node.name)
        needs = [each.key for each in (*volumes, *ports)]
        if _has_image(node, host):
            needs.append(boot_image(host.name, node.firmware))
        elif (
            host.declares.has_boot_image
            and node.kind is NodeKind.VM
            and kept_in(node.disks[0].image) is None
        ):
            needs.append(self._root_key(node, host.name))
        if host.declares.has_pools and not volumes:
            needs.append(self._pool_key(host.name))
        needs += self._networks_of(node, host)
        machine = self._machine(node, host, uuid, macs)
        yield Resource(key, machine, tuple(needs), node.name, self._note(node, host))
        bmc = self._bmc(node, uuid, key, tuple(self._sizes(node, host, volumes)))
        yield bmc
        if self.cluster.ironic is not None and node.kind is NodeKind.BAREMETAL:
            yield from in_ironic(self.cluster, node, machine, bmc, boots=self._boots(node, host))

    def _networks_of(self, node: Node, host: Host) -> list[Key]:
        """Those that are made for it."""
        if not host.declares.has_networks:
            return []
        names = tuple(dict.fromkeys(nic.network for nic in node.nics))
        if (host.name, names) not in self._needed:
            self._needed[host.name, names] = self._made_of(names, host)
        return self._needed[host.name, names]

    def _made_of(self, names: tuple[str, ...], host: Host) -> list[Key]:
        place = host.network_place
        return [
            *(Key(Kind.NETWORK, place, name) for name in names if not self.networks[name].existing),
            *(
                Key(Kind.NETBOOT, place, name)  # without which it starts with no address
                for name in names
                if relays.serves(self.networks[name], host)
            ),
        ]

    def _plugs(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """Of its NICs: ports, and trunks of those that get tagged frames with the ports by which
        they get them. These have the MAC of the NIC, as VLAN interfaces of its guest have.
        """
        for nic, plug in zip(node.nics, self._ports(node, host, macs), strict=True):
            yield plug
            assert isinstance(plug.shape, Port), "it is a NIC's port"
            carried, needs = [], [plug.key]
            for vlan, name in self._trunks.carried(nic):
                network = self.networks[name]
                key = Key(Kind.PORT, host.name, f"{plug.key.name}.{vlan}")
                shape = replace(self._port(host, network, plug.shape.mac), vlan=vlan)
                shape = replace(shape, virtual_ips=network.virtual_ips if shape.guarded else ())
                made = [] if network.existing else [Key(Kind.NETWORK, host.name, name)]
                yield Resource(key, shape, tuple(made), node.name)
                carried.append(Carried(vlan, shape.network))
                needs.append(key)
            if carried:
                key = Key(Kind.TRUNK, host.name, plug.key.name)
                trunk = Trunk(plug.shape.network, plug.shape.mac, tuple(sorted(carried)))
                yield Resource(key, trunk, tuple(needs), node.name)

    def _ports(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """One for each NIC. The cloud filters what is on networks of others, where it gives
        addresses; the others are like a wire.
        """
        relay = host.connection.relay
        for index, (mac, nic) in enumerate(zip(macs, node.nics, strict=True)):
            network, name = self.networks[nic.network], nic.network
            needs = [] if network.existing else [Key(Kind.NETWORK, host.name, name)]
            if relay is not None and relay.network == name and _has_image(node, host):
                needs.append(Key(Kind.PORT, host.name, RELAY))  # whose address is to be free
            key = Key(Kind.PORT, host.name, f"{node.name}-{index}")
            port = self._port(host, network, mac)
            port = replace(port, virtual_ips=network.virtual_ips if port.guarded else ())
            if relays.serves(network, host):
                port = replace(port, address=self._given(network).get((node.name, index), ""))
            yield Resource(key, port, tuple(needs), node.name)

    def _port(self, host: Host, network: Network, mac: str) -> Port:
        facts = self.around.facts.get(host.name)
        own = facts.own_networks if facts is not None else frozenset()
        where = self._bridge(host, network.name)
        guarded = network.anti_spoofing or (network.existing and where not in own)
        given = str(self._cidr(network) or "") if network.nat else ""
        return Port(where, mac, guarded, range=given)

    def _floating_ips(self, node: Node, host: Host, macs: Sequence[str]) -> Iterator[Resource]:
        """Of NICs that have one, beside their ports."""
        for index, (mac, nic) in enumerate(zip(macs, node.nics, strict=True)):
            if nic.floating_ip:
                name = f"{node.name}-{index}"
                key, port = (Key(each, host.name, name) for each in (Kind.FLOATING_IP, Kind.PORT))
                network = self.networks[nic.network]
                router = [_router_key(host, network)] if network.nat else []
                by = self._router_name(network)
                shape = FloatingIp(nic.floating_ip, mac, chosen=nic.floating_address, router=by)
                yield Resource(key, shape, (port, *router), node.name)

    def _boots(self, node: Node, host: Host) -> Iterator[Key]:
        """The services from which a node boots by the network."""
        for name in dict.fromkeys(nic.network for nic in node.nics):
            network = self.networks[name]
            builtin = network.netboot is Netboot.BUILTIN and not network.existing
            if (builtin and host.declares.has_bridges) or relays.serves(network, host):
                yield Key(Kind.NETBOOT, host.name, name)

    def _note(self, node: Node, host: Host) -> str:
        given = self.allocations
        noted = Noted(host.name, given.endpoints.get(node.name), given.outlets.get(node.name))
        return notes.written(noted)

    def _volume(self, node: Node, host: Host, index: int) -> Resource:
        disk = node.disks[index]
        facts = self.around.images[disk.source] if disk.image else None
        image = self._image_key(host.name, disk.source) if disk.image else None
        shape = Volume(
            pool=self.pool,
            size=disk.size or (_whole_kibibytes(facts.virtual_size) if facts else 0),
            image=image.name if image else "",
        )
        needs = (self._pool_key(host.name), *((image,) if image else ()))
        return Resource(
            Key(Kind.VOLUME, host.name, f"{node.name}-{index}"), shape, needs, node.name
        )

    def _sizes(self, node: Node, host: Host, volumes: list[Resource]) -> Iterator[int]:
        """Of the node's disks, in their order, in bytes."""
        if node.adopted is not None:
            yield from self.around.adopted[node.adopted.uuid].sizes
            return
        made = {
            each.key.name: each.shape.size for each in volumes if isinstance(each.shape, Volume)
        }
        facts = self.around.facts.get(host.name)
        for index, disk in enumerate(node.disks):
            found = facts.volumes.get(disk.volume) if facts is not None else None
            yield found.size if found is not None else made.get(f"{node.name}-{index}", disk.size)

    def _machine(self, node: Node, host: Host, uuid: UUID, macs: Sequence[str]) -> Machine:
        pool = self.pool if host.declares.has_pools else ""
        if node.adopted is not None:  # what it is, its owner decides
            found = self.around.adopted[uuid].machine
            if host.declares.has_boot_image:
                found = replace(found, boot_iso=_has_image(node, host))
            return replace(found, pool=pool)
        made = self.around.made.get(node.name)
        size = chosen(node, self.around.facts.get(host.name), made)
        return Machine(
            uuid=uuid,
            cpus=size.cpus if size is not None else node.cpus,
            memory=size.memory if size is not None else node.memory,
            arch=node.arch,
            firmware=node.firmware,
            tpm=node.tpm,
            pool=pool,
            disks=tuple(self._disk(node, host, uuid, i) for i in range(len(node.disks))),
            nics=tuple(
                self._machine_nic(node, host, i, mac=mac, port=identity.port_name(uuid, i))
                for i, mac in enumerate(macs)
            ),
            boot_order=node.boot_order,
            boot_iso=host.declares.boot is BootMethod.SCRIPT and node.kind is NodeKind.BAREMETAL,
            ipv6=node.firmware is not Firmware.BIOS
            and any(nic.network in self._with_ipv6 for nic in node.nics),
            flavor=size.name if size is not None else "",
            zone=host.connection.zone,
            shelved=node.kind is NodeKind.VM and host.connection.shelves(len(node.disks)),
            kind=node.kind,
            seed=self.around.seeds.get(node.name, ""),
        )

    def _disk(self, node: Node, host: Host, uuid: UUID, index: int) -> MachineDisk:
        disk, name = node.disks[index], f"{node.name}-{index}"
        if not host.declares.has_pools:
            if index == 0 and node.kind is NodeKind.VM:
                kept, key = kept_in(disk.image), self._root_key
                root = str(KeptIn(*kept, node.name)) if kept else key(node, host.name).name
                return MachineDisk(root, disk.bus, serial="", size=disk.size)
            # SeaBIOS boots no virtio disk that is not in the boot order, and Nova puts none there
            bus = "sata" if node.firmware is Firmware.BIOS else disk.bus
            return MachineDisk(name, bus, serial="", size=disk.size)
        return _disk(disk, name, disk.serial or identity.disk_serial(uuid, index))

    def _machine_nic(
        self, node: Node, host: Host, index: int, *, mac: str, port: str
    ) -> MachineNic:
        """With the addresses that it may send from."""
        nic, sends_from = node.nics[index], self._sends_from(host, node, index)
        bridge, network = self._bridge(host, nic.network), self.networks[nic.network]
        virtual_ips = network.virtual_ips if sends_from else ()
        if not bridge:
            return MachineNic(
                mac, bridge, nic.model, sends_from=sends_from, virtual_ips=virtual_ips
            )
        is_wire = not host.declares.has_ports
        return MachineNic(
            mac,
            bridge,
            nic.model,
            port=port,
            switch=network.switch,
            vlan=network.vlan if is_wire else None,
            trunk=self._trunks.ids(nic) if is_wire else (),
            sends_from=sends_from,
            virtual_ips=virtual_ips,
        )

    def _sends_from(self, host: Host, node: Node, index: int) -> str | None:
        """What a NIC is given by DHCP of ours, "" where another server gives it."""
        network = self.networks[node.nics[index].network]
        if not network.anti_spoofing or not host.declares.has_networks:
            return None
        declares = host.declares
        ours = declares.has_bridges or declares.shares_networks
        if network.netboot is not Netboot.BUILTIN or not ours:
            return ""
        return self._given(network).get((node.name, index), "")

    def _given(self, network: Network) -> Mapping[tuple[str, int], str]:
        """By node and number of its NIC, what nospoon's DHCP gives it."""
        if network.name not in self._senders:
            self._senders[network.name] = {
                (node.name, index): address
                for given in self._reserved_on(network).values()
                for node, index, address, _ in given
            }
        return self._senders[network.name]

    def _bridge(self, host: Host, name: str) -> str:
        if (host.name, name) not in self._bridges:
            self._bridges[host.name, name] = self._bridge_of(host, self.networks[name])
        return self._bridges[host.name, name]

    def _bridge_of(self, host: Host, network: Network) -> str:
        if not host.declares.has_networks:
            return ""
        if network.physnet and host.declares.is_real:
            link = dict(host.physnets)[network.physnet]
            known = self.around.facts.get(host.network_place)
            return known.bridge(link) if known is not None else link
        return network.bridge or identity.bridge_name(self.id, network.name)

    def _bmc(self, node: Node, uuid: UUID, machine: Key, sizes: tuple[int, ...]) -> Resource:
        endpoint = self.allocations.endpoints.get(node.name, SILENT)
        redfish = BmcProtocol.REDFISH in node.bmc
        shape = Bmc(
            uuid=uuid,
            protocols=node.bmc,
            address=endpoint.address,
            ipmi_port=endpoint.ipmi_port,
            redfish_port=endpoint.redfish_port if redfish else 0,
            tls=self.cluster.addressing.tls,
            certificate=self.around.certificate if redfish else "",
            username=node.credentials.username,
            credentials_key=self.around.credentials_keys.get(node.name, ""),
            pool=self._bmc_pool,
            outlet=self._outlet(node),
            disk_sizes=sizes,
            restore=node.restore,
            redfish_login=self.cluster.addressing.redfish_login or not redfish,
        )
        return Resource(Key(Kind.BMC, machine.host, node.name), shape, (machine,), node.name)

    def _outlet(self, node: Node) -> Outlet | None:
        socket = self.allocations.outlets.get(node.name)
        if socket is None:
            return None
        return Outlet(
            pdu=identity.pdu_uuid(self.id, socket.pdu),
            name=f"{self.cluster.name}-pdu-{socket.pdu}",
            address=socket.address,
            port=socket.port,
            number=socket.number,
            v2c=self.cluster.addressing.pdu.v2c,
        )


def _scheduled(node: Node) -> str:
    """By which hypervisor of a cloud a VM's image may be run: those with KVM say that they run
    QEMU's, too (`img_hv_type`, nova.conf's ImagePropertiesFilter); "" for any.
    """
    return str(HypervisorType.QEMU) if node.image_types else ""


def _router_key(host: Host, network: Network) -> Key:
    return Key(Kind.ROUTER, host.name, network.router or network.name)


def _whole_kibibytes(size: int) -> int:
    """libvirt has qemu-img make disks of these, so that a disk may be larger than its image."""
    return -(-size // 1024) * 1024


ROTATION_RATES = {None: 0, False: 1, True: 7200}
"""Of disks that tell nothing, that do not rotate, and that do."""


def _has_image(node: Node, host: Host) -> bool:
    """Whether it boots a boot image of its host; a machine of others, where it can ask for it."""
    if not host.declares.has_boot_image or node.kind is not NodeKind.BAREMETAL:
        return False
    return node.adopted is None or host.connection.is_asked


def _disk(disk: Disk, volume: str, serial: str) -> MachineDisk:
    rate = ROTATION_RATES[disk.rotational]
    name = disk.volume or volume
    return MachineDisk(
        name, disk.bus, serial, disk.cache, disk.discard, rate, disk.format, mount=disk.mount
    )


def _range6(cidr: IPv6Network) -> tuple[str, str]:
    return str(cidr[STRANGERS6]), str(cidr[STRANGERS6 + STRANGERS - 1])


def _loader(node: Node) -> Loader:
    if node.arch is Arch.AARCH64:
        return Loader.GRUB
    return Loader.SHIM if node.firmware is Firmware.UEFI_SECURE else Loader.IPXE
