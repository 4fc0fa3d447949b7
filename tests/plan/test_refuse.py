"""What hosts cannot give: every reason at once, before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network
from typing import Any
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.connections import Libvirt
from nospoon.model.host_facts import HostFacts, Route
from nospoon.plan import identity
from nospoon.plan.access import overlapping_routes
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.refuse import against_pool, cautions, reasons_against

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)


def read(text: str) -> Cluster:
    return load(f"cluster: dev\n{text}", file="x")


def decided(cluster: Cluster) -> Allocations:
    allocations, reasons = allocate(cluster, Allocations(), Occupied())
    assert not reasons
    return allocations


def reasons(cluster: Cluster, facts: HostFacts) -> list[str]:
    return list(reasons_against(cluster, ID, decided(cluster), {"here": facts}))


CACHED = """
cluster: dev
throwaway: true
hosts:
  here: {}
  cloud: {openstack: {cloud: {name: c, auth: {auth_url: "http://k"}}, boot_address: 192.0.2.9}}
nodes: [{name: a}, {name: b, disks: [{size: 1GiB, cache: none}]}, {name: c, disks: []},
  {name: d, disks: [{size: 1GiB, cache: writeback}]}, {name: e}]
"""


def test_nodes_whose_disks_are_cached_otherwise_than_their_file_says_are_named() -> None:
    cluster = load(CACHED, file="x")
    hosts = {**dict.fromkeys("abcd", "cloud"), "e": "here"}
    (found,) = cautions(cluster, Allocations(hosts=hosts), {})
    assert found == (
        "host cloud: `cache` of disks, or `throwaway`, is not used for a, b: its operator says how "
        "compute hosts cache disks (`disk_cachemodes`)"
    )
    assert not [*cautions(cluster, Allocations(hosts=dict.fromkeys("abcde", "here")), {})]


SERVED = """
networks: {lan: {nat: true, netboot: builtin}, out: {nat: true}}
nodes:
  - {name: a, kind: vm, image: i, nics: [{network: out, floating_ip: public}]}
  - {name: b, kind: vm, image: i, nics: [lan]}
services: {a: {environment: {A: x}, health: 80}, b: {health: 80, after: a, role: '#!/bin/sh'}}
"""


def test_a_service_that_no_one_can_look_at_in_a_cloud_is_refused_and_its_order_is_told() -> None:
    cluster = load(CACHED.partition("nodes:")[0] + SERVED, file="x")
    here, there = (Allocations(hosts=dict.fromkeys("ab", each)) for each in ("here", "cloud"))
    assert [*reasons_against(cluster, ID, here, {})] == []
    (why,) = reasons_against(cluster, ID, there, {})
    assert why == (
        "service b: node b is in cloud cloud, where the daemon reaches floating IPs alone: it "
        "cannot see whether the service is healthy. Give a NIC of the node a `floating_ip`, or "
        "leave `health` out."
    )
    order = (
        "a cloud starts servers when it makes them: nodes of b there do not wait for services "
        "that these come `after`"
    )
    assert order not in cautions(cluster, here, {})
    assert order in [*cautions(cluster, there, {})]


def test_every_reason_against_a_cluster_is_told_at_once() -> None:
    cluster = read(
        """
networks: {a: {cidr: 10.7.0.0/24, netboot: builtin}}
nodes:
  - {name: s, firmware: uefi-secure, tpm: true, nics: [a]}
  - {name: arm, arch: aarch64, memory: 64GiB, nics: [a]}
"""
    )
    poor = HostFacts(
        firmwares=frozenset({Firmware.UEFI}),
        archs=frozenset({Arch.X86_64}),
        tpm=False,
        memory=8 << 30,
        routes=(Route(IPv4Network("10.0.0.0/8"), "eth0"),),
    )
    told = "\n".join(reasons(cluster, poor))
    for part in ("uefi-secure", "TPM", "aarch64", "64 GiB", "10.0.0.0/8 dev eth0"):
        assert part in told


def test_a_pool_of_bmc_addresses_takes_no_route_and_no_gateway_away() -> None:
    routes = (
        Route(IPv4Network("0.0.0.0/0"), "eth0", "10.9.0.1"),
        Route(IPv4Network("10.9.0.0/24"), "eth0"),
        Route(IPv4Network("10.7.0.0/24"), "nsbridge"),
    )
    own = Allocations(cidrs={"a": "10.7.0.0/24"})

    def told(pool: str) -> list[str]:
        return list(against_pool(IPv4Network(pool), own, routes))

    assert "gateway of this machine's route 0.0.0.0/0 dev eth0" in "".join(told("10.9.0.0/28"))
    assert "holds the route 10.9.0.0/24 dev eth0" in "".join(told("10.8.0.0/15"))
    assert told("10.9.0.128/25") == []  # a part of the network that this machine is on
    assert told("10.7.0.0/24") == []  # a network that the cluster made
    assert told("10.20.0.0/24") == []


class _Counted(dict[str, str]):
    """Networks of a cluster; `times` that they were gone through."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_networks_of_a_cluster_are_not_gone_through_for_each_route() -> None:
    """A member may have a thousand of them, and thousands of routes by them."""
    own = _Counted(a="10.7.0.0/24")
    routes = tuple(Route(IPv4Network(f"10.9.{n}.0/24"), f"br{n}") for n in range(100))
    list(against_pool(IPv4Network("10.20.0.0/24"), Allocations(cidrs=own), routes))
    assert own.times == 1


