"""Groups -> nodes: counts, name patterns, and who overrides whom.

A node takes each value from its override, else its group, else its flavor, else the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from nospoon.clusterfile.bmcs import NodeBmcSection
from nospoon.clusterfile.document import Path
from nospoon.clusterfile.hardware import DiskSection, HardwareSection, NicSection, PortgroupSection
from nospoon.clusterfile.hosts import connections_of, place_named
from nospoon.clusterfile.ironic import enrolment
from nospoon.clusterfile.models import (
    MAX_CLOUD_INIT,
    MAX_DESCRIBED,
    MAX_PARTS,
    MAX_PATTERNS,
)
from nospoon.clusterfile.node_groups import (
    MAX_CLUSTER,
    NodeGroupSection,
)
from nospoon.clusterfile.section import shown
from nospoon.clusterfile.sections import Sections
from nospoon.model.boot import BootDevice
from nospoon.model.cluster import (
    Adoption,
    Arch,
    BmcProtocol,
    CloudInit,
    Credentials,
    Disk,
    Firmware,
    Nic,
    Node,
    Placement,
    Portgroup,
)
from nospoon.model.connections import ConnectionKind
from nospoon.model.names import MAX_NAME, is_name, wanted_of
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.storage import OWN_FORMAT

DEFAULT_MEMORY = 1 << 30
DEFAULT_DISK = DiskSection(size="10GiB")
DEFAULT_ROOT = 10 << 30
"""Bytes that a container's root may have."""
BOOT_ORDERS = {
    NodeKind.BAREMETAL: (BootDevice.DISK, BootDevice.NETWORK),
    NodeKind.VM: (BootDevice.DISK,),
    NodeKind.CONTAINER: (BootDevice.DISK,),
}
_NUMBER = re.compile(r"\{n(?::0?(\d{1,2})d?)?\}")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}?")


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem at a path; the caller knows the document."""

    path: Path
    message: str
    hint: str = ""


@dataclass(slots=True)
class Expansion:
    """Nodes in the order of the file, with the group each came from."""

    nodes: list[Node] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)


DESCRIBED = Complaint(
    ("nodes",),
    f"expected at most {MAX_DESCRIBED} characters in what `ironic`, `traits`, `portgroups` and "
    "`trunk` say of all nodes of a cluster",
    "Make several clusters of it, or say less",
)


def expand(sections: Sections, *, default_network: str) -> Expansion:
    """All nodes that the groups describe."""
    result = Expansion()
    groups = sections.groups.values()
    total = sum(group.count if group.adopt is None else 1 for group in groups)
    if total > MAX_CLUSTER:
        message = f"expected at most {MAX_CLUSTER} nodes in a cluster, got {total}"
        result.complaints.append(Complaint(("nodes",), message, "Make several clusters of it"))
        return result
    patterns = sum(group.adopt is not None and bool(group.adopt.match) for group in groups)
    if patterns > MAX_PATTERNS:
        message = f"expected at most {MAX_PATTERNS} groups with `adopt: {{match: …}}`"
        complaint = Complaint(("nodes",), f"{message}, got {patterns}", "Write wider patterns")
        result.complaints.append(complaint)
        return result
    try:
        _expand(sections, result, default_network)
        too_much = list(_too_many_parts(result.nodes, has_ports=_has_cloud(sections)))
    except _TooMuchError:
        too_much = [DESCRIBED]
    if too_much:  # to look at the nodes would take as long as to plan them
        result.complaints += too_much
        result.nodes, result.groups = [], []
    return result


def _expand(sections: Sections, result: Expansion, default_network: str) -> None:
    counters: dict[str, int] = {}
    described = _Descriptions()
    if sections.labs:
        for each in templates_of_labs(sections, default_network=default_network):
            described.take(each)
    for index, group in sections.groups.items():
        if group.adopt is not None:
            for adoption in _adoptions(sections, group, index, result):
                described.take(adoption.like)
                result.adoptions.append(adoption)
            continue
        counted = {} if index in sections.instances else counters
        names = list(_names(group, index, counted, result))
        _check_overrides(group, index, names, result)
        template = _node(sections, group, name="", default_network=default_network)
        size = described.take(template)
        shared = [getattr(template, each.name) for each in _SHARED]
        for name in names:
            if name in group.overrides:
                node = _node(sections, group, name=name, default_network=default_network)
                described.take(node)
            else:
                node = Node(name, *shared)  # `replace` takes several times as long
                described.spend(size)
            result.nodes.append(node)
            result.groups.append(index)


def _has_cloud(sections: Sections) -> bool:
    kinds = map(connections_of, sections.hosts.values())
    return any(ConnectionKind.OPENSTACK in each for each in kinds)


def _too_many_parts(nodes: Sequence[Node], *, has_ports: bool) -> Iterator[Complaint]:
    """Each disk is a volume, and so a step of a plan; connectors and targets exist in Ironic.
    `has_ports`: a host makes a port of each VLAN of a trunk.
    """
    in_ironic = [node.enrolment for node in nodes]
    for what, total in (
        ("disks", sum(len(node.disks) for node in nodes)),
        ("NICs", sum(len(node.nics) for node in nodes)),
        ("VLANs in trunks", has_ports * sum(len(nic.trunk) for each in nodes for nic in each.nics)),
        ("volume connectors", sum(len(each.connectors) for each in in_ironic)),
        ("volume targets", sum(len(each.targets) for each in in_ironic)),
    ):
        if total > MAX_PARTS:
            message = f"expected at most {MAX_PARTS} {what} in a cluster, got {total}"
            yield Complaint(("nodes",), message, "Make several clusters of it")
    given = sum(
        len(each.user_data) + sum(map(len, each.ssh_authorized_keys))
        for each in (node.cloud_init for node in nodes)
    )
    if given > MAX_CLOUD_INIT:
        message = (
            f"expected at most {MAX_CLOUD_INIT} characters of user data and ssh keys of all nodes "
            f"of a cluster, got {given}"
        )
        hint = "Give nodes less of it: user data may fetch what it needs"
        yield Complaint(("nodes",), message, hint)


class _TooMuchError(Exception):
    """Nodes are described by more than `MAX_DESCRIBED` characters."""


@dataclass(slots=True)
class _Descriptions:
    """What nodes are given for Ironic, with traits, portgroups and VLANs. Those of a group share
    it; an override, and so an alias, has all of it made again. `known`: sizes of what is shared.
    """

    left: int = MAX_DESCRIBED
    known: dict[int, tuple[object, int]] = field(default_factory=dict)

    def take(self, node: Node) -> int:
        """How much it is. Raises `_TooMuchError`."""
        parts = (node.enrolment, node.traits, node.portgroups, *(nic.trunk for nic in node.nics))
        size = sum(map(self._size, parts))
        self.spend(size)
        return size

    def spend(self, size: int) -> None:
        """For a node of so much, such as one that shares it all. Raises `_TooMuchError`."""
        self.left -= size
        if self.left < 0:
            raise _TooMuchError

    def _size(self, part: object) -> int:
        if id(part) not in self.known:
            text = repr(part)
            filled_in = sum(map(text.count, ("{node}", "{cluster}"))) * MAX_NAME
            self.known[id(part)] = part, len(text) + filled_in
        return self.known[id(part)][1]


def templates_of_labs(sections: Sections, *, default_network: str) -> Iterator[Node]:
    """A node of each of the file's flavors of which labs may make machines, without a name."""
    for name, flavor in sections.flavors.items():
        if flavor.kind in (None, NodeKind.BAREMETAL):
            group = NodeGroupSection(flavor=name)
            yield _node(sections, group, name="", default_network=default_network)


