"""What a cluster was given and no other may have, as the store compares it: where its BMCs and PDUs
answer, its networks, its MACs, and the names that are made of its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from uuid import UUID

from nospoon.model.cluster import Cluster, Host
from nospoon.model.resources.machines import Machine
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations, redfish_of

Place = tuple[str, int]
"""An address and a port."""
NamedNetwork = tuple[str, str]
"""A network of a cluster, and a CIDR of it."""


class Scope(StrEnum):
    """Within what a name is one cluster's."""

    BRIDGE = "bridge"
    MAC = "mac"
    POOL = "pool"
    VNI = "vni"


@dataclass(frozen=True, slots=True)
class Claims:
    """`udp`: of IPMI and of PDUs; `redfish`: clusters of one user may share these; `networks`: in
    IPv4, IPv6 or both; `pooled`: BMCs share the socket of all addresses, which no other's takes
    from them.
    """

    udp: frozenset[Place] = frozenset()
    redfish: frozenset[Place] = frozenset()
    networks: frozenset[NamedNetwork] = frozenset()
    names: frozenset[tuple[Scope, str]] = frozenset()
    pooled: bool = False

    def beside(self, known: Claims) -> Claims:
        """These, and what is known."""
        here = {(name, ":" in cidr) for name, cidr in self.networks}
        return replace(
            self,
            udp=self.udp | known.udp,
            redfish=self.redfish | known.redfish,
            networks=self.networks
            | {each for each in known.networks if (each[0], ":" in each[1]) not in here},
            names=self.names | known.names,
        )


def given_claims(given: Allocations) -> Claims:
    """What follows from decisions alone. Nodes with Redfish alone have no UDP port."""
    ends = given.endpoints.values()
    ipmi = {(each.address, each.ipmi_port) for each in ends if each.ipmi_port}
    pdus = {each.place for each in given.outlets.values()}
    return Claims(
        udp=frozenset(ipmi | pdus),
        redfish=frozenset(redfish_of(given)),
        networks=frozenset(given.cidrs.items()),
    )


def network_claims(cluster: Cluster, given: Allocations) -> frozenset[NamedNetwork]:
    """Of networks that are made: what IPv4 they were given, and what IPv6 the file gives them."""
    six = ((net.name, net.cidr6) for net in cluster.networks if not net.existing)
    return frozenset(given.cidrs.items()) | {(name, str(cidr)) for name, cidr in six if cidr}


def cluster_claims(
    cluster: Cluster, cluster_id: UUID, given: Allocations, machines: Iterable[Machine]
) -> Claims:
    """Of a cluster as its file says. `machines`: of all of its nodes, leaving ones included."""
    decided, made = given_claims(given), [net for net in cluster.networks if not net.existing]
    return Claims(
        udp=decided.udp,
        redfish=decided.redfish,
        networks=network_claims(cluster, given),
        names=frozenset(
            {
                (Scope.POOL, identity.pool_name(cluster_id, cluster.name)),
                *((Scope.BRIDGE, identity.bridge_name(cluster_id, net.name)) for net in made),
                *((Scope.VNI, each) for each in identifiers(cluster, cluster_id)),
                *macs_of(machines),
            }
        ),
        pooled=cluster.addressing.pool is not None,
    )


def found_claims(
    cluster_id: UUID, name: str, given: Allocations, machines: Iterable[Machine]
) -> Claims:
    """Of a cluster of which only its machines and decisions are known: which of its networks lead
    from host to host is not, so that each has its identifier.
    """
    known, decided = list(machines), given_claims(given)
    bridges = {nic.network for each in known if not each.adopted for nic in each.nics}
    return Claims(
        udp=decided.udp,
        redfish=decided.redfish,
        networks=decided.networks,
        names=frozenset(
            {
                (Scope.POOL, identity.pool_name(cluster_id, name)),
                *((Scope.BRIDGE, each) for each in bridges if identity.made_for_a_cluster(each)),
                *(
                    (Scope.VNI, str(identity.network_identifier(cluster_id, network)))
                    for network in given.cidrs
                ),
                *macs_of(known),
            }
        ),
    )


def hosts_of_nodes(hosts: Iterable[Host], given: Allocations) -> list[Host]:
    """Those that nodes are on, or come to."""
    names = {*given.hosts.values()}
    return [host for host in hosts if host.name in names]


def macs_of(machines: Iterable[Machine]) -> set[tuple[Scope, str]]:
    """Of all NICs; what a cloud has yet to give has none."""
    return {(Scope.MAC, nic.mac.lower()) for each in machines for nic in each.nics if nic.mac}


def identifiers(cluster: Cluster, cluster_id: UUID) -> dict[str, str]:
    """VXLAN identifier, as a name of its scope -> the network that has it."""
    return {
        str(identity.network_identifier(cluster_id, network.name)): network.name
        for network in cluster.networks
        if network.overlay is not None
    }
