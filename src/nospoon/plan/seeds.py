"""What cloud-init is given in each VM and container: made of the node and what was decided for it.

NoCloud's meta-data, and network configuration of version 2
(https://docs.cloud-init.io/en/latest/reference/network-config-format-v2.html). All of it is written
as JSON, which is YAML, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, ip_interface
from uuid import UUID

from nospoon.model.boot import BOOT_URL
from nospoon.model.cluster import DHCP, Cluster, Host, Netboot, Network, Nic, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.seed import Seed
from nospoon.plan import identity
from nospoon.plan.addresses.addresses import reserved
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.numbers import number_of, of_host

ANYWHERE = "0.0.0.0/0"
"""Destination of a default route: older versions of cloud-init do not know the word `default`."""


def seeds_of(
    cluster: Cluster, cluster_id: UUID, allocations: Allocations, *, boot_port: int
) -> dict[str, Seed]:
    """By the name of each node that has one. `boot_port`: of the boot server, whose URL `{{boot}}`
    stands for in user data.
    """
    networks = {network.name: network for network in cluster.networks}
    found, filled_in = {}, dict[str, str]()  # nodes share long texts
    for node in cluster.nodes:
        if node.kind is not NodeKind.BAREMETAL:
            user_data = user_data_of(cluster, node, allocations, boot_port)
            user_data = filled_in.setdefault(user_data, user_data)
            uuid = identity.uuid_of(cluster_id, node)
            found[node.name] = _seed(cluster, uuid, node, networks, allocations, user_data)
    return found


def user_data_of(cluster: Cluster, node: Node, allocations: Allocations, boot_port: int) -> str:
    """The user's, with the URL of the boot server in it."""
    user_data = node.cloud_init.user_data
    if BOOT_URL not in user_data:
        return user_data
    return user_data.replace(BOOT_URL, boot_url(cluster, node, allocations, boot_port))


def boot_url(cluster: Cluster, node: Node, allocations: Allocations, port: int) -> str:
    """Of the boot server as a node reaches it, "" where that is not known: on a cloud at its
    `boot_address`, elsewhere at the host's address on the first network that it boots from.
    """
    where = allocations.hosts.get(node.name, "")
    host = next((each for each in cluster.hosts if each.name == where), None)
    if host is None or host.ssh:
        return ""
    address = host.connection.boot_address or _host_address(cluster, node, allocations, host)
    shown = f"[{address}]" if ":" in address else address
    return f"http://{shown}:{port}" if address else ""


def _host_address(cluster: Cluster, node: Node, allocations: Allocations, host: Host) -> str:
    """Where the boot server is served by this machine, "" where a node has no such network."""
    networks = {network.name: network for network in cluster.networks}
    for network in (networks[nic.network] for nic in node.nics):
        if network.existing or network.netboot is not Netboot.BUILTIN or host.declares.has_ports:
            continue
        place, ends = host.network_place, allocations.ends
        cidr = allocations.cidrs.get(network.name)
        if cidr:
            return str(of_host(cluster, network, IPv4Network(cidr), ends, place) or "")
        if network.cidr6 is not None:
            return str(network.cidr6[1 + number_of(cluster, network, ends, place)])
    return ""