def _adoptions(
    sections: Sections, group: NodeGroupSection, index: int, result: Expansion
) -> Iterator[Adoption]:
    """What is said of machines of others: all but their shape."""
    assert group.adopt is not None, "only of groups that adopt"
    name = group.name if "name" in group.model_fields_set else ""
    if name and not is_name(name):
        message = f"expected {wanted_of(name)}, got {shown(name)}"
        result.complaints.append(Complaint(("nodes", index, "name"), message))
        return
    like = _node(sections, group, name=name, default_network="")
    like = replace(like, flavor="", cpus=0, memory=0, disks=(), nics=(), portgroups=())
    yield Adoption(like, group.adopt.machine or "", group.adopt.match or "", index)


def _names(
    group: NodeGroupSection, index: int, counters: dict[str, int], result: Expansion
) -> Iterator[str]:
    match = _NUMBER.search(group.name)
    if match is None and (odd := _PLACEHOLDER.search(group.name)):
        message = f"{odd[0]!r} is not a placeholder"
        hint = "A number is written {n}, or {n:03} for 001"
        result.complaints.append(Complaint(("nodes", index, "name"), message, hint))
        return
    if match is None and group.count > 1:
        hint = f"Write {group.name + '-{n}'!r}"
        result.complaints.append(
            Complaint(("nodes", index, "name"), f"{group.count} nodes of one name", hint)
        )
        return
    first = max(group.start, counters.get(group.name, group.start))
    width = int(match[1] or 0) if match else 0
    for number in range(first, first + group.count):
        name = _NUMBER.sub(f"{number:0{width}d}", group.name)
        if not is_name(name):
            made = "" if name == group.name else f"makes the name {shown(name)}: "
            message = f"{made}expected {wanted_of(name)}"
            if len(name) > MAX_NAME:
                message += f", got {len(name)}"
            elif not made:
                message += f", got {shown(name)}"
            result.complaints.append(Complaint(("nodes", index, "name"), message))
            return
        yield name
    counters[group.name] = first + group.count


