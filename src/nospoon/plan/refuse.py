"""What the hosts cannot give: every reason at once, before anything is touched."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from itertools import chain
from uuid import UUID

from nospoon.model.cluster import (
    Arch,
    Cluster,
    Firmware,
    Host,
    Netboot,
    Node,
)
from nospoon.model.connections import WhenOff
from nospoon.model.host_facts import QCOW2, HostFacts, Route
from nospoon.model.ironic import Standing, Way
from nospoon.model.machine import PowerPolicy
from nospoon.model.node_kind import NodeKind
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.closed import remedy
from nospoon.plan.key_pairs import against_key_pairs
from nospoon.plan.placement.hosts import against_network, against_node
from nospoon.plan.quotas import against_quotas, taken_addresses, unknown_quotas
from nospoon.plan.seeds import stray_addresses
from nospoon.plan.server_groups import against_groups
from nospoon.plan.trunks import Trunks
from nospoon.plan.words import listed

NOTHING_DECIDED = Allocations()
USUAL_CACHE = "writeback"


def reasons_against(
    cluster: Cluster,
    cluster_id: UUID,
    allocations: Allocations,
    facts: Mapping[str, HostFacts],
    *,
    before: Allocations = NOTHING_DECIDED,
) -> Iterator[str]:
    """Why hosts cannot provide the cluster; nothing when they can. `before`: what was decided when
    it was last brought up.
    """
    names = before.cidrs.keys() - {network.name for network in cluster.networks}
    leaving = {identity.bridge_name(cluster_id, name): name for name in names}
    trunks, hosts = Trunks.of(cluster), {host.name: host for host in cluster.hosts}
    for node in cluster.nodes:
        host = allocations.hosts.get(node.name, "")
        if host not in facts:
            continue
        is_there = before.hosts.get(node.name) == host
        why_not = (
            against_node(node, hosts[host], facts[host], is_there=is_there),
            trunks.against(node, hosts[host], facts[host]),
        )
        for why in chain(*why_not):
            yield f"node {node.name} on host {host}: {why}"
    used = set(allocations.hosts.values())
    used |= {host.network_place for host in cluster.hosts if host.name in used}
    for name, fact in facts.items():
        if name in used:
            named = replace(fact, routes=tuple(_named(route, leaving) for route in fact.routes))
            yield from _against_networks(cluster, cluster_id, allocations, name, named, trunks)
    yield from _against_names(cluster)
    yield from _against_health(cluster, allocations)
    yield from against_groups(cluster, allocations, facts)
    yield from against_key_pairs(cluster, allocations, facts)
    yield from against_quotas(cluster, cluster_id, allocations, facts, before)
    yield from _against_overlays(cluster, used)
    yield from _against_two_bridges(cluster, used)
    yield from _against_sharing(cluster, cluster_id, allocations, facts)


KEPT_BY_IRONIC = frozenset({"detail", "maintenance", "management", "states", "validate"})
"""Names that its API has below /v1/nodes (ironic, `get_controller_reserved_names`), as far as nodes
of ours can have them."""
_UUID = re.compile(r"[0-9a-f]{32}")


def _against_health(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """Services that are to be looked at where neither the daemon nor a host is on their network."""
    hosts, nodes = {each.name: each for each in cluster.hosts}, {e.name: e for e in cluster.nodes}
    for service in cluster.services if any(e.declares.has_ports for e in cluster.hosts) else ():
        for name in service.nodes if service.health is not None else ():
            host = hosts.get(allocations.hosts.get(name, ""))
            is_led_to = any(nic.floating_ip for nic in nodes[name].nics)
            if host is not None and host.declares.has_ports and not is_led_to:
                yield (
                    f"service {service.name}: node {name} is in cloud {host.name}, where the "
                    "daemon reaches floating IPs alone: it cannot see whether the service is "
                    "healthy. Give a NIC of the node a `floating_ip`, or leave `health` out."
                )


def _against_names(cluster: Cluster) -> Iterator[str]:
    """Ironic refuses some with 400, after machines were made (ironic, `is_valid_node_name`)."""
    if cluster.ironic is None:
        return
    for node in cluster.baremetal:
        if node.enrolment.way is not Way.ENROL:
            continue
        if node.name in KEPT_BY_IRONIC:
            yield f"node {node.name}: Ironic keeps this name for itself: give it another"
        elif _UUID.fullmatch(node.name.replace("-", "")):
            yield f"node {node.name}: a node in Ironic must not have a UUID as its name"


def _named(route: Route, leaving: Mapping[str, str]) -> Route:
    """A route over a network of the cluster's own that leaves it tells so."""
    name = leaving.get(route.device)
    if name is None:
        return route
    return replace(
        route, device=f"{route.device} (network {name}, to be removed by an `up` before this)"
    )


