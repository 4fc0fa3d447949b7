"""What no section can see alone: references, addresses, duplicates, hardware that cannot be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from itertools import chain
from urllib.parse import urlsplit
from uuid import UUID

from nospoon.clusterfile.addresses import addresses
from nospoon.clusterfile.caching import caching
from nospoon.clusterfile.document import Path, dotted
from nospoon.clusterfile.expand import Complaint, Expansion
from nospoon.clusterfile.hardware import HardwareSection
from nospoon.clusterfile.hosts import connections_of
from nospoon.clusterfile.kinds import kinds
from nospoon.clusterfile.labs import MOST_MACS, MOST_TOGETHER
from nospoon.clusterfile.models import HostSection
from nospoon.clusterfile.references import (
    LocalFile,
    LocalPair,
    missing_files,
    references,
    unusable_pair,
    wrong_urls,
)
from nospoon.clusterfile.section import shown
from nospoon.clusterfile.sections import Sections, did_you_mean
from nospoon.clusterfile.service_instances import written_path
from nospoon.clusterfile.virtual_ips import virtual_ips
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import DHCP, Arch, BmcProtocol, Firmware, Netboot, Node, Switch
from nospoon.model.connections import RELAY_PORT, ConnectionKind
from nospoon.model.ironic import Standing
from nospoon.model.node_kind import NodeKind
from nospoon.model.passwords import is_hash
from nospoon.plan.enrollment.enrol import DRIVERS
from nospoon.plan.enrollment.nova import class_of
from nospoon.plan.identity import RESERVED

MAX_GIVEN = 400_000
"""Nodes that flavors of Nova may give, for each flavor: a plan has them for each, to look in
Placement.
"""


def check(
    sections: Sections,
    expansion: Expansion,
    local_file: LocalFile | None,
    local_pair: LocalPair | None,
) -> Iterator[Complaint]:
    """Every complaint; sections that could not be read are passed over."""
    yield from _identity(sections)
    yield from references(sections)
    yield from wrong_urls(sections)
    if local_file is not None:
        yield from missing_files(sections, local_file)
    if local_pair is not None:
        yield from unusable_pair(sections, local_pair)
    yield from addresses(sections, expansion)
    yield from virtual_ips(sections, expansion)
    yield from _hosts(sections)
    yield from _labs(sections)
    yield from _hardware(sections)
    yield from caching(sections, _layers(sections))
    yield from kinds(sections, expansion)
    yield from _duplicate_nodes(sections, expansion)
    yield from _portgroups(expansion)
    yield from _trunks(sections, expansion)
    yield from _drivers(expansion)
    yield from _cloud(sections)
    yield from _nova(sections, expansion)
    yield from _deployments(expansion)
    yield from _bmc_ports(sections, expansion)
    yield from _password_hash(sections, expansion)
    yield from _profiles(sections, expansion)
    yield from _placements(sections, expansion)


def unfit(sections: Sections, template: Node) -> str:
    """Why no machine of a lab can be made of its flavor, "" where one can: nodes of the file may
    have what it lacks.
    """
    one = Expansion(nodes=[replace(template, name=template.flavor)], groups=[0])
    found = chain(_portgroups(one), _trunks(sections, one), _bmc_ports(sections, one))
    found = chain(found, _password_hash(sections, one), _own_addresses(template))
    return next((f"{each.message}. {each.hint}".rstrip(". ") for each in found), "")


def _own_addresses(template: Node) -> Iterator[Complaint]:
    for nic in template.nics:
        if nic.address not in ("", DHCP):
            message = f"a NIC on network {nic.network} has the address {nic.address}"
            hint = "Labs make several machines of a flavor: write `address: dhcp`"
            yield Complaint(("flavors", template.flavor, "nics"), message, hint)


def _bmc_ports(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Ports that are given to BMCs which have none, or to several of them."""
    owners: dict[int, list[tuple[str, str]]] = {}
    usual = str(sections.bmc.address)
    nodes = list(zip(expansion.nodes, expansion.groups, strict=True))
    nodes += [(each.like, each.group) for each in expansion.adoptions]
    for node, group in nodes:
        path = ("nodes", group, "bmc", "port")
        name = node.name or f"nodes[{group}]"
        if not node.ipmi_port:
            if node.bmc_address and BmcProtocol.IPMI in node.bmc:
                yield Complaint(path, f"{name} has an address of its own: expected a port, too")
            continue
        if BmcProtocol.IPMI not in node.bmc:
            yield Complaint(path, f"{name} speaks no IPMI: expected no port")
            continue
        if sections.bmc.pool is not None:
            hint = "Drop `port`, or `bmc.pool`"
            yield Complaint(path, "each BMC of a `pool` has an address and port 623", hint)
            continue
        here = node.bmc_address or usual
        others = owners.setdefault(node.ipmi_port, [])
        for first in (each for each, there in others if each != name and _is_same(here, there)):
            hint = "Give it node by node under `overrides`"
            yield Complaint(path, f"port {node.ipmi_port} is also that of {first}", hint)
            break
        others.append((name, here))


