"""`virtual_ips` of networks: what is refused, who may send from them, and who is not given one."""

from __future__ import annotations

from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import SpecError
from nospoon.model.cluster import Arch, Cluster, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Observed, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.addresses import known_addresses
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.words import describe

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
FACTS = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True, anti_spoofing=True)
CLOUD = """
hosts:
  cloud:
    openstack: {cloud: {name: c, auth: {auth_url: "http://192.0.2.1/v3", username: u, password: p}},
      boot_address: 192.0.2.9}
    physnets: {theirs: public, ours: rack}
"""


def read(network: str, nodes: str = "[{name: a, nics: [lan]}]", more: str = "") -> Cluster:
    return load(f"cluster: dev\n{more}networks:\n  lan: {network}\nnodes: {nodes}", file="x")


def decided(cluster: Cluster, earlier: Allocations | None = None) -> Allocations:
    allocations, reasons = allocate(cluster, earlier or Allocations(), Occupied())
    assert not reasons
    return allocations


def shapes(cluster: Cluster, facts: HostFacts = FACTS) -> dict[Key, Shape]:
    pools = {host.name: "/pools" for host in cluster.hosts}
    around = Surroundings(pools, {}, {}, facts={host.name: facts for host in cluster.hosts})
    return {key: each.shape for key, each in resolve(cluster, ID, decided(cluster), around).items()}


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("{virtual_ips: [224.0.0.18]}", "224.0.0.18 is not an address that hosts have"),
        ("{virtual_ips: ['fe80::1']}", "fe80::1 is not an address that hosts have"),
        ("{virtual_ips: ['fd00::1%eth0']}", "expected an IPv4 or IPv6 address, got 'fd00::1%eth0'"),
        ("{virtual_ips: [10.9.0.9, 10.9.0.9]}", "virtual_ips[1]: 10.9.0.9 is there twice"),
        ("{cidr: 10.9.0.0/24, virtual_ips: [10.8.0.9]}", "10.8.0.9 is not in 10.9.0.0/24"),
        ("{cidr: 10.9.0.0/24, virtual_ips: ['fd00::9']}", "fd00::9 is not in 10.9.0.0/24"),
        ("{cidr: 10.9.0.0/24, virtual_ips: [10.9.0.255]}", "10.9.0.255 is an end of 10.9.0.0/24"),
        ("{cidr: 10.9.0.0/24, virtual_ips: [10.9.0.7]}", "10.9.0.7 is the address of node a"),
        ("{cidr: 10.9.0.0/24, virtual_ips: [10.9.0.130]}", "10.9.0.130 is in bmc.pool"),
        ("{netboot: builtin, virtual_ips: [10.9.0.9]}", "virtual_ips: expected a `cidr` beside"),
        (
            "{netboot: builtin, cidr: 'fd00::/64', virtual_ips: ['fd00::1000']}",
            "fd00::1000 may be given to a host or by DHCP. Take one from fd00::800 to fd00::fff",
        ),
        (
            "{bridge: br0, anti_spoofing: true, virtual_ips: ['fd00::9']}",
            "fd00::9 is IPv6, which `anti_spoofing` drops",
        ),
        ("{virtual_ips: [lan]}", "expected an IPv4 or IPv6 address, got 'lan'"),
        (f"{{virtual_ips: [{', '.join(f'10.9.0.{n}' for n in range(10, 21))}]}}", "at most 10"),
    ],
)
def test_addresses_that_cannot_be_virtual_are_refused_where_they_stand(
    network: str, said: str
) -> None:
    nodes = "[{name: a, kind: vm, image: x.img, nics: [{network: lan, address: 10.9.0.7/24}]}]"
    with pytest.raises(SpecError) as caught:
        read(network, nodes, "bmc: {pool: 10.9.0.128/26}\n" if "10.9.0.130" in network else "")
    assert any(said in str(each) for each in caught.value.problems), caught.value.problems


def test_one_may_stand_alone_and_they_are_sorted() -> None:
    assert read("{virtual_ips: 10.9.0.9}").networks[0].virtual_ips == ("10.9.0.9",)
    both = read("{virtual_ips: [10.9.0.9, 10.9.0.10]}").networks[0].virtual_ips
    assert both == read("{virtual_ips: [10.9.0.10, 10.9.0.9]}").networks[0].virtual_ips


def test_no_nic_and_no_unknown_client_is_given_one() -> None:
    cluster = read(
        "{netboot: builtin, cidr: [10.9.0.0/24, 'fd00:9::/64'], "
        "virtual_ips: [10.9.0.3, 10.9.0.200, 'fd00:9::800']}",
        "[{name: a, nics: [lan]}, {name: b, nics: [lan]}]",
    )
    given = known_addresses(cluster, decided(cluster))
    assert list(given.values()) == ["10.9.0.2", "10.9.0.4"]
    (service,) = (each for each in shapes(cluster).values() if isinstance(each, NetbootService))
    assert service.range == ("10.9.0.4", "10.9.0.199")