def against_twins(hosts: Iterable[Host]) -> Iterator[str]:
    """Why hosts cannot be in one cluster: what it has on one would be seen, and taken away, on the
    other.
    """
    first: dict[tuple[str, ...], str] = {}
    for host in hosts:
        other = first.setdefault(host.server, host.name)
        if other != host.name:
            shared = host.declares.shares_networks
            same = "machine with containers" if shared else f"libvirtd, by `libvirt: {host.where}`"
            yield f"hosts {other} and {host.name} are one {same}. Leave one of them out."


def _against_sharing(
    cluster: Cluster,
    cluster_id: UUID,
    allocations: Allocations,
    facts: Mapping[str, HostFacts],
) -> Iterator[str]:
    """Existing volumes that two machines would write to."""
    taken: dict[tuple[str, str], str] = {}
    for node in cluster.nodes:
        host = allocations.hosts.get(node.name, "")
        known = facts[host].volumes if host in facts else {}
        volumes = [disk.volume for disk in node.disks if disk.volume]
        uuid = identity.uuid_of(cluster_id, node) if volumes else None
        for name in volumes:
            first = taken.setdefault((host, name), node.name)
            if first != node.name:
                yield (
                    f"nodes {first} and {node.name} on host {host}: both want volume {name}. Give "
                    "each its own, node by node under `overrides`."
                )
            users = known[name].users if name in known else ()
            for user in (called for id_, called in users if id_ != uuid):
                yield (
                    f"node {node.name} on host {host}: volume {name} is a disk of domain {user}. "
                    "Detach it there first."
                )


def _against_overlays(cluster: Cluster, used: Container[str]) -> Iterator[str]:
    """A tunnel has two ends, and each an address of its own."""
    real = (host for host in cluster.hosts if host.declares.is_real)
    ends = [h for h in real if h.name in used and h.name == h.network_place]
    overlays = [network.name for network in cluster.networks if network.overlay is not None]
    if not overlays or len(ends) < 2:
        return
    for host in ends:
        others = [h.name for h in ends if h.address == host.address and h is not host]
        if not host.declares.has_bridges:
            yield f"network {overlays[0]}: host {host.name} may make no tunnel. Use qemu:///system."
        elif not host.address:
            yield f"network {overlays[0]}: host {host.name} has no `address` for others."
        elif others and host.name < others[0]:
            yield (
                f"network {overlays[0]}: hosts {host.name} and {others[0]} have the address "
                f"{host.address}. A tunnel needs two machines."
            )


def _against_two_bridges(cluster: Cluster, used: Container[str]) -> Iterator[str]:
    """Two libvirtds of one machine would both make the bridge of a network, with its address."""
    first: dict[str, Host] = {}
    for host in cluster.hosts:
        if not host.declares.has_bridges or host.name not in used:
            continue
        other = first.setdefault(host.machine, host)
        if other.connection.daemon == host.connection.daemon:
            continue
        yield from (
            f"network {network.name}: hosts {other.name} and {host.name} are libvirtds of one "
            "machine, where nospoon can make its bridge only once. Make a bridge yourself and name "
            "it by `bridge`, or leave one of the hosts out."
            for network in cluster.networks
            if not network.existing
        )


def _against_networks(
    cluster: Cluster,
    cluster_id: UUID,
    allocations: Allocations,
    host: str,
    facts: HostFacts,
    trunks: Trunks,
) -> Iterator[str]:
    hosts = {each.name: each for each in cluster.hosts}
    where = hosts[host]
    if where.network_place != host:
        return  # reported where they are made
    wanted = {
        name
        for node in cluster.nodes
        if (place := hosts.get(allocations.hosts.get(node.name, ""))) is not None
        if place.network_place == host
        for name in trunks.plugged(node, place)
    }
    for network in cluster.networks:
        if network.name in wanted:
            yield from (
                f"network {network.name}: {w}"
                for w in against_network(network, where, facts, trunks.tagged)
            )
        if network.existing or not where.declares.makes_networks:
            continue
        own = identity.bridge_name(cluster_id, network.name)
        for cidr in (allocations.cidrs.get(network.name), network.cidr6):
            if cidr is not None:
                yield from _overlaps(network.name, ip_network(cidr), host, own, facts.routes)


WANTED_MEMORY = {Firmware.UEFI: 256 << 20, Firmware.UEFI_SECURE: 384 << 20}
"""Bytes that firmware, its network boot and a small Linux need together (measured with OVMF)."""