def test_the_route_of_our_own_bridge_is_no_overlap() -> None:
    cluster = read("networks: {a: {cidr: 10.7.0.0/24, netboot: builtin}}\nnodes: [{count: 1}]")
    own = Route(IPv4Network("10.7.0.0/24"), identity.bridge_name(ID, "a"))
    assert reasons(cluster, replace(FACTS, routes=(own,))) == []


def test_two_libvirtds_of_one_machine_do_not_both_make_the_bridge_of_a_network() -> None:
    def told(network: str, second: str) -> list[str]:
        cluster = read(
            f"hosts: {{a: {{libvirt: 'qemu:///system'}}, b: {{libvirt: 'qemu:///session'}}}}\n"
            f"networks: {{lan: {{{network}}}}}\nnodes: [{{host: a}}, {{host: b}}]"
        )
        a, b = cluster.hosts
        cluster = replace(cluster, hosts=(a, replace(b, connection=Libvirt(second))))
        facts = {"a": FACTS, "b": FACTS}
        facts = {k: replace(v, links=frozenset({"br0"}), bridges=frozenset({"br0"}))
                 for k, v in facts.items()}  # fmt: skip
        return list(reasons_against(cluster, ID, decided(cluster), facts))

    beside = "qemu+unix:///system?socket=/run/second/libvirt-sock"
    (why,) = told("", beside)
    assert why.startswith("network lan: hosts a and b are libvirtds of one machine")
    assert told("bridge: br0", beside) == []
    assert told("", "qemu:///session") == []
    assert told("", "qemu+ssh://rack/system") == []


def test_session_hosts_refuse_addressed_and_bridged_networks() -> None:
    cluster = read(
        """
networks: {a: {cidr: 10.7.0.0/24, netboot: builtin}, b: {bridge: br0}}
nodes: [{nics: [a, b]}]
"""
    )
    session = replace(cluster.hosts[0], connection=Libvirt("qemu:///session"))
    told = reasons(replace(cluster, hosts=(session,)), FACTS)
    assert len(told) == 2
    assert all("qemu:///session" in reason for reason in told)


def test_a_bridge_that_a_host_does_not_have_is_refused() -> None:
    cluster = read(
        "hosts: {here: {physnets: {public: br-ex}}}\n"
        "networks: {a: {physnet: public}, b: {bridge: br0}, c: {bridge: br1}}\n"
        "nodes: [{nics: [a, b, c]}]"
    )
    facts = {"here": replace(FACTS, links=frozenset({"lo", "br1"}), bridges=frozenset({"br1"}))}
    reasons = list(reasons_against(cluster, ID, decided(cluster), facts))
    assert [reason.partition(". ")[0] for reason in reasons] == [
        "network a: host here has no bridge br-ex",
        "network b: host here has no bridge br0",
    ]


FAR = "{ssh: ADDRESS, libvirt: 'qemu+ssh://ADDRESS/system'}"


def far(*addresses: str) -> str:
    named = (f"h{n}: {FAR.replace('ADDRESS', each)}" for n, each in enumerate(addresses))
    return f"hosts: {{{', '.join(named)}}}\n"


def test_a_tunnel_needs_two_machines_with_addresses() -> None:
    text = "networks: {lan: {overlay: vxlan}}\nnodes: [{count: 2}]"
    for hosts, expected in (
        (far("198.51.100.1", "198.51.100.1"), "hosts h0 and h1 have the address 198.51.100.1"),
        (far("rack-a", "198.51.100.1"), "host h0 has no `address` for others"),
    ):
        cluster = read(hosts + text)
        facts = {host.name: FACTS for host in cluster.hosts}
        (reason,) = reasons_against(cluster, ID, decided(cluster), facts)
        assert expected in reason


