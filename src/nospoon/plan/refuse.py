"""What the hosts cannot give: every reason at once, before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from uuid import UUID

from nospoon.model.cluster import Arch, Cluster, Firmware, Network, Node
from nospoon.plan import identity
from nospoon.plan.allocate import Allocations


@dataclass(frozen=True, slots=True)
class Route:
    """A network that a host reaches through a device, by a gateway or, with "", directly."""

    network: IPv4Network
    device: str
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a host when the plan is made. `memory` in bytes; 0: unknown.

    `links`: its network interfaces, None where nobody looked. `real`: guests really run there.
    """

    firmwares: frozenset[Firmware]
    archs: frozenset[Arch]
    tpm: bool
    managed_networks: bool
    cpus: int = 0
    memory: int = 0
    routes: tuple[Route, ...] = ()
    links: frozenset[str] | None = None
    real: bool = False


def reasons_against(
    cluster: Cluster,
    cluster_id: UUID,
    allocations: Allocations,
    facts: Mapping[str, HostFacts],
) -> Iterator[str]:
    """Why the cluster cannot be had as it is; nothing when it can."""
    for node in cluster.nodes:
        host = allocations.hosts[node.name]
        if host in facts:
            yield from _against_node(node, host, facts[host])
    for name, fact in facts.items():
        if name in allocations.hosts.values():
            yield from _against_networks(cluster, cluster_id, allocations, name, fact)


def _against_node(node: Node, host: str, facts: HostFacts) -> Iterator[str]:
    where = f"node {node.name} on host {host}"
    if node.firmware not in facts.firmwares:
        yield f"{where}: no firmware {node.firmware} there. {_choices(facts.firmwares)}"
    if node.arch not in facts.archs:
        yield f"{where}: no emulator for {node.arch} there. {_choices(facts.archs)}"
    if node.tpm and not facts.tpm:
        yield f"{where}: no TPM there. Install swtpm and swtpm-tools, or leave `tpm` out."
    if facts.memory and node.memory > facts.memory:
        have = facts.memory >> 20
        yield f"{where}: wants {node.memory >> 20} MiB of memory, the host has {have} MiB."


def _choices(values: frozenset[Firmware] | frozenset[Arch]) -> str:
    return f"It has {', '.join(sorted(values)) or 'none'}; see `nospoon doctor`."


def _against_networks(
    cluster: Cluster, cluster_id: UUID, allocations: Allocations, host: str, facts: HostFacts
) -> Iterator[str]:
    for network in cluster.networks:
        if network.existing:
            yield from _without_bridge(cluster, network, host, facts)
            if not facts.managed_networks:
                yield (
                    f"network {network.name}: host {host} is unprivileged (qemu:///session) and "
                    "may not plug into bridges. Use qemu:///system."
                )
            continue
        if not facts.managed_networks:
            if network.cidr is not None:
                yield (
                    f"network {network.name}: host {host} is unprivileged (qemu:///session) and "
                    "has user-mode networking only. Leave `cidr` out, or use qemu:///system."
                )
            continue
        cidr = allocations.cidrs.get(network.name)
        if cidr is not None:
            own = identity.bridge_name(cluster_id, network.name)
            yield from _overlaps(network.name, IPv4Network(cidr), host, own, facts.routes)


def _without_bridge(
    cluster: Cluster, network: Network, host: str, facts: HostFacts
) -> Iterator[str]:
    physnets = next(dict(each.physnets) for each in cluster.hosts if each.name == host)
    bridge = physnets.get(network.physnet, "") if network.physnet else network.bridge
    if facts.links is not None and bridge not in facts.links:
        yield (
            f"network {network.name}: host {host} has no bridge {bridge}. Make it there, or leave "
            "`bridge` and `physnet` out to have an isolated network made."
        )


WANTED_MEMORY = {Firmware.UEFI: 256 << 20, Firmware.UEFI_SECURE: 384 << 20}
"""Bytes that firmware, its network boot and a small Linux need together (measured with OVMF)."""


def cautions(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """What may be had, and will probably not do what its user hopes for."""
    for node in cluster.nodes:
        least = WANTED_MEMORY.get(node.firmware, 0)
        host = facts.get(allocations.hosts[node.name])
        if host is not None and host.real and node.memory < least:
            yield (
                f"node {node.name}: {node.memory >> 20} MiB of memory are too little for firmware "
                f"{node.firmware} to boot Linux from the network: give it {least >> 20} MiB"
            )


def _overlaps(
    name: str, cidr: IPv4Network, host: str, own: str, routes: tuple[Route, ...]
) -> Iterator[str]:
    for route in routes:
        if route.device != own and route.network.prefixlen and route.network.overlaps(cidr):
            yield (
                f"network {name}: {cidr} overlaps the route {route.network} dev {route.device} of "
                f"host {host}: traffic would be lost. Choose another `cidr`, or leave it out."
            )


def against_pool(
    pool: IPv4Network, allocations: Allocations, routes: tuple[Route, ...]
) -> Iterator[str]:
    """Why BMCs may not have these addresses on a machine with these routes: it would answer to all
    of them itself. A part of a network of its own is fine, when its gateway is not in it.
    """
    mend = "traffic would be lost. Choose another `bmc.pool`."
    for route in routes:
        ours = str(route.network) in allocations.cidrs.values()
        if route.network.prefixlen and route.network.subnet_of(pool) and not ours:
            yield (
                f"bmc.pool: {pool} holds the route {route.network} dev {route.device} of this "
                f"machine: {mend}"
            )
        elif route.gateway and IPv4Address(route.gateway) in pool:
            yield (
                f"bmc.pool: {pool} holds {route.gateway}, the gateway of this machine's route "
                f"{route.network} dev {route.device}: {mend}"
            )