def test_a_node_whose_address_becomes_virtual_gets_another_and_others_keep_theirs() -> None:
    nodes = "[{name: a, nics: [lan]}, {name: b, nics: [lan]}]"
    first = decided(read("{netboot: builtin, cidr: 10.9.0.0/24}", nodes))
    now = read("{netboot: builtin, cidr: 10.9.0.0/24, virtual_ips: [10.9.0.2]}", nodes)
    given = known_addresses(now, decided(now, first))
    assert given == {("a", 0): "10.9.0.4", ("b", 0): "10.9.0.3"}


def test_the_hosts_own_address_is_not_virtual() -> None:
    cluster = read("{netboot: builtin, cidr: 10.9.0.0/24, virtual_ips: [10.9.0.1]}")
    _, reasons = allocate(cluster, Allocations(), Occupied())
    said = "10.9.0.1 is the address of host here there. Take another of its `virtual_ips`."
    assert reasons == [f"network lan: {said}"]


def test_a_network_has_room_for_its_virtual_ips() -> None:
    with pytest.raises(SpecError, match=r"10\.9\.0\.0/29 has 4 addresses for 5 NICs"):
        read(
            "{netboot: builtin, cidr: 10.9.0.0/29, virtual_ips: [10.9.0.6]}",
            "[{count: 5, nics: [lan]}]",
        )


def test_a_filter_on_libvirt_lets_them_through_where_the_address_is_known() -> None:
    cluster = read(
        "{netboot: builtin, cidr: 10.9.0.0/24, anti_spoofing: true, virtual_ips: 10.9.0.9}"
    )
    (machine,) = (each for each in shapes(cluster).values() if isinstance(each, Machine))
    assert machine.nics[0].senders == ("10.9.0.2", "10.9.0.9")
    free = read("{netboot: builtin, cidr: 10.9.0.0/24, virtual_ips: 10.9.0.9}")
    (machine,) = (each for each in shapes(free).values() if isinstance(each, Machine))
    assert machine.nics[0].virtual_ips == (), "it sends whatever it likes"


def test_a_filter_that_learns_an_address_cannot_know_others() -> None:
    cluster = read("{anti_spoofing: true, virtual_ips: 10.9.0.9}")
    facts = {host.name: FACTS for host in cluster.hosts}
    (reason,) = reasons_against(cluster, ID, decided(cluster), facts)
    assert reason.startswith("network lan: with `anti_spoofing`, `virtual_ips` need `netboot: b")
    simulated = read("{anti_spoofing: true, virtual_ips: 10.9.0.9}", more="hosts: {s: simulated}\n")
    assert not list(reasons_against(simulated, ID, decided(simulated), {"s": FACTS}))


def test_in_a_cloud_only_ports_with_port_security_have_them() -> None:
    cluster = load(
        f"cluster: dev\n{CLOUD}networks:\n"
        "  ours: {physnet: ours, virtual_ips: 10.9.0.9}\n"
        "  theirs: {physnet: theirs, virtual_ips: [10.9.1.9, 'fd00::9']}\n"
        "  made: {anti_spoofing: true, virtual_ips: 10.9.2.9}\n"
        "nodes: [{name: a, nics: [ours, theirs, made]}]\n",
        file="x",
    )
    facts = HostFacts(
        frozenset(Firmware), frozenset(Arch), tpm=False,
        networks=frozenset({"public", "rack"}), own_networks=frozenset({"rack"}),
    )  # fmt: skip
    ports = [each for each in shapes(cluster, facts).values() if isinstance(each, Port)]
    assert [(each.guarded, each.virtual_ips) for each in ports] == [
        (False, ()), (True, ("10.9.1.9", "fd00::9")), (True, ("10.9.2.9",)),
    ]  # fmt: skip
    assert describe(ports[1]).endswith("on public, guarded with 10.9.1.9 and fd00::9")


def test_a_recovered_file_has_those_of_a_clouds_ports() -> None:
    tag = OwnerTag("here", ID)
    seen = [
        Observed(Key(Kind.NETWORK, "cloud", "made"), Link("ns-made"), tag),
        Observed(
            Key(Kind.PORT, "cloud", "a-0"),
            Port("ns-made", "02:00:00:00:00:01", guarded=True, virtual_ips=("10.9.2.9",)),
            tag,
        ),
    ]
    text = cluster_file("dev", ID, (), seen, lambda _: {})
    assert "virtual_ips:" in text
    assert "10.9.2.9" in text
    assert "anti_spoofing: true" in text
