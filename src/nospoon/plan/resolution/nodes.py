"""All of a node: volumes, ports, its machine, its BMC, and the Ironic node that it becomes."""

from __future__ import annotations

from collections.abc import Iterator

from nospoon.model.cluster import Host, Netboot, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.key_pairs import THEIRS
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import boot_image
from nospoon.plan import identity, relays
from nospoon.plan.addresses import notes
from nospoon.plan.addresses.notes import Noted
from nospoon.plan.enrollment.enrol import in_ironic
from nospoon.plan.resolution.bmcs import Bmcs
from nospoon.plan.resolution.boot_images import has_image
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.disks import sizes, volumes
from nospoon.plan.resolution.images import has_root_image, root_key
from nospoon.plan.resolution.machines import Machines
from nospoon.plan.resolution.ports import Ports
from nospoon.plan.resolution.relay import Relays


class Nodes:
    def __init__(self, context: Context, ports: Ports, machines: Machines, relays: Relays) -> None:
        self._context, self._ports, self._machines = context, ports, machines
        self._relays = relays
        self._bmcs = Bmcs(context)
        self._needed: dict[tuple[str, tuple[str, ...]], list[Key]] = {}
        """What is made of networks, by host and networks: many nodes are on the same."""

    def of(self, node: Node, host: Host) -> Iterator[Resource]:
        context, declares = self._context, host.declares
        uuid = identity.uuid_of(context.id, node)
        macs = [nic.mac or identity.mac_address(uuid, i) for i, nic in enumerate(node.nics)]
        made = volumes(context, node, host)
        yield from made
        ports = list(self._ports.of(node, host, macs)) if declares.has_ports else []
        if declares.has_ports:
            yield from (*ports, *self._ports.floating_ips(node, host, macs))
        key = Key(Kind.MACHINE, host.name, node.name)
        needs = [each.key for each in (*made, *ports)]
        if has_image(node, host):
            needs.append(boot_image(host.name, node.firmware, self._relays.boot_url(host)))
        elif declares.has_boot_image and has_root_image(node):
            needs.append(root_key(context, node, host.name))
        if declares.has_pools and not made:
            needs.append(context.pool_key(host.name))
        needs += self._networks_of(node, host)
        machine = self._machines.of(node, host, uuid, macs)
        if machine.group:
            needs.append(Key(Kind.SERVER_GROUP, host.name, machine.group))
        if machine.key_pair and not machine.key_pair.startswith(THEIRS):
            needs.append(Key(Kind.KEY_PAIR, host.name, machine.key_pair))
        others = tuple(self._machines.alternatives(node, host, machine))
        note = self._note(node, host)
        yield Resource(key, machine, tuple(needs), node.name, note, others)
        bmc = self._bmcs.of(node, uuid, key, tuple(sizes(context, node, host, made)))
        yield bmc
        if context.cluster.ironic is not None and node.kind is NodeKind.BAREMETAL:
            boots = self._boots(node, host)
            yield from in_ironic(context.cluster, node, machine, bmc, boots=boots)

    def _networks_of(self, node: Node, host: Host) -> list[Key]:
        """Those that are made for it."""
        if not host.declares.has_networks:
            return []
        names = tuple(dict.fromkeys(nic.network for nic in node.nics))
        if (host.name, names) not in self._needed:
            self._needed[host.name, names] = self._made_of(names, host)
        return self._needed[host.name, names]

    def _made_of(self, names: tuple[str, ...], host: Host) -> list[Key]:
        place, networks = host.network_place, self._context.networks
        return [
            *(Key(Kind.NETWORK, place, name) for name in names if not networks[name].existing),
            *(
                Key(Kind.NETBOOT, place, name)  # without which it starts with no address
                for name in names
                if relays.serves(networks[name], host)
            ),
        ]

    def _boots(self, node: Node, host: Host) -> Iterator[Key]:
        """The services from which a node boots by the network."""
        for name in dict.fromkeys(nic.network for nic in node.nics):
            network = self._context.networks[name]
            builtin = network.netboot is Netboot.BUILTIN and not network.existing
            if (builtin and host.declares.has_bridges) or relays.serves(network, host):
                yield Key(Kind.NETBOOT, host.name, name)

    def _note(self, node: Node, host: Host) -> str:
        given = self._context.allocations
        noted = Noted(host.name, given.endpoints.get(node.name), given.outlets.get(node.name))
        return notes.written(noted)
