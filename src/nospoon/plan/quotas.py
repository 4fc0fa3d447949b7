"""What the nodes of a cluster take of the quotas of a cloud's project, beside what others use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.errors import NoCapacity
from nospoon.model.cluster import Cluster, Host, Network, Node
from nospoon.model.host_facts import HostFacts, QuotaName, SizeOffered
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.key_pairs import pairs_on
from nospoon.plan.placement.flavors import chosen, disk_space, root_space
from nospoon.plan.server_groups import Groups, groups_on
from nospoon.plan.trunks import Trunks

MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Taken:
    """What takes of quotas. `nodes`: made there, not of others; `sizes`: of their servers, and of a
    relay that is not there yet: one that is counts with what others use, for it is no node.
    `networks`: made there. `allocated`: floating IPs that cost nothing more. `groups`: of servers.
    """

    host: Host
    nodes: Sequence[Node]
    sizes: Sequence[SizeOffered]
    networks: Sequence[Network]
    trunks: Trunks
    allocated: frozenset[str] = frozenset()
    groups: Groups = field(default_factory=Groups)

    @property
    def key_pairs(self) -> int:
        return len(pairs_on(self.host, self.nodes))

    @property
    def ports(self) -> int:
        return self.trunks.ports(self.nodes) + (self.host.connection.relay is not None)

    @property
    def routers(self) -> int:
        return len(routers(self.networks))

    @property
    def floating_ips(self) -> int:
        relay = self.host.connection.relay
        wanted = [(relay.floating_ip, relay.floating_address)] if relay is not None else []
        nics = (nic for node in self.nodes for nic in node.nics)
        wanted += ((nic.floating_ip, nic.floating_address) for nic in nics)
        return sum(bool(network) and address not in self.allocated for network, address in wanted)

    @property
    def volumes(self) -> int:
        has_volumes = self.host.connection.has_volumes
        return sum(len(node.disks) for node in self.nodes) if has_volumes else 0

    @property
    def volume_space(self) -> int:
        if not self.host.connection.has_volumes:
            return 0
        return sum(disk_space(node) + root_space(node) for node in self.nodes)

    @property
    def volume_size(self) -> int:
        """Of the largest one, in whole GiB."""
        if not self.host.connection.has_volumes:
            return 0
        sizes = (disk.size for node in self.nodes for disk in node.disks)
        return -(-max(sizes, default=0) // GIB) * GIB


def routers(networks: Iterable[Network]) -> set[str]:
    """Each leads out of one network with `nat`, or of those that share it."""
    return {each.router or each.name for each in networks if each.nat}


@dataclass(frozen=True, slots=True)
class _Row:
    """How a quota is called, how much is taken of it, and in which unit it is shown."""

    called: str
    taken: Callable[[Taken], int]
    unit: int = 1


TAKEN: Mapping[QuotaName, _Row] = {
    QuotaName.SERVERS: _Row("servers", lambda taken: len(taken.sizes)),
    QuotaName.CPUS: _Row("CPUs", lambda taken: sum(each.cpus for each in taken.sizes)),
    QuotaName.MEMORY: _Row(
        "MiB of memory", lambda taken: sum(each.memory for each in taken.sizes), MIB
    ),
    QuotaName.PORTS: _Row("ports", lambda taken: taken.ports),
    QuotaName.TRUNKS: _Row("trunks", lambda taken: taken.trunks.count(taken.nodes)),
    QuotaName.NETWORKS: _Row("networks", lambda taken: len(taken.networks)),
    QuotaName.SUBNETS: _Row("subnets", lambda taken: len(taken.networks)),
    QuotaName.ROUTERS: _Row("routers", lambda taken: taken.routers),
    QuotaName.FLOATING_IPS: _Row("floating IPs", lambda taken: taken.floating_ips),
    QuotaName.SERVER_GROUPS: _Row("server groups", lambda taken: len(taken.groups.shapes)),
    QuotaName.GROUP_MEMBERS: _Row("servers of one group", lambda taken: taken.groups.largest),
    QuotaName.KEY_PAIRS: _Row("key pairs of the user", lambda taken: taken.key_pairs),
    QuotaName.VOLUMES: _Row("volumes", lambda taken: taken.volumes),
    QuotaName.VOLUME_SPACE: _Row("GiB of volumes", lambda taken: taken.volume_space, GIB),
    QuotaName.VOLUMES_OF_TYPE: _Row("volumes of their type", lambda taken: taken.volumes),
    QuotaName.SPACE_OF_TYPE: _Row(
        "GiB of volumes of their type", lambda taken: taken.volume_space, GIB
    ),
    QuotaName.VOLUME_SIZE: _Row("GiB for one volume", lambda taken: taken.volume_size, GIB),
}
"""Flavors may have more CPUs and memory than nodes ask for."""


def taken_on(
    cluster: Cluster,
    host: Host,
    nodes: Sequence[Node],
    facts: HostFacts,
    *,
    relay_is_there: bool = False,
) -> Taken:
    """What a cluster takes on a host of a cloud that has these nodes."""
    made = [node for node in nodes if node.adopted is None]
    sizes = [found for node in made if (found := chosen(node, host, facts)) is not None]
    relay = host.connection.relay
    if relay is not None and not relay_is_there and facts.flavors is not None:
        sizes += filter(None, [facts.flavors.get(relay.flavor)])
    trunks, here = Trunks.of(cluster), {node.name for node in nodes}
    elsewhere = (node for node in cluster.nodes if node.name not in here)
    networks = trunks.made(host, nodes, elsewhere)
    groups = groups_on(host, made)
    return Taken(host, made, sizes, networks, trunks, facts.quota.allocated, groups)


def against_quotas(
    cluster: Cluster,
    cluster_id: UUID,
    allocations: Allocations,
    facts: Mapping[str, HostFacts],
    before: Allocations,
) -> Iterator[str]:
    """Which quotas do not suffice, with what is needed, used and allowed."""
    hosts, had = {each.name: each for each in cluster.hosts}, set(before.hosts.values())
    limited = {name: fact for name, fact in facts.items() if fact.quota.shares}
    for name, fact in limited.items():
        nodes = [node for node in cluster.nodes if allocations.hosts.get(node.name) == name]
        if not nodes:
            continue
        taken = taken_on(cluster, hosts[name], nodes, fact, relay_is_there=name in had)
        relay = hosts[name].connection.relay
        them = "the nodes there" if relay is None else "the nodes there, with their relay,"
        for quota, row in TAKEN.items():
            share, wanted = fact.quota.shares.get(quota), row.taken(taken)
            if share is None or share.used_beside(cluster_id) + wanted <= share.most:
                continue
            used, most = share.used_beside(cluster_id) // row.unit, share.most // row.unit
            why = (
                f"host {name}: the quota of its project leaves {max(0, most - used)} {row.called} "
                f"({most}, of which others use {used}), and {them} take {wanted // row.unit}. See "
                "`openstack quota show`, or take fewer."
            )
            yield why if wanted > share.most else NoCapacity(why)


def unknown_quotas(allocations: Allocations, facts: Mapping[str, HostFacts]) -> Iterator[str]:
    """Of clouds that have nodes and do not show them to the login."""
    for name in sorted({*allocations.hosts.values()} & facts.keys()):
        hidden = [TAKEN[each].called for each in QuotaName if each in facts[name].quota.unknown]
        if hidden:
            yield (
                f"host {name}: its cloud does not show this login the quotas of "
                f"{', '.join(hidden)}: whether they suffice is not known"
            )


def taken_addresses(
    cluster: Cluster, allocations: Allocations, facts: Mapping[str, HostFacts]
) -> Iterator[str]:
    """Of networks of a cloud that exist: Neutron gives an address to each port there, by which its
    NIC reaches what is on it. On those that nospoon makes without a router, ports have none.
    """
    hosts = {each.name: each for each in cluster.hosts}
    existing = {each.name: each for each in cluster.networks if each.existing}
    plugged: Counter[tuple[str, str]] = Counter()
    for node in cluster.nodes:
        host = hosts.get(allocations.hosts.get(node.name, ""))
        if host is None or node.adopted is not None or not host.declares.has_ports:
            continue
        for nic in node.nics:
            if nic.network in existing:
                plugged[host.name, _name_there(host, existing[nic.network])] += 1
    for (name, network), taken in sorted(plugged.items()):
        given = facts[name].addresses.get(network) if name in facts else None
        if given is not None:
            yield (
                f"host {name}: network {network} of its cloud has no ports without an address: "
                f"NICs of nodes take {taken} of the {given} that its subnets give"
            )


def _name_there(host: Host, network: Network) -> str:
    return dict(host.physnets).get(network.physnet, "") if network.physnet else network.bridge
