"""Networks and addresses: what overlaps, what can be no network, and room for all who need one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from ipaddress import IPv4Network, IPv6Network
from itertools import chain, combinations

from nospoon.clusterfile.document import Path
from nospoon.clusterfile.expand import Complaint, Expansion
from nospoon.clusterfile.hosts import connections_of
from nospoon.clusterfile.models import MAX_PARTS, NetworkSection
from nospoon.clusterfile.sections import Sections
from nospoon.model.cluster import BmcProtocol, Netboot, Switch
from nospoon.model.connections import ConnectionKind
from nospoon.model.segments import SegmentType
from nospoon.plan.words import counted

NETBOOT_OVERHEAD = 3
"""Addresses of a netboot network that no NIC gets: network, broadcast and the host's own."""

Network = IPv4Network | IPv6Network
LEAST6 = 1280
MOST_VNI = (1 << 24) - 1
HALF = 64
"""The length of prefix with which hosts make addresses of their own (RFC 4291 §2.5.1)."""

_NOT_FOR_HOSTS: tuple[tuple[str, Network], ...] = (
    ("a multicast network (RFC 5771)", IPv4Network("224.0.0.0/4")),
    ("reserved (RFC 1112 §4)", IPv4Network("240.0.0.0/4")),
    ("this network (RFC 1122 §3.2.1.3)", IPv4Network("0.0.0.0/8")),
    ("a multicast network (RFC 4291 §2.7)", IPv6Network("ff00::/8")),
    ("link-local (RFC 4291 §2.5.6)", IPv6Network("fe80::/10")),
)
_LOOPBACKS: tuple[tuple[str, Network], ...] = (
    ("loopback (RFC 1122 §3.2.1.3)", IPv4Network("127.0.0.0/8")),
    ("unspecified, loopback or mapped (RFC 4291 §2.5)", IPv6Network("::/64")),
)


