"""What all parts of a resolution are made from: the file, what was decided, what is around."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.cluster import Cluster, Host, Network, Node
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Key, Kind
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.server_groups import Groups, groups_on
from nospoon.plan.trunks import Trunks


@dataclass(frozen=True, slots=True)
class Context:
    """`id`: of the cluster; `hosts` and `networks` by name; `pool`: the name of each pool that is
    made; `used_hosts`: where nodes are; `network_places`: where their networks are made.
    """

    cluster: Cluster
    id: UUID
    allocations: Allocations
    around: Surroundings
    hosts: Mapping[str, Host]
    networks: Mapping[str, Network]
    trunks: Trunks
    pool: str
    used_hosts: Sequence[str]
    network_places: Sequence[str]
    _groups: dict[str, Groups] = field(default_factory=dict)

    @classmethod
    def of(
        cls, cluster: Cluster, cluster_id: UUID, allocations: Allocations, around: Surroundings
    ) -> Context:
        hosts = {host.name: host for host in cluster.hosts}
        used = set(allocations.hosts.values())
        used_hosts = [name for name in hosts if name in used]
        switching = {hosts[name].network_place for name in used_hosts}
        return cls(
            cluster,
            cluster_id,
            allocations,
            around,
            hosts=hosts,
            networks={network.name: network for network in cluster.networks},
            trunks=Trunks.of(cluster),
            pool=identity.pool_name(cluster_id, cluster.name),
            used_hosts=used_hosts,
            network_places=[name for name in hosts if name in switching],
        )

    def host_of(self, node: Node) -> Host:
        return self.hosts[self.allocations.hosts[node.name]]

    def nodes_on(self, host: str) -> Iterator[Node]:
        return (n for n in self.cluster.nodes if self.allocations.hosts[n.name] == host)

    def groups(self, host: Host) -> Groups:
        """Server groups of its nodes."""
        if host.name not in self._groups:
            self._groups[host.name] = groups_on(host, self.nodes_on(host.name))
        return self._groups[host.name]

    def facts(self, host: Host) -> HostFacts | None:
        return self.around.facts.get(host.name)

    def pool_key(self, host: str) -> Key:
        return Key(Kind.POOL, host, self.pool)