def _is_same(one: str, other: str) -> bool:
    """Whether a socket cannot be bound to both: one that is unspecified has all addresses."""
    return one == other or any(ip_address(each).is_unspecified for each in (one, other))


def _password_hash(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """IPMI computes with the password itself, and Ironic logs in with it."""
    if sections.bmc.password_hash is None:
        return
    path = ("bmc", "password_hash")
    if sections.bmc.password is not None:
        yield Complaint(path, "expected one of password and password_hash, got both")
    if sections.ironic is not None:
        hint = "Write `password` instead"
        yield Complaint(path, "Ironic needs the password itself to log in to the BMCs", hint)
    nodes = [*expansion.nodes, *(each.like for each in expansion.adoptions)]
    hashed = [each for each in nodes if is_hash(each.credentials.password)]
    others = sorted({str(each) for node in hashed for each in node.bmc} - {BmcProtocol.REDFISH})
    if others:
        yield Complaint(
            path,
            f"a hash is enough for Redfish alone; nodes speak {' and '.join(others)}, too",
            "Write `password`, or `bmc: {protocols: [redfish]}` at the nodes",
        )


def _cloud(sections: Sections) -> Iterator[Complaint]:
    """Clouds of which there is only the name: clients put settings in its place."""
    given: dict[Path, object] = {
        ("hosts", name, "openstack", "cloud"): host.openstack.cloud
        for name, host in sections.hosts.items()
        if host.openstack is not None
    }
    if sections.ironic is not None:
        given["ironic", "cloud"] = sections.ironic.cloud
    for path, cloud in given.items():
        if isinstance(cloud, str):
            hint = "The nospoon command reads clouds.yaml and writes out what it says"
            yield Complaint(path, f"unknown cloud {shown(cloud)}", hint)


def _profiles(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Profiles of nothing or of two things, and scripts for nodes whose loader is GRUB."""
    for name, profile in sections.boot.items():
        if bool(profile.kernel) == bool(profile.script):
            got = "both" if profile.script else "neither"
            yield Complaint(("boot", name), f"expected one of kernel and script, got {got}")
    scripts = {name for name, profile in sections.boot.items() if profile.script}
    told: set[int] = set()
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        grub = node.arch is Arch.AARCH64 or node.firmware is Firmware.UEFI_SECURE
        if grub and node.boot in scripts and group not in told:
            told.add(group)
            message = f"node {node.name!r} boots by signed GRUB, which runs no iPXE script"
            hint = f"Give boot profile {node.boot!r} a kernel, or the node other firmware"
            yield Complaint(("nodes", group), message, hint)


def _placements(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Rules about labels that no node has: all nodes would count as equal."""
    known = {key for node in expansion.nodes for key, _ in node.labels}
    for index, group in sections.groups.items():
        for rule in ("affinity", "anti_affinity"):
            for key in getattr(group.placement, rule):
                if key != "flavor" and key not in known:
                    yield Complaint(
                        ("nodes", index, "placement", rule),
                        f"no node has the label {key!r}",
                        did_you_mean(key, known) or "Give the nodes `labels`, or write `flavor`",
                    )


def _identity(sections: Sections) -> Iterator[Complaint]:
    if sections.id is not None:
        try:
            given = UUID(sections.id)
        except ValueError:
            yield Complaint(("id",), f"expected a UUID, got {sections.id!r}")
        else:
            if given in RESERVED:
                yield Complaint(("id",), f"{given} is reserved", "Choose another, or drop it")


def _layers(sections: Sections) -> Iterator[tuple[Path, HardwareSection]]:
    """Every section that describes hardware, with its path."""
    for name, flavor in sections.flavors.items():
        yield ("flavors", name), flavor
    for index, group in sections.groups.items():
        yield ("nodes", index), group
        for name, override in group.overrides.items():
            yield ("nodes", index, "overrides", name), override


MOST_CLOUDS = 32
"""Hosts of a file that are clouds: the daemon keeps a login and threads for each."""


def _of_cloud(name: str, host: HostSection) -> Iterator[Complaint]:
    for key in ("ssh", "address"):
        if getattr(host, key):
            message = f"a cloud is reached by its APIs: expected no {key}"
            yield Complaint(("hosts", name, key), message, f"Drop `{key}`")
    if "overcommit" in host.model_fields_set:
        message = "what a cloud gives is its project's quota, which is given once"
        yield Complaint(("hosts", name, "overcommit"), message, "Drop `overcommit`")


def _labs(sections: Sections) -> Iterator[Complaint]:
    """Together: the event loop goes through all of them when a file is brought up."""
    machines = [each for lab in sections.labs.values() for each in lab.machines.values()]
    macs = sum(len(each.macs) for each in machines)
    for count, most, what in (
        (len(machines), MOST_TOGETHER, "registered machines"),
        (macs, MOST_MACS, "MAC addresses of registered machines"),
    ):
        if count > most:
            message = f"expected at most {most} {what} in all labs together, got {count}"
            yield Complaint(("labs",), message, "Make several clusters of it")
    yield from _registered_twice(sections)


def _registered_twice(sections: Sections) -> Iterator[Complaint]:
    """Machines with one BMC are one machine, of which each lab and name could be loaned to another
    recipe set.
    """
    seen: dict[tuple[str, int, str], str] = {}
    for name, lab in sections.labs.items():
        for called, machine in lab.machines.items():
            other = seen.setdefault(machine.bmc.place, f"machine {called} of lab {name}")
            if other != f"machine {called} of lab {name}":
                message = f"it is that of {other}, too: a machine is loaned to one recipe set"
                hint = "Register it once; for one of several Systems of a Redfish write `system`"
                yield Complaint(("labs", name, "machines", called, "bmc"), message, hint)


def _hosts(sections: Sections) -> Iterator[Complaint]:
    clouds = sum(host.openstack is not None for host in sections.hosts.values())
    if clouds > MOST_CLOUDS:
        message = f"expected at most {MOST_CLOUDS} clouds, got {clouds}"
        yield Complaint(("hosts",), message, "Make several clusters of it")
    for name, host in sections.hosts.items():
        if host.openstack is not None and len(given := connections_of(host)) > 1:
            message = f"a cloud is a host of its own: expected no {given[0]} beside openstack"
            yield Complaint(("hosts", name, given[0]), message, "Make two hosts of it")
        if host.openstack is not None:
            yield from _of_cloud(name, host)
            yield from _relayed_bmcs(name, host, sections)
        for kind in (ConnectionKind.LXC, ConnectionKind.DOCKER):
            if kind in connections_of(host):
                yield from _of_containers(name, host, kind)
        if connections_of(host) == [ConnectionKind.SIMULATED] and host.ssh:
            message = "a simulated host is in the daemon: expected no ssh"
            yield Complaint(("hosts", name, "ssh"), message, "Drop `ssh` or `simulated`")
    yield from _unserved(sections)
    for name, network in sections.networks.items():
        real = {key: host for key, host in sections.hosts.items() if host.simulated is None}
        mapped = any(network.physnet in host.physnets for host in real.values())
        if network.physnet and real and not mapped:
            first = next(iter(real))
            hint = f"Add `physnets: {{{network.physnet}: BRIDGE}}` to host {first!r}"
            message = f"no host maps a bridge to {network.physnet!r}"
            yield Complaint(("networks", name, "physnet"), message, hint)


def _unserved(sections: Sections) -> Iterator[Complaint]:
    """Networks of clouds alone, on which a relay would have to serve DHCP, and none is."""
    clouds = {name: each.openstack for name, each in sections.hosts.items() if each.openstack}
    if not clouds or len(clouds) < len(sections.hosts):
        return
    relayed = {each.relay.network for each in clouds.values() if each.relay is not None}
    for name, network in sections.networks.items():
        existing = network.physnet or network.bridge  # refused as such
        if network.netboot is Netboot.BUILTIN and not existing and name not in relayed:
            message = "in a cloud, a relay on the network serves DHCP and TFTP, and there is none"
            hint = (
                f"Write `relay: {{network: {name}, image: IMAGE, flavor: FLAVOR}}` below "
                f"`openstack` of host {next(iter(clouds))!r} and `nat: true` here, "
                "or leave `netboot` out"
            )
            yield Complaint(("networks", name, "netboot"), message, hint)


def _relayed_bmcs(name: str, host: HostSection, sections: Sections) -> Iterator[Complaint]:
    """BMCs on the network of a relay have addresses of that network."""
    relay = host.openstack.relay if host.openstack is not None else None
    if relay is None or not relay.bmcs:
        return
    pool, path = sections.bmc.pool, ("hosts", name, "openstack", "relay", "bmcs")
    if pool is None:
        message = "BMCs answer on the network of a relay at addresses of their own: expected a pool"
        yield Complaint(path, message, "Write `bmc: {pool: CIDR}`, a part of that network")
        return
    if sections.bmc.redfish_port in {RELAY_PORT, relay.port}:
        message = f"port {sections.bmc.redfish_port} of a relay is taken: expected another one"
        yield Complaint(("bmc", "redfish_port"), message)
    network = sections.networks.get(relay.network)
    if network is None or network.physnet or network.bridge:
        return
    if network.ipv4 is None or not pool.subnet_of(network.ipv4):
        message = f"`bmc.pool` {pool} is not a part of network {relay.network!r}"
        yield Complaint(path, message, f"Give the network a `cidr` with {pool} in it")


def _of_containers(name: str, host: HostSection, kind: ConnectionKind) -> Iterator[Complaint]:
    """Their bridges are those of a libvirt of the same machine."""
    if host.libvirt is None and host.openstack is None:
        message = f"containers are on bridges of libvirt's networks: expected libvirt beside {kind}"
        yield Complaint(("hosts", name, kind), message, "Write `libvirt: qemu:///system` as well")
    elif host.libvirt is not None and not _has_bridges(host.libvirt, host.ssh):
        message = f"containers are on bridges, and libvirt's user at {host.libvirt} has none"
        hint = "Write `libvirt: qemu:///system`, with `ssh` where it is on another machine"
        yield Complaint(("hosts", name, kind), message, hint)


def _has_bridges(uri: str, ssh: str) -> bool:
    """Whether it is a system's libvirtd, on a machine where commands run."""
    parts = urlsplit(uri)
    return parts.path == "/system" and bool(ssh or not parts.netloc)


def _hardware(sections: Sections) -> Iterator[Complaint]:
    for path, layer in _layers(sections):
        order = layer.boot_order or ()
        for each in {BootDevice.SETUP, BootDevice.HTTP}.intersection(order):
            message = f"expected network, disk and cdrom, got {shown(str(each))}"
            hint = f"`nospoon node boot NODE {each}` sets it for the next boot"
            yield Complaint((*path, "boot_order"), message, hint)
        if len(set(order)) != len(order):
            yield Complaint((*path, "boot_order"), "expected each device once")
        if layer.arch == "aarch64" and layer.firmware in (Firmware.BIOS, Firmware.UEFI_SECURE):
            message = f"expected firmware uefi on aarch64, got {layer.firmware}"
            yield Complaint((*path, "firmware"), message)
        serials = [disk.serial for disk in layer.disks or () if disk.serial]
        for serial in sorted({each for each in serials if serials.count(each) > 1}):
            message = f"expected a serial number of its own for each disk, got {serial!r} twice"
            yield Complaint((*path, "disks"), message)
        if layer.tpm and layer.firmware is Firmware.BIOS:
            yield Complaint((*path, "tpm"), "a TPM 2.0 needs firmware uefi or uefi-secure")


def _trunks(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """NICs with VLANs on networks that have none; a group's once. A cloud makes networks of VLANs:
    which host a node gets, the plan knows.
    """
    if any(connections_of(each) == [ConnectionKind.OPENSTACK] for each in sections.hosts.values()):
        return
    told: set[tuple[int, str]] = set()
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        for nic in node.nics:
            network = sections.networks.get(nic.network)
            tags = network is not None and network.switch is Switch.OVS
            if not nic.trunk or tags or (group, nic.network) in told:
                continue
            told.add((group, nic.network))
            message = f"a trunk needs Open vSwitch, and network {nic.network!r} is none"
            yield Complaint(("nodes", group), message, "Write `switch: ovs` there, or no `trunk`")


def _nova(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    if sections.nova is not None and (sections.ironic is None or sections.ironic.cloud is None):
        message = "flavors are made in the cloud of `ironic`, and it names none"
        yield Complaint(("nova",), message, "Write `ironic: {cloud: NAME}`, or drop `nova`")
    if sections.nova is None:
        return
    nodes = Counter(map(class_of, expansion.nodes))
    given = sum(nodes[each.resource_class] for each in sections.nova.flavors.values())
    if given > MAX_GIVEN:
        message = (
            f"expected at most {MAX_GIVEN} nodes in the resource classes of all flavors, each "
            f"counted for each flavor, got {given}"
        )
        yield Complaint(("nova", "flavors"), message, "Write fewer, or more resource classes")


def _drivers(expansion: Expansion) -> Iterator[Complaint]:
    """Drivers of Ironic for what a node's BMC does not speak; a group's once."""
    told: set[tuple[int, str]] = set()
    spoken = {driver: protocol for protocol, driver in DRIVERS}
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        driver = node.enrolment.driver
        protocol = spoken.get(driver)
        served = node.kind is not NodeKind.BAREMETAL or protocol in node.bmc
        if protocol is None or served or (group, driver) in told:
            continue
        told.add((group, driver))
        message = f"Ironic's driver {driver!r} needs {str(protocol)!r} in `bmc` of {node.name!r}"
        yield Complaint(("nodes", group), message, "Add it there, or name another driver")


def _deployments(expansion: Expansion) -> Iterator[Complaint]:
    """Nodes that are to be deployed with nothing, and boot no volume; a group's once."""
    told: set[int] = set()
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        said = node.enrolment
        something = said.targets or any(each.name == "image_source" for each in said.instance)
        deployed = node.kind is NodeKind.BAREMETAL and said.state is Standing.ACTIVE
        if deployed and not something and group not in told:
            told.add(group)
            message = f"state 'active' of {node.name!r} needs an `image` in `ironic`"
            yield Complaint(("nodes", group), message, "Name what is deployed")


def _portgroups(expansion: Expansion) -> Iterator[Complaint]:
    """NICs in bonds that are not, bonds without NICs, and MACs of bonds given twice; told once."""
    told: set[Complaint] = set()
    owners: dict[str, str] = {}
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        path = ("nodes", group)
        known = {each.name: each for each in node.portgroups}
        members = {nic.portgroup for nic in node.nics if nic.portgroup}
        for name in sorted(members - known.keys()):
            hint = f"Add `portgroups: {{{name}: {{}}}}`"
            told.add(Complaint(path, f"a NIC is in no known portgroup {name!r}", hint))
        for name in sorted(known.keys() - members):
            hint = f"Write `portgroup: {name}` at its NICs"
            told.add(Complaint(path, f"portgroup {name!r} has no NIC", hint))
        for name in sorted(members & known.keys()):
            networks = sorted({nic.network for nic in node.nics if nic.portgroup == name})
            if len(networks) > 1:
                message = f"portgroup {name!r} has NICs on several networks: {', '.join(networks)}"
                hint = "A bond is on one network (Ironic: one physical network); use one bond each"
                told.add(Complaint(path, message, hint))
        for each in node.portgroups:
            mine = f"{node.name} {each.name}"
            if each.address and owners.setdefault(each.address, mine) != mine:
                message = f"MAC {each.address} of {mine!r} is also that of {owners[each.address]!r}"
                hint = "Give it under `overrides`, node by node, or leave it out"
                told.add(Complaint(path, message, hint))
    yield from sorted(told, key=lambda each: (str(each.path), each.message))


def _duplicate_nodes(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    names: dict[str, int] = {}
    macs: dict[str, str] = {}
    floating: dict[str, str] = {}
    for node, group in zip(expansion.nodes, expansion.groups, strict=True):
        if node.name in names:
            first = dotted(written_path(sections, ("nodes", names[node.name])))
            hint = "Give one group another `name:` or `start:`"
            if group in sections.instances:
                hint = "Give one of them another name"
            message = f"{node.name!r} is also named by {first}"
            yield Complaint(("nodes", group, "name"), message, hint)
        names.setdefault(node.name, group)
        for index, nic in enumerate(node.nics):
            if nic.mac and nic.mac in macs:
                message = f"MAC {nic.mac} of {node.name!r} is also that of {macs[nic.mac]!r}"
                where = ("nodes", group, "nics", index, "mac")
                yield Complaint(where, message, "Leave MACs out to have them derived")
            macs.setdefault(nic.mac, node.name)
            if (address := nic.floating_address) in floating:
                message = f"{address} of {node.name!r} is also that of {floating[address]!r}"
                where = ("nodes", group, "nics", index, "floating_address")
                yield Complaint(where, message, "A floating IP leads to one NIC")
            elif address:
                floating[address] = node.name