def against_boot_urls(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """User data that names a boot server which its node does not reach."""
    for node in cluster.nodes:
        named = BOOT_URL in node.cloud_init.user_data and node.kind is not NodeKind.BAREMETAL
        if named and not boot_url(cluster, node, allocations, 1):
            yield (
                f"node {node.name}: its user data names {BOOT_URL}, and it is not known where it "
                "reaches nospoon's boot server. Plug it into a network that nospoon makes with "
                "`netboot: builtin`, on this machine, or write a URL."
            )


def digests_of(seeds: Mapping[str, Seed]) -> dict[str, str]:
    """By the names of their nodes."""
    return {name: each.digest for name, each in seeds.items()}


def _seed(
    cluster: Cluster,
    uuid: UUID,
    node: Node,
    networks: dict[str, Network],
    allocations: Allocations,
    user_data: str,
) -> Seed:
    config = {
        "version": 2,
        "ethernets": {
            f"eth{index}": _ethernet(cluster, node, uuid, index, networks, allocations)
            for index in range(len(node.nics))
        },
    }
    keys = node.cloud_init.ssh_authorized_keys
    vendor = [node.cloud_init.vendor_data] if node.cloud_init.vendor_data else []
    said = {"local-hostname": node.name, "public-keys": keys}
    network = json.dumps(config)
    # cloud-init runs again what it runs once an instance when the instance's id is another one
    content = json.dumps([said, user_data, network, *vendor])
    short = hashlib.sha256(content.encode()).hexdigest()[:12]
    return Seed(f"{uuid}-{short}", node.name, keys, user_data, network, *vendor)


def _ethernet(
    cluster: Cluster,
    node: Node,
    uuid: UUID,
    index: int,
    networks: dict[str, Network],
    allocations: Allocations,
) -> dict[str, object]:
    """Its name is the kernel's first: so it is also where images have no udev, as in containers."""
    nic = node.nics[index]
    network = networks[nic.network]
    given: dict[str, object] = {
        "match": {"macaddress": nic.mac or identity.mac_address(uuid, index)},
        "set-name": f"eth{index}",
        "mtu": network.mtu,
    }
    if nic.address not in ("", DHCP):
        given["addresses"] = [nic.address]
        gateway = _gateway(cluster, network, node, allocations)
        own = ip_interface(nic.address)
        if gateway and own.version == 4 and index == 0:
            given["routes"] = [{"to": ANYWHERE, "via": gateway}]
            given["nameservers"] = {"addresses": [gateway]}
    elif _may_ask(nic, network):
        six_alone = network.cidr6 is not None and network.cidr is None
        given["dhcp6" if six_alone else "dhcp4"] = True
    else:
        given["dhcp4"] = False
    return given


def _may_ask(nic: Nic, network: Network) -> bool:
    """Whether there may be DHCP: on a network that we make, only where we serve it."""
    return nic.address == DHCP or network.existing or network.netboot is Netboot.BUILTIN


def _gateway(cluster: Cluster, network: Network, node: Node, allocations: Allocations) -> str:
    """The host's address on a network that leads out, "" on others."""
    cidr = allocations.cidrs.get(network.name)
    if not network.nat or not cidr:
        return ""
    where = allocations.hosts.get(node.name, "")
    host = next((each.network_place for each in cluster.hosts if each.name == where), where)
    return str(of_host(cluster, network, IPv4Network(cidr), allocations.ends, host) or "")


def against_addresses(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """Static addresses that another node has, or a host on which the network is made."""
    if all(nic.address in ("", DHCP) for node in cluster.nodes for nic in node.nics):
        return
    holders: dict[tuple[str, str], str] = {}
    for network in cluster.networks:
        if network.netboot is Netboot.BUILTIN and not network.existing:
            for node, index, *addresses in reserved(cluster, network, allocations):
                if node.nics[index].address in ("", DHCP):
                    named = f"node {node.name}"
                    holders |= {(network.name, each): named for each in addresses if each}
        for host, address in _of_hosts(cluster, network, allocations).items():
            holders[network.name, address] = f"host {host}"
    for node in cluster.nodes:
        for nic in node.nics:
            if nic.address in ("", DHCP):
                continue
            address, own = str(ip_interface(nic.address).ip), f"node {node.name}"
            holder = holders.setdefault((nic.network, address), own)
            if holder != own:
                yield (
                    f"{own}: address {address} on network {nic.network} is that of {holder}. "
                    "Give it another `address`."
                )


def stray_addresses(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """Static addresses that hosts do not reach, nor nodes with addresses of the network."""
    networks = {network.name: network for network in cluster.networks}
    for node in cluster.nodes:
        for nic in node.nics:
            network = networks[nic.network]
            cidr = allocations.cidrs.get(network.name)
            if nic.address in ("", DHCP) or network.existing or not network.addressed or not cidr:
                continue
            own = ip_interface(nic.address)
            if own.version == 4 and own.ip not in IPv4Network(cidr):
                yield (
                    f"node {node.name}: its address {nic.address} is not in {cidr}, which is "
                    f"network {network.name}: its host does not reach it"
                )


def _of_hosts(cluster: Cluster, network: Network, allocations: Allocations) -> dict[str, str]:
    """Hosts of its nodes -> their IPv4 addresses on a network that is made for the cluster."""
    cidr = allocations.cidrs.get(network.name)
    if network.existing or not network.addressed or not cidr:
        return {}
    used = {
        allocations.hosts.get(node.name, "")
        for node in cluster.nodes
        if any(nic.network == network.name for nic in node.nics)
    }
    places = {each.network_place for each in cluster.hosts if each.name in used}
    found = {
        place: of_host(cluster, network, IPv4Network(cidr), allocations.ends, place)
        for place in sorted(places)
    }
    return {place: str(address) for place, address in found.items() if address is not None}
