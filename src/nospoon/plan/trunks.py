"""Trunks in a cloud: the networks of the file that a NIC gets tagged, each by its `vlan`.

On Open vSwitch a trunk is VLANs of one bridge. In a cloud each VLAN is a network of its own, and
the id is only what frames of it are tagged with on their way to the NIC.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nospoon.model.cluster import Cluster, Host, Network, Nic, Node, Switch
from nospoon.model.host_facts import HostFacts
from nospoon.plan.words import listed


@dataclass(frozen=True, slots=True)
class Trunks:
    """`networks`: of a cluster, by name; `vlans`: names of those with a VLAN; `tagged`: VLANs that
    reach NICs tagged.
    """

    networks: Mapping[str, Network]
    vlans: Mapping[int, Sequence[str]]
    tagged: frozenset[int]

    @classmethod
    def of(cls, cluster: Cluster) -> Trunks:
        vlans: defaultdict[int, list[str]] = defaultdict(list)
        for network in cluster.networks:
            if network.vlan is not None:
                vlans[network.vlan].append(network.name)
        nodes = (*cluster.nodes, *cluster.templates)
        tagged = frozenset(each for node in nodes for nic in node.nics for each in nic.trunk)
        return cls({each.name: each for each in cluster.networks}, dict(vlans), tagged)

    def ids(self, nic: Nic) -> tuple[int, ...]:
        """Of a NIC: not that of its own network, whose frames have no tag."""
        network = self.networks.get(nic.network)
        own = network.vlan if network is not None else None
        return tuple(each for each in nic.trunk if each != own)

    def carried(self, nic: Nic) -> list[tuple[int, str]]:
        """VLAN and name of each network that reaches a NIC tagged, as far as the file has them."""
        return [(vlan, name) for vlan in self.ids(nic) for name in self.vlans.get(vlan, ())[:1]]

    def ports(self, nodes: Sequence[Node]) -> int:
        """How many the NICs of nodes take in a cloud."""
        return sum(1 + len(self.carried(nic)) for node in nodes for nic in node.nics)

    def count(self, nodes: Sequence[Node]) -> int:
        """How many of the NICs of nodes have a trunk."""
        return sum(bool(self.carried(nic)) for node in nodes for nic in node.nics)

    def plugged(self, node: Node, host: Host) -> set[str]:
        """Names of the networks of which a node has ports on a host."""
        own = {nic.network for nic in node.nics}
        if not host.declares.has_ports:
            return own
        return own | {name for nic in node.nics for _, name in self.carried(nic)}

    def made(self, host: Host, here: Iterable[Node], elsewhere: Iterable[Node]) -> list[Network]:
        """The networks that a cloud gets for nodes there and its relay: none that are for nodes of
        other hosts alone, for a router costs something.
        """
        relay = host.connection.relay
        plugged = {name for node in here for name in self.plugged(node, host)}
        plugged |= {relay.network} if relay is not None else set()
        others = {nic.network for node in elsewhere for nic in node.nics} - plugged
        networks = self.networks.values()
        return [each for each in networks if not each.existing and each.name not in others]

    def against(self, node: Node, host: Host, facts: HostFacts | None) -> Iterator[str]:
        """Why NICs of a node get no tagged frames on a host."""
        for nic in {nic.network: nic for nic in node.nics if nic.trunk}.values():
            network = self.networks[nic.network]
            if host.declares.has_ports:
                reasons = self._against_cloud(node, host, facts)
            elif network.switch is not Switch.OVS:
                reasons = iter(("a trunk needs Open vSwitch. Write `switch: ovs`, or no `trunk`.",))
            else:
                continue
            yield from (f"network {nic.network}: {why}" for why in reasons)
            if host.declares.has_ports:
                return

    def _against_cloud(self, node: Node, host: Host, facts: HostFacts | None) -> Iterator[str]:
        if facts is not None and facts.trunks is False:
            yield (
                f"Neutron of host {host.name} makes no trunks: it has no extension `trunk`. Give "
                "the node a NIC for each network in place of `trunk`."
            )
        for vlan in sorted({each for nic in node.nics for each in self.ids(nic)}):
            match self.vlans.get(vlan, ()):
                case []:
                    yield (
                        f"in a cloud a VLAN of a trunk is a network of its own, and none of the "
                        f"file has VLAN {vlan}. Write `vlan: {vlan}` for the one that it is."
                    )
                case [_]:
                    continue
                case several:
                    yield f"VLAN {vlan} is that of several networks: {listed(several)}."