def test_names_that_ironic_refuses_are_refused_before_machines_are_made() -> None:
    names = ("states", "12345678-1234-1234-1234-123456789abc", "12345678123412341234123456789abc")
    others = ("state", "1234-5678", "12345678-1234-1234-1234-123456789abg")
    nodes = "".join(f"  - {{name: {name!r}}}\n" for name in (*names, *others))
    text = f"nodes:\n{nodes}"
    ironic = "ironic: {endpoint: 'http://i', deploy_kernel: 'http://k', deploy_ramdisk: 'http://r'}"
    assert reasons(read(text), FACTS) == []
    refused = reasons(read(f"{ironic}\n{text}"), FACTS)
    assert [each.partition(":")[0] for each in refused] == [f"node {name}" for name in names]
    assert refused[0].endswith("Ironic keeps this name for itself: give it another")
    assert refused[1].endswith("a node in Ironic must not have a UUID as its name")


def test_a_host_whose_disks_qemu_cannot_reach_is_named_before_machines_are_made() -> None:
    cluster = read("nodes: [{name: a}]")
    facts = {"here": replace(FACTS, closed="/root"), "elsewhere": replace(FACTS, closed="/home")}
    (caution,) = cautions(cluster, decided(cluster), facts)
    assert caution.startswith("host here: QEMU runs there as another user")
    assert caution.endswith(
        "run `chmod o+x /root`, or set NOSPOON_POOL_DIR to a place outside of homes"
    )


def test_the_setting_that_moves_pools_here_is_not_named_for_a_host_elsewhere() -> None:
    cluster = read(far("198.51.100.1") + "nodes: [{name: a}]")
    (caution,) = cautions(cluster, decided(cluster), {"h0": replace(FACTS, closed="/srv/x")})
    assert caution.endswith("run `chmod o+x /srv/x` on that host")


def test_too_little_memory_for_a_firmware_is_told_where_guests_are_real() -> None:
    text = "nodes: [{memory: 128MiB, name: u}, {memory: 128MiB, firmware: bios, name: b}]"
    cluster = read(text)
    (caution,) = cautions(cluster, decided(cluster), {"here": replace(FACTS, real=True)})
    assert caution.startswith("node u: 128 MiB")
    assert caution.endswith("give it 256 MiB")
    assert not list(cautions(cluster, decided(cluster), {"here": FACTS}))


@pytest.mark.parametrize(
    ("host", "restore", "told"),
    [
        ("libvirt: qemu+tls://rack/system", "restore: on", True),
        ("libvirt: qemu+tls://rack/system", "restore: previous", True),
        ("libvirt: qemu+tls://rack/system", "restore: off", False),
        ("libvirt: qemu+tls://rack/system", "cpus: 1", False),
        ("libvirt: qemu+tls://rack/system, ssh: root@rack", "restore: on", False),
        ("libvirt: qemu+ssh://root@rack/system", "restore: on", True),
        ("libvirt: qemu:///system", "restore: on", False),
        ("simulated: true", "restore: on", False),
    ],
)
def test_a_host_that_cannot_be_asked_whether_it_rebooted_is_told(
    host: str, restore: str, *, told: bool
) -> None:
    cluster = read(f"hosts: {{h: {{{host}}}}}\nnodes: [{{{restore}}}]")
    found = list(cautions(cluster, decided(cluster), {"h": FACTS}))
    assert [each.startswith("host h: nospoon cannot ask it") for each in found] == [True] * told


ENROLLED = (
    "ironic: {endpoint: 'http://i', deploy_kernel: 'http://k', deploy_ramdisk: 'http://r', %s}\n"
    "nodes: [{name: n}, {name: m}]"
)
DEPLOYED = f"state: active, image: 'http://i', checksum: '{'a' * 64}'"


@pytest.mark.parametrize(
    ("host", "state", "real", "told"),
    [
        ("simulated: {}", DEPLOYED, False, True),
        ("simulated: {}", "state: inspected", False, True),
        ("simulated: {}", "state: available", False, False),
        ("simulated: {agents: {boot_script: 'http://s'}}", DEPLOYED, False, False),
        ("libvirt: 'qemu:///system'", DEPLOYED, True, False),
    ],
)
def test_nodes_that_wait_for_an_agent_where_none_runs_are_told(
    host: str, state: str, *, real: bool, told: bool
) -> None:
    cluster = read(f"hosts: {{h: {{{host}}}}}\n{ENROLLED % state}")
    found = list(cautions(cluster, decided(cluster), {"h": replace(FACTS, real=real)}))
    waits = [each for each in found if "Ironic needs an agent" in each]
    assert [each.startswith("node n and 1 more: Ironic") for each in waits] == [True] * told


