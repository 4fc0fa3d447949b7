"""Where the relay of a cloud is, by which its machines reach this daemon (docs/adr/0030)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address, ip_network
from uuid import UUID, uuid5

from nospoon.model.cluster import Cluster, Host, Netboot, Network
from nospoon.model.connections import RELAY_PORT, RelaySpec
from nospoon.model.host_facts import HostFacts
from nospoon.plan.identity import mac_address


def mac_of(cluster: UUID, host: str) -> str:
    """Of the port of a host's relay."""
    return mac_address(uuid5(cluster, f"relay/{host}"), 0)


def address_of(spec: RelaySpec, cluster: Cluster, cidr: str, router: str = "") -> str:
    """As the file has it; on a network that nospoon makes, the last one that is not taken there, ""
    for none: Neutron gives the first ones. `cidr`: of its network, "" where that is not known;
    `router`: its address there.
    """
    if spec.address or not cidr:
        return spec.address
    network = ip_network(cidr)
    pool = cluster.addressing.pool
    taken = {v for each in cluster.networks if each.name == spec.network for v in each.virtual_ips}
    taken.add(router)
    number = int(network[-1]) - 1
    while number > int(network[0]):
        address = network[number - int(network[0])]
        if pool is not None and address in pool:
            number = int(pool[0]) - 1
        elif str(address) in taken:
            number -= 1
        else:
            return str(address)
    return ""


def relays_left_out(
    cluster: Cluster, cidrs: Mapping[str, str], router: Callable[[Network, Host], str]
) -> Iterator[str]:
    """Why relays have no address on networks that nospoon makes. `router`: its address there."""
    networks = {each.name: each for each in cluster.networks if not each.existing}
    for host in cluster.hosts:
        spec = host.connection.relay
        if spec is None or spec.network not in networks or spec.network not in cidrs:
            continue
        cidr, network = cidrs[spec.network], networks[spec.network]
        if not address_of(spec, cluster, cidr, router(network, host)):
            yield (
                f"network {network.name}: {cidr} has no address left for the relay of host "
                f"{host.name}. Take a larger `cidr`, or a smaller `bmc.pool`."
            )


def url_of(address: str) -> str:
    """Where boot images ask."""
    shown = f"[{address}]" if ":" in address else address
    return f"http://{shown}:{RELAY_PORT}"


def serves(network: Network, host: Host) -> bool:
    """Whether the relay of a cloud serves DHCP and TFTP on a network there."""
    spec = host.connection.relay
    builtin = network.netboot is Netboot.BUILTIN and not network.existing
    return builtin and spec is not None and spec.network == network.name


def against_relay(network: Network, host: Host, facts: HostFacts) -> Iterator[str]:
    """Why a host's relay cannot be on its network, or serve it."""
    spec = host.connection.relay
    if network.netboot is Netboot.BUILTIN and not serves(network, host):
        yield (
            f"host {host.name} is a cloud, where a relay on the network serves DHCP and TFTP. "
            f"Write `relay: {{network: {network.name}, ...}}` for the host, or leave `netboot` out."
        )
    if spec is None or spec.network != network.name:
        return
    if serves(network, host) and network.anti_spoofing:
        yield (
            f"host {host.name}: with `anti_spoofing` the cloud drops the answers of its relay's "
            "DHCP and TFTP. Leave out `anti_spoofing`, or `netboot`."
        )
    if serves(network, host) and not network.nat:
        yield (
            f"host {host.name}: its relay is on it, which the daemon reaches by a router, and "
            "which has its packages by that. Write `nat: true`."
        )
    elif not network.existing and not network.nat:
        yield (
            f"host {host.name}: its relay is on it, and nodes get no address there. Write "
            "`nat: true`, or take a network of the cloud (`physnet`) with DHCP."
        )
    if network.existing and not spec.address:
        yield (
            f"host {host.name}: its relay is on it, and nospoon does not know which addresses are "
            "free there. Give the relay an `address`."
        )
    if network.cidr is not None and spec.address and ip_address(spec.address) not in network.cidr:
        yield f"host {host.name}: the `address` of its relay, {spec.address}, is not in its `cidr`."
    if facts.flavors is not None and spec.flavor not in facts.flavors:
        yield (
            f"host {host.name} has no flavor {spec.flavor}, which its relay is to have. "
            "See `openstack flavor list`."
        )
