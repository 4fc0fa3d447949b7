"""What no section can see alone: references, overlaps, duplicates, and room for all BMCs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from itertools import combinations
from uuid import UUID

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import BmcProtocol, Firmware, Netboot
from nospoon.spec.document import Path
from nospoon.spec.expand import Complaint, Expansion
from nospoon.spec.models import HardwareSection
from nospoon.spec.sections import Sections, did_you_mean

NETBOOT_OVERHEAD = 3
"""Addresses of a netboot network that no NIC gets: network, broadcast and the host's own."""


def check(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Every complaint; sections that could not be read are passed over."""
    yield from _identity(sections)
    yield from _references(sections)
    yield from _networks(sections)
    yield from _hosts(sections)
    yield from _hardware(sections)
    yield from _duplicate_nodes(expansion)
    yield from _room_for_bmcs(sections, expansion)
    yield from _room_on_networks(sections, expansion)


def _identity(sections: Sections) -> Iterator[Complaint]:
    if sections.id is not None:
        try:
            UUID(sections.id)
        except ValueError:
            yield Complaint(("id",), f"expected a UUID, got {sections.id!r}")


def _layers(sections: Sections) -> Iterator[tuple[Path, HardwareSection]]:
    """Every section that describes hardware, with its path."""
    for name, flavor in sections.flavors.items():
        yield ("flavors", name), flavor
    for index, group in sections.groups.items():
        yield ("nodes", index), group
        for name, override in group.overrides.items():
            yield ("nodes", index, "overrides", name), override


def _references(sections: Sections) -> Iterator[Complaint]:
    names = sections.names
    networks = names["networks"] or frozenset({"provision"})
    hosts = names["hosts"] or frozenset({"here"})
    for path, layer in _layers(sections):
        for index, nic in enumerate(layer.nics or ()):
            yield from _refers((*path, "nics", index), nic.network, networks, "network")
        if layer.boot is not None:
            yield from _refers((*path, "boot"), layer.boot, names["boot"], "boot profile")
        host = getattr(layer, "host", None)
        if host is not None:
            yield from _refers((*path, "host"), host, hosts, "host")
    for index, group in sections.groups.items():
        yield from _flavor_reference(index, group.flavor, names["flavors"])


def _flavor_reference(index: int, flavor: str | None, known: frozenset[str]) -> Iterator[Complaint]:
    if flavor is not None:
        yield from _refers(("nodes", index, "flavor"), flavor, known, "flavor")
    elif len(known) > 1:
        hint = f"Add `flavor:` with one of {', '.join(sorted(known))}"
        yield Complaint(("nodes", index), "several flavors, none chosen", hint)


def _refers(path: Path, name: str, known: Iterable[str], what: str) -> Iterator[Complaint]:
    if name not in known:
        yield Complaint(path, f"no {what} named {name!r}", did_you_mean(name, known))


def _networks(sections: Sections) -> Iterator[Complaint]:
    placed: list[tuple[str, IPv4Network]] = []
    for name, network in sections.networks.items():
        path = ("networks", name)
        if network.physnet and network.bridge:
            yield Complaint((*path, "bridge"), "expected physnet or bridge, got both")
        if network.vlan is not None and not (network.physnet or network.bridge):
            yield Complaint(
                (*path, "vlan"),
                "a VLAN needs a physnet or bridge",
                "An isolated network needs none",
            )
        if network.netboot is Netboot.BUILTIN and (network.physnet or network.bridge):
            message = "expected netboot: none on an existing bridge: its owner answers DHCP there"
            yield Complaint((*path, "netboot"), message)
        if network.cidr is not None:
            placed.append((name, network.cidr))
    for (first, one), (second, other) in combinations(placed, 2):
        if one.overlaps(other):
            message = f"{other} overlaps {one} of network {first!r}"
            yield Complaint(("networks", second, "cidr"), message)
    pool = sections.bmc.pool
    for name, cidr in placed:
        if pool is not None and pool.overlaps(cidr) and not pool.subnet_of(cidr):
            message = f"{pool} overlaps {cidr} of network {name!r} and does not lie within it"
            yield Complaint(("bmc", "pool"), message)


def _hosts(sections: Sections) -> Iterator[Complaint]:
    for name, host in sections.hosts.items():
        if host.simulated and host.libvirt:
            yield Complaint(("hosts", name), "expected one of libvirt and simulated, got both")
    for name, network in sections.networks.items():
        for host_name, host in sections.hosts.items():
            if network.physnet and not host.simulated and network.physnet not in host.physnets:
                hint = f"Add `physnets: {{{network.physnet}: BRIDGE}}` to host {host_name!r}"
                yield Complaint(
                    ("networks", name, "physnet"),
                    f"host {host_name!r} maps no bridge to {network.physnet!r}",
                    hint,
                )


def _hardware(sections: Sections) -> Iterator[Complaint]:
    for path, layer in _layers(sections):
        order = layer.boot_order or ()
        if BootDevice.SETUP in order:
            yield Complaint((*path, "boot_order"), "setup is no boot device", "Ask the BMC for it")
        if len(set(order)) != len(order):
            yield Complaint((*path, "boot_order"), "expected each device once")
        if layer.arch == "aarch64" and layer.firmware in (Firmware.BIOS, Firmware.UEFI_SECURE):
            message = f"expected firmware uefi on aarch64, got {layer.firmware}"
            yield Complaint((*path, "firmware"), message)
        if layer.tpm and layer.firmware is Firmware.BIOS:
            yield Complaint((*path, "tpm"), "a TPM 2.0 needs firmware uefi or uefi-secure")


def _duplicate_nodes(expansion: Expansion) -> Iterator[Complaint]:
    names: dict[str, int] = {}
    macs: dict[str, str] = {}
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        if node.name in names:
            first = names[node.name]
            hint = "Give one group another `name:` or `start:`"
            yield Complaint(
                ("nodes", group, "name"), f"{node.name!r} is also named by nodes[{first}]", hint
            )
        names.setdefault(node.name, group)
        for nic in node.nics:
            if nic.mac and nic.mac in macs:
                message = f"MAC {nic.mac} of {node.name!r} is also that of {macs[nic.mac]!r}"
                yield Complaint(("nodes", group), message, "Leave MACs out to have them derived")
            macs.setdefault(nic.mac, node.name)


def _room_for_bmcs(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    wanted = sum(1 for node in expansion.nodes if node.bmc)
    ipmi = sum(1 for node in expansion.nodes if BmcProtocol.IPMI in node.bmc)
    pool, (first, last) = sections.bmc.pool, sections.bmc.ports
    if pool is not None and pool.num_addresses - 2 < wanted:
        message = f"{pool} has {max(pool.num_addresses - 2, 0)} addresses for {wanted} BMCs"
        yield Complaint(("bmc", "pool"), message, "Take a larger network")
    if pool is None and last - first + 1 < ipmi:
        message = f"{first}-{last} has {last - first + 1} ports for {ipmi} BMCs"
        yield Complaint(("bmc", "ports"), message, f"Write {first}-{first + ipmi - 1} or wider")


def _room_on_networks(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    for name, network in sections.networks.items():
        if network.cidr is None or network.netboot is not Netboot.BUILTIN:
            continue
        nics = sum(1 for node in expansion.nodes for nic in node.nics if nic.network == name)
        room = network.cidr.num_addresses - NETBOOT_OVERHEAD
        if room < nics:
            message = f"{network.cidr} has {max(room, 0)} addresses for {nics} NICs"
            yield Complaint(("networks", name, "cidr"), message, "Take a larger network")