def cautions(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """What may be had, and will probably not do what its user hopes for."""
    for node in cluster.nodes:
        has_firmware = node.kind is not NodeKind.CONTAINER
        least = WANTED_MEMORY.get(node.firmware, 0) if has_firmware else 0
        host = facts.get(allocations.hosts.get(node.name, ""))
        if host is not None and host.real and node.memory < least:
            yield (
                f"node {node.name}: {node.memory >> 20} MiB of memory is too little for firmware "
                f"{node.firmware} to boot Linux from the network: give it {least >> 20} MiB"
            )
        if host is not None and host.real:
            yield from _boots_not(node, cluster)
    yield from stray_addresses(cluster, allocations)
    yield from _closed(cluster, allocations, facts)
    yield from _without_agents(cluster, allocations, facts)
    yield from _unrestored(cluster, allocations)
    yield from _shelved(cluster, allocations)
    yield from _containers_of_clouds(cluster, allocations, facts)
    yield from _unordered(cluster, allocations)
    yield from _uncached(cluster, allocations)
    yield from _by_qcow2(cluster, allocations, facts)
    yield from unknown_quotas(allocations, facts)
    yield from taken_addresses(cluster, allocations, facts)
    yield from _unused(cluster)
    short = [n.name for n in cluster.nodes if 0 < len(n.credentials.password) < REDFISH_SHORTEST]
    if short:
        more = f" and {len(short) - 1} more" if len(short) > 1 else ""
        yield (
            f"node {short[0]}{more}: the password has fewer than {REDFISH_SHORTEST} characters; "
            "Redfish clients can only set longer ones"
        )


def _shelved(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """What a power-off does where a cloud is to shelve what is off."""
    for host in cluster.hosts:
        if host.connection.off is not WhenOff.SHELVE:
            continue
        here = [each for each in cluster.nodes if allocations.hosts.get(each.name) == host.name]
        put_away = [
            each.name
            for each in here
            if each.kind is NodeKind.VM and host.connection.shelves(len(each.disks))
        ]
        stopped = [each.name for each in here if each.name not in put_away]
        if put_away:
            yield (
                f"host {host.name}: a power-off shelves {listed(put_away)}: roots are images "
                "meanwhile, and a power-on takes as long as the cloud needs to copy one"
            )
        if stopped:
            yield (
                f"host {host.name}: a power-off stops {listed(stopped)}, because a cloud keeps "
                "roots and volumes of what it shelves, and no other disks"
            )


def _containers_of_clouds(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """What Nova alone knows, and how user data reaches them."""
    for host in cluster.hosts:
        here = [
            each
            for each in cluster.nodes
            if each.kind is NodeKind.CONTAINER and allocations.hosts.get(each.name) == host.name
        ]
        if not here or not host.declares.has_ports:
            continue
        known = facts.get(host.name)
        if known is not None and not known.away and known.computes is None:
            yield (
                f"host {host.name}: Nova shows to administrators alone whether it has a compute "
                f"host for containers ({listed([each.name for each in here])})"
            )
        inits = {each.name: each.cloud_init for each in here}
        if given := [name for name, each in inits.items() if each.user_data or each.vendor_data]:
            yield (
                f"host {host.name}: {listed(given)}: user data comes from the cloud's metadata "
                "service, for a container has no config drive"
            )


def _unordered(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """Services that begin before those that they come after."""
    early = {each.name for each in cluster.hosts if each.declares.runs_made}
    late = [
        each.name
        for each in cluster.services
        if each.after and any(allocations.hosts.get(node) in early for node in each.nodes)
    ]
    if late:
        yield (
            f"a cloud starts servers when it makes them: nodes of {listed(late)} there do not wait "
            "for services that these come `after`"
        )


def _uncached(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """Nodes whose disks have another cache than their file gives them."""
    for host in cluster.hosts:
        if host.declares.sets_caches:
            continue
        nodes = [
            each.name
            for each in cluster.nodes
            if allocations.hosts.get(each.name) == host.name and each.adopted is None
            if any(disk.cache != USUAL_CACHE for disk in each.disks)
        ]
        if nodes:
            yield (
                f"host {host.name}: `cache` of disks, or `throwaway`, is not used for "
                f"{listed(nodes)}: its operator says how compute hosts cache disks "
                "(`disk_cachemodes`)"
            )


def _by_qcow2(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Which nodes a cloud boots otherwise than by an ISO."""
    boot = {name for name, each in facts.items() if each.boot_image_format == QCOW2}
    for host in sorted(boot):
        nodes = [
            each.name for each in cluster.baremetal if allocations.hosts.get(each.name) == host
        ]
        if nodes:
            yield (
                f"host {host}: Glance takes no `iso` there, so {listed(nodes)} boot by images in "
                "the format `qcow2`, which Nova has as CDs"
            )


def _closed(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Machines would be made, and not start."""
    far = {each.name for each in cluster.hosts if each.ssh}
    for host in sorted({*allocations.hosts.values()} & facts.keys()):
        if directory := facts[host].closed:
            yield (
                f"host {host}: QEMU runs there as another user, who may not enter {directory}, so "
                "that no machine starts from its disks: " + remedy(directory, here=host not in far)
            )


REDFISH_SHORTEST = 8
"""`MinPasswordLength` of our AccountService."""


BY_AGENT = frozenset({Standing.INSPECTED, Standing.ACTIVE})
"""States to which an agent brings a node. Whether it cleans before, Ironic's settings decide."""


def _without_agents(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Machines that boot nothing run no agent: Ironic would wait for it until its timeout."""
    hosts = {each.name: each for each in cluster.hosts}
    found = []
    for node in cluster.baremetal if cluster.ironic is not None else ():
        host = allocations.hosts.get(node.name, "")
        simulated = host in facts and not facts[host].real
        silent = simulated and hosts[host].connection.agents is None
        if silent and node.enrolment.state in BY_AGENT:
            found.append((host, node))
    if found:
        host, node = found[0]
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield (
            f"node {node.name}{more}: Ironic needs an agent to bring it to "
            f"{node.enrolment.state}, and simulated host {host} runs no agents: add `agents` to it"
        )


def _unrestored(cluster: Cluster, allocations: Allocations) -> Iterator[str]:
    """A host that runs no commands for nospoon cannot be asked whether it has rebooted."""
    deaf = {
        each.name
        for each in cluster.hosts
        if not each.runs_commands and not each.declares.has_ports
    }
    wanted = {PowerPolicy.PREVIOUS, PowerPolicy.ALWAYS_ON}
    there = {
        allocations.hosts.get(node.name, "") for node in cluster.nodes if node.restore in wanted
    }
    yield from (
        f"host {name}: nospoon cannot ask it whether it has rebooted, so `restore` switches none "
        "of its machines on: give it `ssh`"
        for name in sorted(deaf & there)
    )


def _unused(cluster: Cluster) -> Iterator[str]:
    """What the file defines, and no node of it names."""
    used = {
        "network": {nic.network for node in cluster.nodes for nic in node.nics},
        "boot profile": {node.boot for node in cluster.nodes},
        "flavor": {node.flavor for node in cluster.nodes},
    }
    defined = {
        "network": [each.name for each in cluster.networks],
        "boot profile": [each.name for each in cluster.profiles],
        "flavor": cluster.flavors,
    }
    for what, names in defined.items() if cluster.nodes else ():
        yield from (f"no node uses {what} {name}" for name in names if name not in used[what])


def _boots_not(node: Node, cluster: Cluster) -> Iterator[str]:
    """BIOS and signed loaders know IPv4 alone (RFC 5970 is UEFI's and ours)."""
    names = {nic.network for nic in node.nics}
    serving = [
        each for each in cluster.networks if each.name in names and each.netboot is Netboot.BUILTIN
    ]
    by_ipv4 = node.firmware is not Firmware.UEFI or node.arch is Arch.AARCH64
    if by_ipv4 and serving and all(each.cidr is None and each.cidr6 for each in serving):
        first = serving[0]
        yield (
            f"node {node.name}: firmware {node.firmware} of {node.arch} boots from the network by "
            f"IPv4 alone, and network {first.name} has only {first.cidr6}: give it an IPv4 `cidr`, "
            "too"
        )


def _overlaps(
    name: str, cidr: IPv4Network | IPv6Network, host: str, own: str, routes: tuple[Route, ...]
) -> Iterator[str]:
    for route in routes:
        if route.network.version != cidr.version or not route.network.prefixlen:
            continue
        if route.device != own and route.network.overlaps(cidr):
            yield (
                f"network {name}: {cidr} overlaps {route.shown} of host {host}: traffic would be "
                "lost. Choose another `cidr`, or leave it out."
            )


def against_pool(
    pool: IPv4Network, allocations: Allocations, routes: tuple[Route, ...]
) -> Iterator[str]:
    """Why BMCs may not have these addresses on a machine with these routes: it would answer to all
    of them itself. A part of a network of its own is fine, when its gateway is not in it.
    """
    advice, own = "traffic would be lost. Choose another `bmc.pool`.", {*allocations.cidrs.values()}
    for route in routes:
        if route.network.version != pool.version:
            continue
        ours = str(route.network) in own
        if route.network.prefixlen and route.network.subnet_of(pool) and not ours:
            yield (f"bmc.pool: {pool} holds {route.shown} of this machine: {advice}")
        elif route.gateway and IPv4Address(route.gateway) in pool:
            yield (
                f"bmc.pool: {pool} holds {route.gateway}, the gateway of this machine's route "
                f"{route.network} dev {route.device}: {advice}"
            )
