"""From a file to resources: identity, allocation, needs."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network
from uuid import UUID, uuid5

import pytest

from nospoon.clusterfile.load import load
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.images import HypervisorType
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.storage import Image, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan import identity
from nospoon.plan.addresses.allocate import Allocations, Endpoint, Occupied, allocate
from nospoon.plan.order.order import dependents
from nospoon.plan.placement.placement import place
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import ImageFacts, Surroundings
from nospoon.plan.resolution.resolve import resolve

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)


def read(text: str) -> Cluster:
    return load(f"cluster: dev\n{text}", file="x")


def decided(cluster: Cluster, **occupied: object) -> Allocations:
    allocations, reasons = allocate(cluster, Allocations(), Occupied(**occupied))  # type: ignore[arg-type]
    assert not reasons
    return allocations


def resources(cluster: Cluster, images: dict[str, ImageFacts] | None = None) -> dict[Key, object]:
    roots = {host.name: "/pools" for host in cluster.hosts}
    around = Surroundings(roots, images or {}, {})
    return {k: r.shape for k, r in resolve(cluster, ID, decided(cluster), around).items()}


def test_a_disk_that_rotates_has_a_rate_and_one_that_does_not_says_so() -> None:
    disks = ", ".join(
        f"{{size: 1GiB, bus: {bus}, rotational: {told}}}"
        for bus, told in (("scsi", "true"), ("sata", "false"))
    )
    machine = resources(read(f"nodes: [{{disks: [{disks}]}}]"))[Key(Kind.MACHINE, "here", "node-0")]
    assert isinstance(machine, Machine)
    assert [disk.rotation_rate for disk in machine.disks] == [7200, 1]


@pytest.mark.parametrize(("bytes_", "made"), [(1024, 1024), (1025, 2048), (512, 1024)])
def test_a_disk_of_an_image_is_as_large_as_libvirt_makes_it(bytes_: int, made: int) -> None:
    facts = {"a.img": ImageFacts("0" * 64, "raw", bytes_)}
    found = resources(read("nodes: [{kind: vm, image: a.img}]"), facts)
    volume = found[Key(Kind.VOLUME, "here", "node-0-0")]
    assert isinstance(volume, Volume)
    assert volume.size == made


def test_a_cloud_has_an_image_for_each_machine_type_that_it_was_loaded_for() -> None:
    login = "{name: c, auth: {auth_url: 'http://192.0.2.1/', username: u, password: p}}"
    hosts = f"hosts: {{cloud: {{openstack: {{cloud: {login}}}, physnets: {{lan: private}}}}}}\n"
    nodes = "[{name: a, kind: vm, image: 'store:r'}, {name: b, kind: vm, image: r.img}]"
    cluster = read(f"{hosts}networks: {{lan: {{physnet: lan}}}}\nnodes: {nodes}")
    first, second = cluster.nodes
    typed = replace(first, image_types=(HypervisorType.KVM,))
    facts = dict.fromkeys(("store:r", "r.img"), ImageFacts("0" * 64, "raw", 1 << 20))
    found = resources(replace(cluster, nodes=(typed, second)), facts)
    images = {key.name: each for key, each in found.items() if isinstance(each, Image)}
    assert {name: each.hypervisor_type for name, each in images.items()} == {
        f"image-{'0' * 16}-uefi": "", f"image-{'0' * 16}-uefi-qemu": "qemu",
    }  # fmt: skip
    roots = [each.disks[0].volume for each in found.values() if isinstance(each, Machine)]
    assert sorted(roots) == sorted(images)


def test_identities_are_derived_and_steady() -> None:
    uuid = identity.node_uuid(ID, "n0")
    assert uuid == identity.node_uuid(ID, "n0") != identity.node_uuid(ID, "n1")
    assert {identity.node_uuid(ID, f"n{i}") for i in range(500)} == {
        uuid5(ID, f"n{i}") for i in range(500)
    }
    assert uuid.version == 5
    assert identity.mac_address(uuid, 0).startswith("02:")
    assert len({identity.mac_address(uuid, n) for n in range(8)}) == 8
    assert len(identity.bridge_name(ID, "a-very-long-network-name")) <= 15


def test_a_node_becomes_volumes_a_machine_and_a_bmc_on_its_network() -> None:
    found = resources(read("nodes: [{count: 2, disks: [1GiB, 2GiB]}]"))
    kinds = [key.kind for key in found]
    assert kinds.count(Kind.VOLUME) == 4
    assert kinds.count(Kind.NETBOOT) == kinds.count(Kind.NETWORK) == kinds.count(Kind.POOL) == 1
    machine = found[Key(Kind.MACHINE, "here", "node-0")]
    assert isinstance(machine, Machine)
    assert [disk.volume for disk in machine.disks] == ["node-0-0", "node-0-1"]
    assert {(disk.cache, disk.discard, disk.rotation_rate) for disk in machine.disks} == {
        ("writeback", "unmap", 0)
    }
    netboot = found[Key(Kind.NETBOOT, "here", "provision")]
    assert isinstance(netboot, NetbootService)
    assert [each.hostname for each in netboot.reservations] == ["node-0", "node-1"]
    assert netboot.reservations[0].mac == machine.nics[0].mac
    assert len({each.address for each in netboot.reservations}) == 2


def test_nodes_that_need_the_same_image_share_it() -> None:
    facts = ImageFacts("ab" * 32, "qcow2", 3 << 30)
    found = resources(read("nodes: [{count: 2, disks: [{image: a.qcow2}]}]"), {"a.qcow2": facts})
    (image,) = [key for key in found if key.kind is Kind.IMAGE]
    volume = found[Key(Kind.VOLUME, "here", "node-1-0")]
    assert volume == Volume(identity.pool_name(ID, "dev"), 3 << 30, image.name)


def test_bmcs_get_a_port_each_and_keep_it() -> None:
    cluster = read("nodes: [{count: 3}]")
    first = decided(cluster)
    assert [e.ipmi_port for e in first.endpoints.values()] == [6230, 6231, 6232]
    fewer = replace(cluster, nodes=cluster.nodes[1:])
    again, _ = allocate(fewer, first, Occupied())
    assert again.endpoints["node-1"].ipmi_port == 6231


def test_another_port_for_redfish_moves_no_ipmi() -> None:
    text = "bmc: {ports: 6300-6301, redfish_port: PORT}\nnodes: [{count: 2}]"
    before = decided(read(text.replace("PORT", "8001")))
    own = {(each.address, each.ipmi_port) for each in before.endpoints.values()}
    after, reasons = allocate(read(text.replace("PORT", "8002")), before, Occupied(endpoints=own))
    assert not reasons
    moved = {name: replace(each, redfish_port=8002) for name, each in before.endpoints.items()}
    assert after.endpoints == moved


def test_ports_that_others_use_are_passed_over() -> None:
    taken = frozenset({("127.0.0.1", 6230), ("127.0.0.1", 6232)})
    ports = [
        e.ipmi_port
        for e in decided(read("nodes: [{count: 2}]"), endpoints=taken).endpoints.values()
    ]
    assert ports == [6231, 6233]


def test_a_port_taken_on_all_addresses_is_passed_over_by_ports_and_shared_by_pools() -> None:
    taken = frozenset({("0.0.0.0", 623)})
    ported = decided(read("bmc: {ports: 623-630}\nnodes: [{}]"), endpoints=taken)
    assert [each.ipmi_port for each in ported.endpoints.values()] == [624]
    pooled = decided(read("bmc: {pool: 127.5.0.0/29}\nnodes: [{}]"), endpoints=taken)
    assert [each.ipmi_port for each in pooled.endpoints.values()] == [623]


def test_ports_of_all_addresses_pass_over_one_that_is_taken_on_any() -> None:
    taken = frozenset({("127.0.0.9", 1623)})
    cluster = read("bmc: {address: 0.0.0.0, ports: 1623-1630}\nnodes: [{}]")
    ported = decided(cluster, endpoints=taken)
    assert [each.ipmi_port for each in ported.endpoints.values()] == [1624]


def test_a_pool_gives_each_bmc_an_address_and_the_standard_port() -> None:
    cluster = read("bmc: {pool: 127.5.0.0/29}\nnodes: [{count: 2}]")
    assert list(decided(cluster).endpoints.values()) == [
        Endpoint("127.5.0.1", 623, 8000),
        Endpoint("127.5.0.2", 623, 8000),
    ]


def test_when_others_have_taken_all_ports_the_reason_is_told() -> None:
    cluster = read("bmc: {ports: 6230-6230}\nnodes: [{count: 1}]")
    taken = Occupied(endpoints=frozenset({("127.0.0.1", 6230)}))
    _, reasons = allocate(cluster, Allocations(), taken)
    (reason,) = reasons
    assert reason.startswith("node node-0: no free BMC endpoint left. All of 6230-6230 are in use")


def test_a_free_network_overlaps_nothing_and_is_kept() -> None:
    cluster = read("nodes: [{count: 1}]")
    taken = (IPv4Network("172.30.0.0/23"),)
    first = decided(cluster, networks=taken)
    assert first.cidrs == {"provision": "172.30.2.0/24"}
    again, _ = allocate(cluster, first, Occupied())
    assert again.cidrs == first.cidrs


def test_the_search_for_a_free_network_begins_where_it_is_told_and_goes_round() -> None:
    cluster = read("nodes: [{count: 1}]")
    last, _ = allocate(cluster, Allocations(), Occupied(), first_choice=255)
    assert last.cidrs == {"provision": "172.30.255.0/24"}
    taken = Occupied(networks=(IPv4Network("172.30.255.0/24"),))
    round_, _ = allocate(cluster, Allocations(), taken, first_choice=255)
    assert round_.cidrs == {"provision": "172.30.0.0/24"}


def test_nodes_spread_over_hosts_and_stay() -> None:
    cluster = read("hosts: {a: {}, b: {}}\nnodes: [{count: 4}]")
    first = decided(cluster)
    assert sorted(first.hosts.values()) == ["a", "a", "b", "b"]
    more = read("hosts: {b: {}, a: {}}\nnodes: [{count: 5}]")
    again, _ = allocate(more, first, Occupied())
    assert {n: again.hosts[n] for n in first.hosts} == first.hosts


def test_session_hosts_have_no_links_and_boot_our_iso() -> None:
    found = resources(read("hosts: {me: {libvirt: 'qemu:///session'}}\nnodes: [{count: 1}]"))
    assert not {Kind.NETWORK, Kind.NETBOOT} & {key.kind for key in found}
    machine = found[Key(Kind.MACHINE, "me", "node-0")]
    assert isinstance(machine, Machine)
    assert machine.boot is BootMethod.SCRIPT
    assert machine.nics[0].network == ""


def test_a_node_without_protocols_has_a_silent_bmc() -> None:
    found = resources(read("nodes: [{bmc: []}]"))
    bmc = found[Key(Kind.BMC, "here", "node-0")]
    assert isinstance(bmc, Bmc)
    assert (bmc.address, bmc.ipmi_port, bmc.redfish_port) == ("", 0, 0)


def test_machines_and_strangers_get_no_address_of_a_bmc() -> None:
    cluster = read(
        "networks: {lan: {cidr: 10.9.0.0/26, netboot: builtin}}\n"
        "bmc: {pool: 10.9.0.4/30}\nnodes: [{count: 2}]"
    )
    found = resources(cluster)
    service = found[Key(Kind.NETBOOT, "here", "lan")]
    assert isinstance(service, NetbootService)
    assert service.range == ("10.9.0.8", "10.9.0.62")
    bigger = replace(cluster, nodes=(*cluster.nodes, replace(cluster.nodes[0], name="c", bmc=())))
    service = resources(bigger)[Key(Kind.NETBOOT, "here", "lan")]
    assert isinstance(service, NetbootService)
    given = [each.address for each in service.reservations]
    assert given == ["10.9.0.2", "10.9.0.3", "10.9.0.8"]


def test_a_network_that_is_chosen_leaves_the_pool_of_bmcs_alone() -> None:
    cluster = read("bmc: {pool: 172.30.0.0/25}\nnodes: [{count: 1}]")
    assert decided(cluster).cidrs == {"provision": "172.30.1.0/24"}


def test_an_interface_stands_for_the_bridge_that_it_is_plugged_into() -> None:
    cluster = read(
        "hosts: {here: {physnets: {public: eth1, other: eth2}}}\n"
        "networks: {a: {physnet: public}, b: {physnet: other}}\nnodes: [{nics: [a, b]}]"
    )
    links = frozenset({"eth1", "eth2", "br-eth1"})
    plugged = replace(
        FACTS, links=links, bridges=frozenset({"br-eth1"}), masters={"eth1": "br-eth1"}
    )
    (reason,) = reasons_against(cluster, ID, decided(cluster), {"here": plugged})
    assert "eth2 is an interface in no bridge. `nospoon host setup` makes one" in reason
    around = Surroundings({"here": "/pools"}, {}, {}, {"here": plugged})
    found = resolve(cluster, ID, decided(cluster), around)
    machine = found[Key(Kind.MACHINE, "here", "node-0")].shape
    assert isinstance(machine, Machine)
    assert [nic.network for nic in machine.nics] == ["br-eth1", "eth2"]


FAR = "{ssh: ADDRESS, libvirt: 'qemu+ssh://ADDRESS/system'}"


def far(*addresses: str) -> str:
    named = (f"h{n}: {FAR.replace('ADDRESS', each)}" for n, each in enumerate(addresses))
    return f"hosts: {{{', '.join(named)}}}\n"


def test_an_overlay_joins_the_hosts_that_are_used() -> None:
    text = "networks: {lan: {overlay: vxlan, netboot: builtin}}\nnodes: [{count: 2}]"
    found = resources(read(far("root@198.51.100.1", "198.51.100.2", "198.51.100.3") + text))
    links = [shape for shape in found.values() if isinstance(shape, Link)]
    ends = [link.tunnel for link in links if link.tunnel is not None]
    assert [(end.local, end.peers) for end in ends] == [
        ("198.51.100.1", ("198.51.100.2",)),
        ("198.51.100.2", ("198.51.100.1",)),
    ]
    assert len({end.vni for end in ends}) == 1
    assert 0 < ends[0].vni < 1 << 24
    served = [shape for shape in found.values() if isinstance(shape, NetbootService)]
    assert [each.address.partition("/")[0].rpartition(".")[2] for each in served] == ["1", "2"]
    assert {each.range for each in served} == {("", "")}
    given = [each.address.rpartition(".")[2] for serve in served for each in serve.reservations]
    assert given == ["4", "5"]


def test_a_nic_has_a_port_of_its_own_on_a_bridge_and_none_on_a_user_mode_network() -> None:
    nodes = "nodes: [{count: 2, nics: [provision, provision]}]"
    machines = [each for each in resources(read(nodes)).values() if isinstance(each, Machine)]
    ports = [nic.port for machine in machines for nic in machine.nics]
    assert len(set(ports)) == 4
    assert all(0 < len(port) <= 15 for port in ports)
    session = "hosts: {here: {libvirt: 'qemu:///session'}}\n" + nodes
    machines = [each for each in resources(read(session)).values() if isinstance(each, Machine)]
    assert {nic.port for machine in machines for nic in machine.nics} == {""}


def test_a_portgroup_is_nobodys_shape_so_that_its_change_touches_no_machine() -> None:
    plain = "nodes: [{count: 1, nics: [provision, {network: provision%s}]%s}]"
    bonded = plain % (", portgroup: bond0", ", portgroups: {bond0: {mode: 802.3ad}}")
    assert resources(read(plain % ("", ""))) == resources(read(bonded))


def test_a_network_with_a_way_out_has_the_hosts_address_and_a_route_for_its_guests() -> None:
    found = resources(read("networks: {lan: {nat: true, cidr: 10.9.0.0/24}}\nnodes: [{}]"))
    link = found[Key(Kind.NETWORK, "here", "lan")]
    assert isinstance(link, Link)
    assert (link.address, link.nat) == ("10.9.0.1/24", True)
    assert Key(Kind.NETBOOT, "here", "lan") not in found
    text = "networks: {lan: {nat: true, netboot: builtin}}\nnodes: [{}]"
    netboot = resources(read(text))[Key(Kind.NETBOOT, "here", "lan")]
    assert isinstance(netboot, NetbootService)
    assert netboot.routed


SIX = "networks: {a: {cidr: 'fd00:30::/64', netboot: builtin}}\nnodes: [{count: 2}]"


def test_a_network_may_be_of_ipv6_alone_or_of_both() -> None:
    found = resources(read(SIX.replace("'fd00:30::/64'", "[10.7.0.0/24, 'fd00:30::/64']")))
    link = found[Key(Kind.NETWORK, "here", "a")]
    assert isinstance(link, Link)
    assert (link.address, link.address6) == ("10.7.0.1/24", "fd00:30::1/64")
    served = found[Key(Kind.NETBOOT, "here", "a")]
    assert isinstance(served, NetbootService)
    assert [(each.address, each.address6) for each in served.reservations] == [
        ("10.7.0.2", "fd00:30::1000"), ("10.7.0.3", "fd00:30::1001"),
    ]  # fmt: skip
    assert (served.host, served.addresses) == ("10.7.0.1", ("10.7.0.1", "fd00:30::1"))
    alone = resources(read(SIX))[Key(Kind.NETBOOT, "here", "a")]
    assert isinstance(alone, NetbootService)
    assert (alone.address, alone.range, alone.host) == ("", ("", ""), "[fd00:30::1]")


def test_uefi_looks_for_ipv6_only_where_a_network_has_it() -> None:
    def looks(text: str) -> object:
        machine = resources(read(text))[Key(Kind.MACHINE, "here", "node-0")]
        assert isinstance(machine, Machine)
        return machine.ipv6

    assert looks(SIX)
    assert not looks("nodes: [{}]")
    assert not looks(SIX.replace("count: 2", "firmware: bios"))


def test_who_has_the_ports_that_are_missing_is_named() -> None:
    cluster = read("bmc: {ports: 7000-7000}\nnodes: [{}]")
    occupied = Occupied(endpoints={("127.0.0.1", 7000)}, holder=lambda port: f"dnsmasq at {port}")
    _, reasons = allocate(cluster, Allocations(), occupied)
    (reason,) = reasons
    assert "All of 7000-7000 are in use, 7000 by dnsmasq at 7000: widen `bmc.ports`." in reason


def test_a_node_that_leaves_keeps_its_bmcs_place_until_it_is_gone() -> None:
    both = decided(read("nodes: [{name: a}, {name: b}]"))
    one = replace(both, endpoints={"b": both.endpoints["b"]})
    kept = one.with_leavers(both, {"a"})
    assert kept.endpoints == both.endpoints
    assert kept.without({"a"}) == one
    back, _ = allocate(read("nodes: [{name: c}, {name: a}, {name: b}]"), kept, Occupied())
    assert back.endpoints["a"] == both.endpoints["a"]


BESIDE = """\
hosts: {here: {libvirt: 'qemu:///system', lxc: true}}
networks: {lan: {netboot: builtin, nat: true}}
"""
ROOT = {"root.tar": ImageFacts("0" * 64, "tar", 1 << 20)}


def test_containers_are_on_the_networks_of_their_hosts_first_connection() -> None:
    nodes = "nodes: [{name: metal, nics: lan}, {name: box, kind: container, image: root.tar}]"
    cluster = read(f"{BESIDE}{nodes}")
    roots = {host.name: "/pools" for host in cluster.hosts}
    made = resolve(cluster, ID, decided(cluster), Surroundings(roots, ROOT, {}))
    box = made[Key(Kind.MACHINE, "here:lxc", "box")]
    link = Key(Kind.NETWORK, "here", "lan")
    assert [key for key in made if key.kind is Kind.NETWORK] == [link]
    assert link in box.needs
    assert isinstance(box.shape, Machine)
    assert box.shape.nics[0].network == identity.bridge_name(ID, "lan")
    (service,) = (each.shape for each in made.values() if each.key.kind is Kind.NETBOOT)
    assert isinstance(service, NetbootService)
    assert [each.hostname for each in service.reservations] == ["metal", "box"]
    assert made[Key(Kind.VOLUME, "here:lxc", "box-0")].needs[0].place == "here:lxc"


def test_a_network_with_containers_alone_is_made_all_the_same() -> None:
    cluster = read(f"{BESIDE}nodes: [{{name: box, kind: container, image: root.tar}}]")
    found = resources(cluster, ROOT)
    assert [key.place for key in found if key.kind is Kind.NETWORK] == ["here"]
    assert [key.place for key in found if key.kind is Kind.POOL] == ["here:lxc"]


def test_a_network_is_removed_after_the_containers_on_it() -> None:
    cluster = read(f"{BESIDE}nodes: [{{name: box, kind: container, image: root.tar}}]")
    tag = OwnerTag("d", ID)
    around = Surroundings({host.name: "/pools" for host in cluster.hosts}, ROOT, {})
    made = resolve(cluster, ID, decided(cluster), around)
    observed = [Observed(key, each.shape, tag) for key, each in made.items()]
    machine = Key(Kind.MACHINE, "here:lxc", "box")
    assert machine in dependents(observed)[Key(Kind.NETWORK, "here", "lan")]


def test_what_hosts_lack_for_networks_of_containers_is_said_of_those_that_make_them() -> None:
    text = BESIDE.replace("nat: true", "anti_spoofing: true")
    cluster = read(f"{text}nodes: [{{name: box, kind: container, image: root.tar}}]")
    first = replace(FACTS, anti_spoofing=True)
    _, reasons = place(cluster, {}, {"here": first, "here:lxc": FACTS}, {})
    said = " ".join(reasons)
    assert "network lan: containers are not filtered there" in said
    assert "`virsh nwfilter-dumpxml clean-traffic` fails on that host. Start libvirtd" in said
    facts = {"here": first, "here:lxc": replace(FACTS, anti_spoofing=True)}
    assert place(cluster, {}, facts, {})[1] == []
    made = resources(cluster, ROOT)[Key(Kind.MACHINE, "here:lxc", "box")]
    assert isinstance(made, Machine)
    assert made.nics[0].sends_from, "the address that DHCP gives it"
    text = BESIDE.replace("netboot: builtin, nat: true", "bridge: br9")
    cluster = read(f"{text}nodes: [{{name: box, kind: container, image: root.tar}}]")
    first = replace(FACTS, links=frozenset({"br0"}))
    _, reasons = place(cluster, {}, {"here": first, "here:lxc": FACTS}, {})
    assert "host here has no bridge br9" in " ".join(reasons)
    away = HostFacts.of_one_away("it is off")
    _, reasons = place(cluster, {}, {"here": away, "here:lxc": FACTS}, {})
    assert "its bridges are unreachable: it is off" in " ".join(reasons)