def _check_overrides(
    group: NodeGroupSection, index: int, names: list[str], result: Expansion
) -> None:
    for name in group.overrides.keys() - set(names):
        span = f"{names[0]} to {names[-1]}" if names else "none"
        result.complaints.append(
            Complaint(
                ("nodes", index, "overrides", name), f"no node {name!r} here", f"There: {span}"
            )
        )


_SHARED = fields(Node)[1:]
"""All but the name, which is the first."""


def _node(sections: Sections, group: NodeGroupSection, *, name: str, default_network: str) -> Node:
    override = group.overrides.get(name)
    flavor_name, kind = flavor_of(sections, group)
    flavor = sections.flavors.get(flavor_name)
    layers: tuple[HardwareSection | None, ...] = (override, group, flavor)
    of_ironic = [*(layer.ironic if layer else None for layer in layers), sections.ironic]

    def pick(attribute: str, default: Any) -> Any:
        for layer in layers:
            value = getattr(layer, attribute, None)
            if value is not None:
                return value
        return default

    default_nics = [NicSection(network=default_network)] if default_network else []
    bmcs = [layer.bmc for layer in layers if layer is not None and layer.bmc is not None]
    protocols = next(
        (bmc.protocols for bmc in bmcs if bmc.protocols is not None),
        [BmcProtocol.IPMI, BmcProtocol.REDFISH] if kind is NodeKind.BAREMETAL else [],
    )
    given = (layer.all_disks for layer in layers if layer is not None)
    disks = next((each for each in given if each is not None), [DEFAULT_DISK])
    return Node(
        name=name,
        flavor=flavor_name or "default",
        host=place_named(pick("host", ""), sections.hosts),
        cpus=pick("cpus", 1),
        memory=pick("memory", DEFAULT_MEMORY),
        arch=pick("arch", Arch.X86_64),
        firmware=pick("firmware", Firmware.UEFI),
        tpm=bool(pick("tpm", None)),
        disks=tuple(
            _sized(_disk(disk, "unsafe" if sections.throwaway else "writeback"), kind)
            for disk in disks
        ),
        nics=tuple(_nic(nic) for nic in pick("nics", default_nics)),
        portgroups=tuple(_portgroup(*each) for each in sorted(pick("portgroups", {}).items())),
        boot_order=tuple(pick("boot_order", BOOT_ORDERS[kind])),
        boot=pick("boot", ""),
        restore=pick("restore", None),
        bmc=tuple(dict.fromkeys(protocols)),
        ipmi_port=next((bmc.port for bmc in bmcs if bmc.port is not None), 0),
        bmc_address=next((str(bmc.address) for bmc in bmcs if bmc.address is not None), ""),
        credentials=_credentials(sections, bmcs),
        traits=tuple(pick("traits", ())),
        labels=tuple(sorted(pick("labels", {}).items())),
        enrolment=enrolment(of_ironic),
        kind=kind,
        cloud_init=CloudInit(pick("user_data", ""), tuple(pick("ssh_keys", ()))),
        keeps_root=bool(pick("rollback", default=True)),
        placement=Placement(
            strategy=group.placement.strategy,
            affinity=tuple(group.placement.affinity),
            anti_affinity=tuple(group.placement.anti_affinity),
        ),
    )


