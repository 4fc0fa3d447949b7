"""Machines of nodes, with the NICs that they have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from nospoon.model.cluster import Firmware, Host, Netboot, Node
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Alternative
from nospoon.plan import identity
from nospoon.plan.key_pairs import given
from nospoon.plan.placement.flavors import chosen, larger
from nospoon.plan.resolution.boot_images import has_image
from nospoon.plan.resolution.context import Context
from nospoon.plan.resolution.disks import machine_disks
from nospoon.plan.resolution.relay import Relays
from nospoon.plan.resolution.segments import Segments


class Machines:
    def __init__(self, context: Context, segments: Segments, relays: Relays) -> None:
        self._context, self._segments, self._relays = context, segments, relays
        networks = context.cluster.networks
        self._with_ipv6 = {each.name for each in networks if each.cidr6 is not None}

    def of(self, node: Node, host: Host, uuid: UUID, macs: Sequence[str]) -> Machine:
        context, declares = self._context, host.declares
        if node.adopted is not None:  # what it is, its owner decides
            found = context.around.adopted[uuid].machine
            if not declares.has_boot_image:
                return found
            return replace(found, boot=declares.boot_of(asks=has_image(node, host)))
        made = context.around.made.get(node.name)
        size = chosen(node, host, context.facts(host), made)
        return Machine(
            uuid=uuid,
            cpus=size.cpus if size is not None else node.cpus,
            memory=size.memory if size is not None else node.memory,
            arch=node.arch,
            firmware=node.firmware,
            tpm=node.tpm,
            disks=machine_disks(context, node, host, uuid),
            nics=tuple(
                self._nic(node, host, i, mac=mac, port=identity.port_name(uuid, i))
                for i, mac in enumerate(macs)
            ),
            boot_order=node.boot_order,
            boot=declares.boot_of(asks=node.kind is NodeKind.BAREMETAL),
            ipv6=node.firmware is not Firmware.BIOS
            and any(nic.network in self._with_ipv6 for nic in node.nics),
            flavor=size.name if size is not None else "",
            zone=_zone(host, made),
            shelved=node.kind is NodeKind.VM and host.connection.shelves(len(node.disks)),
            group=context.groups(host).of.get(node.name, ""),
            key_pair=given(node, host).pair,
            kind=node.kind,
            seed=context.around.seeds.get(node.name, ""),
            asks_at=self._asks_at(node, host),
        )

    def alternatives(self, node: Node, host: Host, machine: Machine) -> Iterator[Alternative]:
        """What its cloud may make in the place of a machine for which it finds no computer: the
        same in the file's other zones, then one of the next larger flavor that the file names. In
        Ironic a node has the numbers of its flavor, before that is made.
        """
        facts = self._context.facts(host)
        if node.adopted is not None or facts is None or not machine.flavor:
            return
        for zone in host.connection.zones:
            if zone != machine.zone:
                yield Alternative(replace(machine, zone=zone), f"in availability zone {zone}")
        in_ironic = self._context.cluster.ironic is not None and node.kind is NodeKind.BAREMETAL
        size = next((each for each in facts.sizes if each.name == machine.flavor), None)
        if size is None or in_ironic or not host.connection.names_sizes:
            return
        for other in larger(node, facts, size)[:1]:
            sized = replace(machine, flavor=other.name, cpus=other.cpus, memory=other.memory)
            yield Alternative(sized, f"with flavor {other.name}")

    def _asks_at(self, node: Node, host: Host) -> str:
        """That of a server of an earlier version stays unknown: no one can say that it differs."""
        is_unknown = Key(Kind.MACHINE, host.name, node.name) in self._context.around.unnoted
        return "" if is_unknown or not has_image(node, host) else self._relays.boot_url(host)

    def _nic(self, node: Node, host: Host, index: int, *, mac: str, port: str) -> MachineNic:
        """With the addresses that it may send from."""
        nic, sends_from = node.nics[index], self._sends_from(host, node, index)
        there = self._segments.name_there(host, nic.network)
        network = self._context.networks[nic.network]
        virtual_ips = network.virtual_ips if sends_from else ()
        if not there:
            return MachineNic(mac, there, nic.model, sends_from=sends_from, virtual_ips=virtual_ips)
        is_wire = not host.declares.has_ports
        return MachineNic(
            mac,
            there,
            nic.model,
            port=port,
            switch=network.switch,
            vlan=network.vlan if is_wire else None,
            trunk=self._context.trunks.ids(nic) if is_wire else (),
            sends_from=sends_from,
            virtual_ips=virtual_ips,
        )

    def _sends_from(self, host: Host, node: Node, index: int) -> str | None:
        """What a NIC is given by DHCP of ours, "" where another server gives it."""
        network = self._context.networks[node.nics[index].network]
        if not network.anti_spoofing or not host.declares.has_networks:
            return None
        declares = host.declares
        ours = declares.has_bridges or declares.shares_networks
        if network.netboot is not Netboot.BUILTIN or not ours:
            return ""
        return self._segments.given(network).get((node.name, index), "")


def _zone(host: Host, made: Machine | None) -> str:
    """That which a machine has, if the file allows it; else the first."""
    zones = host.connection.zones
    return made.zone if made is not None and made.zone in zones else next(iter(zones), "")