def addresses(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    """Every complaint about networks, address pools and port ranges."""
    tagged = _tagged(sections, expansion)
    yield from _on_all_hosts(sections)
    for name, network in sections.networks.items():
        yield from _network(name, network, tagged)
    yield from _routers(sections)
    yield from _overlaps(sections)
    yield from _pool(sections)
    yield from _room_for_bmcs(sections, expansion)
    yield from _room_on_networks(sections, expansion)


def _on_all_hosts(sections: Sections) -> Iterator[Complaint]:
    """Each host has each network that is made, and each is a step of a plan."""
    made = sum(not (each.physnet or each.bridge) for each in sections.networks.values())
    count = made * len(sections.hosts)
    if count > MAX_PARTS:
        message = f"expected at most {MAX_PARTS} networks on all hosts together, got {count}"
        yield Complaint(("networks",), message, "Make several clusters of it")


def _tagged(sections: Sections, expansion: Expansion) -> set[int]:
    """VLANs that reach NICs tagged in a cloud, where each is a network of its own."""
    if not any(
        connections_of(each) == [ConnectionKind.OPENSTACK] for each in sections.hosts.values()
    ):
        return set()
    of_nodes = (nic.trunk for node in expansion.nodes for nic in node.nics)
    of_labs = (nic.trunk for flavor in sections.flavors.values() for nic in flavor.nics or ())
    return set(chain.from_iterable(chain(of_nodes, of_labs)))


def _segment(path: Path, network: NetworkSection, tagged: Container[int]) -> Iterator[Complaint]:
    """Its VLAN, and what that is of. `tagged`: VLANs that need no more than a network."""
    existing = bool(network.physnet or network.bridge)
    if network.provider and existing:
        message = "expected a network of nospoon's or an existing one, got both"
        yield Complaint((*path, "provider"), message, "Leave `physnet` and `bridge` out")
    yield from _type(path, network, existing=existing)
    is_flat = network.segment is SegmentType.FLAT
    if network.provider and network.vlan is None and not is_flat:
        message = "a network of a cloud's physical one needs a VLAN"
        yield Complaint((*path, "provider"), message, "Write its id as `vlan`")
    if network.vlan in tagged:
        return
    if network.vlan is not None and not existing and not network.provider:
        message = "a VLAN needs a physnet or bridge, or in a cloud a provider or a NIC's trunk"
        yield Complaint((*path, "vlan"), message, "An isolated network needs none")
    if network.vlan is not None and existing and network.switch is not Switch.OVS:
        message = "a VLAN needs an Open vSwitch bridge: a Linux bridge made by nospoon does not tag"
        yield Complaint((*path, "vlan"), message, "Write `switch: ovs` if it is one")


def _type(path: Path, network: NetworkSection, *, existing: bool) -> Iterator[Complaint]:
    """Of its segment, and the id of that."""
    type_, id_ = network.segment, network.segment_id
    in_physical = type_ in {SegmentType.FLAT, SegmentType.VLAN}
    if type_ is not None and existing:
        message = "expected a network of nospoon's or an existing one, got both"
        yield Complaint((*path, "segment"), message, "Leave `physnet` and `bridge` out")
    elif in_physical and not network.provider:
        message = f"a segment of type {type_} is in a physical network of the cloud's"
        yield Complaint((*path, "segment"), message, "Name that as `provider`")
    elif type_ is not None and not in_physical and network.provider:
        message = f"a segment of type {type_} is in no physical network"
        yield Complaint((*path, "segment"), message, "Leave `provider` out")
    if type_ is SegmentType.FLAT and network.vlan is not None and network.provider:
        message = "a segment of type flat has no VLAN"
        yield Complaint((*path, "vlan"), message, "Leave it out, or write `segment: vlan`")
    if id_ is not None and (type_ is None or in_physical):
        message = "expected the id of a tunnel, and `segment` names none"
        hint = "Write `segment: vxlan`, `geneve` or `gre`; the id of a VLAN is `vlan`"
        yield Complaint((*path, "segment_id"), message, hint)
    elif id_ is not None and id_ > MOST_VNI and type_ is not SegmentType.GRE:
        message = f"expected {MOST_VNI} at most: a VNI has 24 bits"
        yield Complaint((*path, "segment_id"), message)


def _network(name: str, network: NetworkSection, tagged: Container[int]) -> Iterator[Complaint]:
    path = ("networks", name)
    if network.physnet and network.bridge:
        yield Complaint((*path, "bridge"), "expected physnet or bridge, got both")
    existing = network.physnet or network.bridge
    yield from _segment(path, network, tagged)
    if network.switch is Switch.OVS and not existing:
        message = "expected a physnet or bridge: nospoon makes Linux bridges only"
        yield Complaint((*path, "switch"), message, "Make the bridge with `ovs-vsctl add-br`")
    if network.netboot is Netboot.BUILTIN and existing:
        message = "expected netboot: none on an existing bridge: its owner answers DHCP there"
        yield Complaint((*path, "netboot"), message)
    if network.netboot is Netboot.BUILTIN and not network.dhcp:
        message = "expected no `dhcp: false` with netboot: builtin, which is DHCP"
        yield Complaint((*path, "dhcp"), message, "Leave out one of them")
    if network.overlay is not None and existing:
        message = "expected no overlay on an existing bridge: it leads where its owner wants"
        yield Complaint((*path, "overlay"), message)
    if network.nat and existing:
        message = "expected no NAT on an existing bridge: its owner leads out of it"
        yield Complaint((*path, "nat"), message)
    if network.cidr and existing:
        message = "expected no cidr on an existing bridge: its owner gives the addresses there"
        yield Complaint((*path, "cidr"), message, "Leave it out")
    if network.anti_spoofing:
        unfiltered = _unfiltered(network, tagged)
        why = (Complaint((*path, "anti_spoofing"), *what) for what in unfiltered)
        yield from why
    yield from (Complaint((*path, "mtu"), *what) for what in _mtu(network, existing=bool(existing)))
    for each in network.cidr:
        yield from (Complaint((*path, "cidr"), *what) for what in _unusable(each, network))


def _routers(sections: Sections) -> Iterator[Complaint]:
    """That they lead out, and are not called as a network's own router."""
    for name, network in sections.networks.items():
        path = ("networks", name, "router")
        if network.router and not network.nat:
            yield Complaint(path, "a router leads out of a network with NAT", "Write `nat: true`")
        other = sections.networks.get(network.router or "")
        if other is not None and other.nat and network.router not in {name, other.router}:
            message = f"the router of network {network.router} is called {network.router}"
            yield Complaint(path, message, f"Write `router: {network.router}` there, too")


def _unfiltered(network: NetworkSection, tagged: Container[int]) -> Iterator[tuple[str, str]]:
    """(What libvirt's filter `clean-traffic` cannot let through, how to fix it): it knows IPv4 and
    ARP without tags, on Linux bridges (https://libvirt.org/formatnwfilter.html).
    """
    drop = "or drop `anti_spoofing`"
    if network.switch is Switch.OVS:
        message = "expected a Linux bridge: ports of Open vSwitch, with or without VLANs and trunks"
        yield f"{message}, have no filters", f"Use Open vSwitch's own means, {drop}"
    elif network.vlan is not None and network.vlan not in tagged:
        yield "expected no `vlan`: the filter drops tagged frames", f"Leave `vlan` out, {drop}"
    if network.ipv6 is not None:
        message = f"expected IPv4 alone, got {network.ipv6}: the filter drops IPv6"
        yield message, f"Take an IPv4 `cidr` alone, {drop}"


def _mtu(network: NetworkSection, *, existing: bool) -> Iterator[tuple[str, str]]:
    """(What is wrong with it, how to fix it)."""
    if existing and "mtu" in network.model_fields_set:
        message = "expected no mtu on an existing bridge: machines have that of the bridge"
        yield message, "Leave it out, and set it where the bridge is made"
    if network.mtu < LEAST6 and any(each.version == 6 for each in network.cidr):
        message = f"{network.mtu} bytes are too few for IPv6, which needs {LEAST6} (RFC 8200 §5)"
        yield message, f"Take {LEAST6} or more, or an IPv4 `cidr` alone"


def _unusable(cidr: Network, network: NetworkSection) -> Iterator[tuple[str, str]]:
    """(What is wrong with it, how to fix it)."""
    example = "172.30.0.0/24" if cidr.version == 4 else "fd00:30::/64"
    if cidr.prefixlen > cidr.max_prefixlen - 2 and network.nat:
        yield f"{cidr} has no address for the host beside one for a guest", "Take a larger network"
    if unfit := _unfit(cidr, (*_NOT_FOR_HOSTS, *_LOOPBACKS)):
        yield unfit, f"Take a private one such as {example}"
    if cidr.version == 6 and cidr.prefixlen != HALF and network.netboot is Netboot.BUILTIN:
        message = f"{cidr} is not a /64, in which machines find addresses (RFC 4862 §5.5.3)"
        yield message, f"Take one such as {example}"


def _unfit(network: Network, refused: tuple[tuple[str, Network], ...]) -> str:
    return next(
        (
            f"{network} is not a network for machines: {of} is {what}"
            for what, of in refused
            if network.version == of.version and network.overlaps(of)
        ),
        "",
    )


def _overlaps(sections: Sections) -> Iterator[Complaint]:
    placed = [(name, each) for name, net in sections.networks.items() for each in net.cidr]
    for (first, one), (second, other) in combinations(placed, 2):
        if one.version == other.version and one.overlaps(other):
            message = f"{other} overlaps {one} of network {first!r}"
            yield Complaint(("networks", second, "cidr"), message)


def _pool(sections: Sections) -> Iterator[Complaint]:
    pool, path = sections.bmc.pool, ("bmc", "pool")
    if pool is None:
        return
    unfit = _unfit(pool, _NOT_FOR_HOSTS)
    if unfit:
        yield Complaint(path, unfit, "Take a private one, or one of loopback's: 127.20.0.0/24")
    for other in ("address", "ports"):
        if other in sections.bmc.model_fields_set:
            message = "with `pool` each BMC has an address of its own, and port 623 on it"
            yield Complaint(("bmc", other), message, f"Drop `{other}` or `pool`")
    for name, network in sections.networks.items():
        cidr = network.ipv4
        if cidr is None or not pool.overlaps(cidr):
            continue
        if not pool.subnet_of(cidr):
            message = f"{pool} overlaps {cidr} of network {name!r} and does not lie within it"
            yield Complaint(path, message)
        elif (network.netboot is Netboot.BUILTIN or network.nat) and cidr[1] in pool:
            message = f"{pool} holds {cidr[1]}, which is the host's own on network {name!r}"
            upper = list(cidr.subnets(prefixlen_diff=1))[-1] if cidr.prefixlen < 31 else cidr
            yield Complaint(path, message, f"Take a later part of it such as {upper}")


def _room_for_bmcs(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    wanted = sum(1 for node in expansion.nodes if node.bmc)
    ipmi = sum(1 for node in expansion.nodes if BmcProtocol.IPMI in node.bmc)
    pool, (first, last) = sections.bmc.pool, sections.bmc.ports
    if pool is not None and pool.num_addresses - 2 < wanted:
        usable = counted(max(pool.num_addresses - 2, 0), "address")
        message = f"{pool} has {usable} for {counted(wanted, 'BMC')}"
        yield Complaint(("bmc", "pool"), message, "Take a larger network")
    if pool is None and last - first + 1 < ipmi:
        message = f"{first}-{last} has {last - first + 1} ports for {ipmi} BMCs"
        yield Complaint(("bmc", "ports"), message, f"Write {first}-{first + ipmi - 1} or wider")


def _room_on_networks(sections: Sections, expansion: Expansion) -> Iterator[Complaint]:
    pool = sections.bmc.pool
    plugged = Counter(nic.network for node in expansion.nodes for nic in node.nics)
    for name, network in sections.networks.items():
        cidr = network.ipv4
        if cidr is None or network.netboot is not Netboot.BUILTIN:
            continue
        nics = plugged[name]
        within = pool is not None and pool.subnet_of(cidr)
        virtual = sum(1 for each in network.virtual_ips if each in cidr)
        room = cidr.num_addresses - NETBOOT_OVERHEAD - virtual
        if pool is not None and within:
            room -= pool.num_addresses
        if room < nics:
            beside = f" beside bmc.pool {pool}" if within else ""
            usable = counted(max(room, 0), "address")
            message = f"{cidr} has {usable} for {counted(nics, 'NIC')}{beside}"
            yield Complaint(("networks", name, "cidr"), message, "Take a larger network")