def flavor_of(sections: Sections, group: NodeGroupSection) -> tuple[str, NodeKind]:
    """The flavor of a group's nodes, "" for none, and their kind."""
    usual_name = "" if group.adopt is not None else _only_flavor(sections)
    name = usual_name if group.flavor is None else group.flavor
    flavor = sections.flavors.get(name)
    usual = flavor.kind if flavor is not None else None
    return name, group.kind or usual or NodeKind.BAREMETAL


def _sized(disk: Disk, kind: NodeKind) -> Disk:
    """The root of a container has a limit: its image has no size of its own."""
    return replace(disk, size=disk.size or DEFAULT_ROOT) if kind is NodeKind.CONTAINER else disk


def _only_flavor(sections: Sections) -> str:
    return next(iter(sections.flavors)) if len(sections.flavors) == 1 else ""


def _disk(section: DiskSection, usual_cache: str) -> Disk:
    return Disk(
        size=section.size or 0,
        image=section.image,
        checksum=section.checksum,
        bus=section.bus,
        serial=section.serial,
        volume=section.volume,
        format=section.format if section.volume else OWN_FORMAT,
        rotational=section.rotational,
        cache=section.cache or usual_cache,
        discard=section.discard,
        mount=section.mount,
    )


def _nic(section: NicSection) -> Nic:
    return Nic(
        network=section.network,
        mac=section.mac or "",
        model=section.model,
        portgroup=section.portgroup or "",
        trunk=tuple(sorted(set(section.trunk))),
        pxe=section.pxe,
        address=section.address or "",
        floating_ip=section.floating_ip,
        floating_address=str(section.floating_address or ""),
    )


def _portgroup(name: str, section: PortgroupSection) -> Portgroup:
    return Portgroup(
        name=name,
        mode=section.mode,
        address=section.address or "",
        properties=tuple(sorted((key, str(value)) for key, value in section.properties.items())),
        standalone_ports=section.standalone_ports_supported,
    )


def _credentials(sections: Sections, given: list[NodeBmcSection]) -> Credentials:
    username = next((bmc.username for bmc in given if bmc.username), sections.bmc.username)
    password = next((bmc.password for bmc in given if bmc.password), sections.bmc.password)
    k_g = next((bmc.k_g for bmc in given if bmc.k_g), sections.bmc.k_g)
    return Credentials(
        username=username,
        password=password or sections.bmc.password_hash or "",
        k_g=k_g or "",
        pdu_secret=sections.bmc.pdu.secret or "",
    )