@pytest.mark.parametrize(
    ("cidr", "node", "told"),
    [
        ("fd00:30::/64", "firmware: bios", True),
        ("fd00:30::/64", "firmware: uefi-secure", True),
        ("fd00:30::/64", "arch: aarch64", True),
        ("fd00:30::/64", "firmware: uefi", False),
        ("172.30.0.0/24", "firmware: bios", False),
    ],
)
def test_who_cannot_boot_by_ipv6_is_told(cidr: str, node: str, *, told: bool) -> None:
    text = (
        f"networks: {{six: {{cidr: '{cidr}', netboot: builtin}}}}\n"
        f"nodes: [{{name: u, memory: 1GiB, nics: [six], {node}}}]"
    )
    cluster = read(text)
    found = list(cautions(cluster, decided(cluster), {"here": replace(FACTS, real=True)}))
    assert [each.startswith("node u: firmware") for each in found] == [True] * told


def test_a_bridge_that_is_not_of_the_kind_that_the_file_says_is_refused() -> None:
    facts = replace(FACTS, links=frozenset({"br0"}), bridges=frozenset({"br0"}))
    text = "networks: {lan: {bridge: br0%s}}\nnodes: [{}]"
    plain, ovs = (read(text % more) for more in ("", ", switch: ovs"))
    assert reasons(plain, facts) == []
    assert "is not an Open vSwitch bridge" in "".join(reasons(ovs, facts))
    facts = replace(facts, bridges=frozenset(), ovs_bridges=frozenset({"br0"}))
    assert reasons(ovs, facts) == []
    assert "Write `switch: ovs`" in "".join(reasons(plain, facts))


def test_a_network_takes_over_no_address_that_the_host_uses() -> None:
    """Its guests would answer the host in place of its server of names."""
    used = Route(IPv4Network("10.7.0.53/32"), "eth0", used="a server of names")
    everywhere = Route(IPv4Network("0.0.0.0/0"), "eth0", "192.0.2.1")
    text = "networks: {a: {cidr: 10.7.0.0/24}}\nnodes: [{count: 2}]"
    assert reasons(read(text), replace(FACTS, routes=(everywhere,))) == []
    (reason,) = reasons(read(text), replace(FACTS, routes=(everywhere, used)))
    assert "10.7.0.0/24 overlaps 10.7.0.53 (a server of names), which is reached through" in reason
    (refused,) = overlapping_routes(IPv4Network("10.7.0.0/26"), (), (everywhere, used))
    assert "bmc.pool: 10.7.0.0/26 overlaps 10.7.0.53 (a server of names)" in refused


def test_a_route_of_ipv6_is_in_the_way_of_its_like_only() -> None:
    six = "networks: {a: {cidr: 'fd00:30::/64', netboot: builtin}}\nnodes: [{count: 2}]"
    route = Route(IPv6Network("fd00:30::/48"), "eth0")
    (reason,) = reasons(read(six), replace(FACTS, routes=(route,)))
    assert "network a: fd00:30::/64 overlaps the route fd00:30::/48 dev eth0" in reason
    everywhere = Route(IPv6Network("::/0"), "eth0", "fe80::1")
    assert reasons(read(six), replace(FACTS, routes=(everywhere,))) == []
    four = "networks: {a: {cidr: 10.7.0.0/24, netboot: builtin}}\nnodes: [{count: 1}]"
    assert reasons(read(four), replace(FACTS, routes=(route,))) == []


def test_a_network_that_is_renamed_is_told_to_go_first() -> None:
    cluster = read("networks: {wan: {cidr: 10.7.0.0/24}}\nnodes: [{count: 1}]")
    bridge = identity.bridge_name(ID, "lan")
    facts = {"here": replace(FACTS, routes=(Route(IPv4Network("10.7.0.0/24"), bridge),))}
    before = Allocations(cidrs={"lan": "10.7.0.0/24"})
    (reason,) = reasons_against(cluster, ID, decided(cluster), facts, before=before)
    assert f"dev {bridge} (network lan, to be removed by an `up` before this) of host" in reason


def test_what_no_node_uses_and_short_passwords_are_noted() -> None:
    cluster = read(
        "networks: {a: {}, spare: {}}\nflavors: {f: {}, g: {}}\n"
        "boot: {p: {kernel: http://k}, q: {kernel: http://k}}\nbmc: {password: short}\n"
        "nodes: [{count: 2, flavor: f, nics: [a], boot: p}]"
    )
    *unused, short = cautions(cluster, decided(cluster), {"here": FACTS})
    assert unused == [
        "no node uses network spare",
        "no node uses boot profile q",
        "no node uses flavor g",
    ]
    assert short.startswith("node node-0 and 1 more: the password has fewer than 8 characters")
