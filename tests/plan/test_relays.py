"""Relays of clouds: what is planned of them, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Network
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import SpecError
from nospoon.model.boot import BOOT_URL
from nospoon.model.cluster import Arch, Cluster, Firmware, Netboot
from nospoon.model.host_facts import HostFacts, SizeOffered
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import FloatingIp, Link, Port
from nospoon.model.resources.relays import RELAY, Relay, relay_of
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import BootImage, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.found_numbers import found_nics
from nospoon.plan.addresses.numbers import HostNumbers
from nospoon.plan.diff.diff import diff, removal
from nospoon.plan.order.order import Half, moves
from nospoon.plan.order.steps import Action
from nospoon.plan.relays import address_of, url_of
from nospoon.plan.resolution.around import ImageFacts, Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.seeds import against_boot_urls
from nospoon.plan.words import describe

ID = UUID("5d0f2f0e-0000-4000-8000-000000000001")
SIZE = SizeOffered("metal", "1", 2, 4 << 30, 100 << 30, 1 << 30)
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=False, real=True,
    anti_spoofing=True, sizes=(SIZE,), flavors={"metal": SIZE, "m1.tiny": SIZE},
    networks=frozenset({"rack", "public"}), own_networks=frozenset({"rack"}),
    external_networks=(("public", "p"),),
)  # fmt: skip
RELAYED = "network: lan, image: debian-12, flavor: m1.tiny"
FILE = """
cluster: dev
hosts:
  cloud:
    openstack:
      cloud: {{name: c, auth: {{auth_url: "http://192.0.2.1/v3", username: u, password: p}}}}
      relay: {{{relay}}}
      {more}
    physnets: {{ours: rack}}
networks: {{lan: {network}}}
nodes: [{{name: a, memory: 1GiB, disks: [1GiB], nics: {nics}}}]
"""
CIDR = "{nat: true, cidr: 10.1.0.0/24}"


def read(
    relay: str = RELAYED, network: str = CIDR, *, nics: str = "[lan]", more: str = ""
) -> Cluster:
    return load(FILE.format(relay=relay, network=network, nics=nics, more=more), file="x")


def wanted(
    cluster: Cluster, key: str = "k", images: Mapping[str, ImageFacts] | None = None
) -> dict[Key, Resource]:
    allocations, reasons = allocate(cluster, Allocations(), Occupied(), facts={"cloud": FACTS})
    assert not reasons
    around = Surroundings({}, images or {}, {}, facts={"cloud": FACTS}, relay_keys={"cloud": key})
    return resolve(cluster, ID, allocations, around)


def refused(cluster: Cluster, facts: HostFacts = FACTS) -> str:
    return " ".join(
        map(str, allocate(cluster, Allocations(), Occupied(), facts={"cloud": facts})[1])
    )


def problems(**of_file: str) -> str:
    with pytest.raises(SpecError) as caught:
        read(**of_file)
    return " ".join(map(str, caught.value.problems))


def test_boot_images_ask_it_and_it_is_there_before_them() -> None:
    resources = wanted(read(f"{RELAYED}, floating_ip: public"))
    relay, image = (
        resources[relay_of("cloud")],
        resources[boot_image("cloud", Firmware.UEFI, "http://10.1.0.254:8069")],
    )
    port, floating, own = (
        resources[Key(kind, "cloud", name)]
        for kind, name in ((Kind.PORT, RELAY), (Kind.FLOATING_IP, RELAY), (Kind.PORT, "a-0"))
    )
    assert isinstance(relay.shape, Relay)
    assert isinstance(port.shape, Port)
    assert relay.shape == Relay("debian-12", "m1.tiny", port.shape.mac, "10.1.0.254", 8069, key="k")
    assert (port.shape.address, port.shape.range) == ("10.1.0.254", "10.1.0.0/24")
    assert floating.shape == FloatingIp("public", port.shape.mac, router=port.shape.network)
    assert image.shape == BootImage(Firmware.UEFI, "http://10.1.0.254:8069")
    assert relay.needs == (port.key, floating.key)
    assert image.needs == (relay.key,)
    assert port.key in own.needs, "Neutron gives its address to no node meanwhile"
    assert describe(relay.shape) == (
        "flavor m1.tiny from debian-12, answers at 10.1.0.254, TCP port 8069"
    )


def test_without_nodes_that_ask_there_is_none() -> None:
    text = FILE.format(relay=RELAYED, network=CIDR, nics="[lan]", more="")
    of_vm = "{name: a, kind: vm, image: /i.raw, firmware: bios,"
    cluster = load(text.replace("{name: a,", of_vm).replace(" disks: [1GiB],", ""), file="x")
    made = {"/i.raw": ImageFacts("ab" * 32, "raw", 1 << 30)}
    assert relay_of("cloud") not in wanted(cluster, images=made)


@pytest.mark.parametrize(
    ("network", "relay", "address"),
    [
        (CIDR, RELAYED, "10.1.0.254"),
        ("{nat: true, cidr: 10.1.0.0/24, virtual_ips: [10.1.0.254]}", RELAYED, "10.1.0.253"),
        (CIDR, f"{RELAYED}, address: 10.1.0.9", "10.1.0.9"),
        ("{physnet: ours}", f"{RELAYED}, address: 10.9.0.9", "10.9.0.9"),
    ],
)
def test_its_address_is_the_last_one_or_that_of_the_file(
    network: str, relay: str, address: str
) -> None:
    cluster = read(relay, network)
    (host,) = cluster.hosts
    assert host.connection.relay is not None
    cidr = "10.1.0.0/24" if "cidr" in network else ""
    assert address_of(host.connection.relay, cluster, cidr) == address


def of_bmcs(pool: str) -> Cluster:
    cluster = read()
    return replace(cluster, addressing=replace(cluster.addressing, pool=IPv4Network(pool)))


@pytest.mark.parametrize(
    ("cidr", "pool", "address"),
    [
        ("10.0.0.0/8", "10.128.0.0/9", "10.127.255.255"),
        ("10.0.0.0/8", "10.0.0.0/8", ""),
        ("10.0.0.0/14", "10.0.0.0/8", ""),
        ("10.9.0.0/29", "10.9.0.0/30", "10.9.0.6"),
        ("10.9.0.0/30", "10.1.0.0/24", "10.9.0.2"),
        ("10.9.0.0/31", "10.1.0.0/24", ""),
        ("10.9.0.0/32", "10.1.0.0/24", ""),
        ("fd00::/64", "10.1.0.0/24", "fd00::ffff:ffff:ffff:fffe"),
    ],
)
def test_of_any_network_it_has_an_address_that_is_free_or_none(
    cidr: str, pool: str, address: str
) -> None:
    """Without a look at each address: a pool may have millions."""
    cluster = of_bmcs(pool)
    relay = cluster.hosts[0].connection.relay
    assert relay is not None
    assert address_of(relay, cluster, cidr) == address


def test_a_network_without_an_address_for_it_is_refused() -> None:
    small = CIDR.replace("10.1.0.0/24", "10.1.0.0/30")
    virtual = small.replace("}", ", virtual_ips: [10.1.0.2]}")
    assert "has no address left" not in refused(read(network=small))
    for cluster in (read(network=virtual), of_bmcs("10.1.0.0/24")):
        assert "has no address left for the relay of host cloud" in refused(cluster)


SERVED = CIDR.replace("nat: true", "nat: true, netboot: builtin")
NETBOOT = Key(Kind.NETBOOT, "cloud", "lan")


def served(resources: dict[Key, Resource]) -> NetbootService:
    shape = resources[NETBOOT].shape
    assert isinstance(shape, NetbootService)
    return shape


def test_it_serves_dhcp_on_its_network_to_the_nodes_of_that() -> None:
    resources = wanted(read(f"{RELAYED}, nameservers: [192.0.2.53]", SERVED))
    relay, link, port, own = (
        resources[each].shape
        for each in (
            relay_of("cloud"),
            Key(Kind.NETWORK, "cloud", "lan"),
            Key(Kind.PORT, "cloud", "a-0"),
            Key(Kind.PORT, "cloud", RELAY),
        )
    )
    assert isinstance(relay, Relay)
    assert isinstance(link, Link)
    assert isinstance(port, Port)
    assert isinstance(own, Port)
    service = served(resources)
    (given,) = service.reservations
    assert (service.address, service.router) == ("10.1.0.254/24", "10.1.0.1")
    assert service.range == ("", ""), "others there have addresses of the cloud's"
    assert (given.mac, given.address) == (port.mac, "10.1.0.2")
    assert (port.address, own.address) == ("10.1.0.2", "10.1.0.254"), "Neutron knows them, too"
    assert relay.netboot
    assert (link.relayed, link.nameservers) == (True, ("192.0.2.53",))
    assert resources[NETBOOT].needs == (Key(Kind.NETWORK, "cloud", "lan"), relay_of("cloud"))
    assert NETBOOT in resources[Key(Kind.MACHINE, "cloud", "a")].needs
    assert describe(service) == "DHCP, TFTP and HTTP by the relay for 1 NIC"
    without = wanted(read(f"{RELAYED}, nameservers: [192.0.2.53]"))
    assert NETBOOT not in without
    link, relay, port = (
        without[each].shape
        for each in (
            Key(Kind.NETWORK, "cloud", "lan"), relay_of("cloud"), Key(Kind.PORT, "cloud", "a-0"),
        )
    )  # fmt: skip
    assert isinstance(link, Link)
    assert isinstance(relay, Relay)
    assert isinstance(port, Port)
    assert (link.relayed, link.nameservers, relay.netboot, port.address) == (False, (), False, "")
    text = read(f"{RELAYED}, nameservers: [192.0.2.53]")
    networks = [replace(each, dhcp=False) for each in text.networks]
    link = wanted(replace(text, networks=tuple(networks)))[Key(Kind.NETWORK, "cloud", "lan")].shape
    assert isinstance(link, Link)
    assert (link.silent, link.relayed, link.nameservers) == (True, False, ("192.0.2.53",))
    assert "with NAT, without DHCP" in describe(link)


def test_no_node_gets_its_address() -> None:
    """Which the file may have among the first ones."""
    resources = wanted(read(f"{RELAYED}, address: 10.1.0.2", SERVED))
    assert served(resources).address == "10.1.0.2/24"
    assert [each.address for each in served(resources).reservations] == ["10.1.0.3"]
    small = SERVED.replace("10.1.0.0/24", "10.1.0.0/30")
    assert "10.1.0.0/30 has no address left for node a" in refused(read(network=small))


def test_numbers_of_nodes_are_found_by_what_it_serves() -> None:
    resources = wanted(read(f"{RELAYED}, address: 10.1.0.2", SERVED))
    assert found_nics(found(resources), HostNumbers()) == {"lan/a/0": 1}


def test_vms_alone_get_addresses_from_it_too() -> None:
    text = FILE.format(relay=RELAYED, network=SERVED, nics="[lan]", more="")
    of_vm = "{name: a, kind: vm, image: /i.raw, firmware: bios,"
    cluster = load(text.replace("{name: a,", of_vm).replace(" disks: [1GiB],", ""), file="x")
    made = {"/i.raw": ImageFacts("ab" * 32, "raw", 1 << 30)}
    resources = wanted(cluster, images=made)
    assert relay_of("cloud") in resources
    assert [each.hostname for each in served(resources).reservations] == ["a"]


def test_user_data_names_no_boot_server_behind_it() -> None:
    """The router of the network is none."""
    text = FILE.format(relay=RELAYED, network=SERVED, nics="[lan]", more="")
    of_vm = f'{{name: a, kind: vm, image: /i.raw, user_data: "#!{BOOT_URL}",'
    cluster = load(text.replace("{name: a,", of_vm).replace(" disks: [1GiB],", ""), file="x")
    allocations, _ = allocate(cluster, Allocations(), Occupied(), facts={"cloud": FACTS})
    assert "it is not known where it reaches nospoon" in " ".join(
        against_boot_urls(cluster, allocations)
    )


def test_what_it_serves_goes_before_it_and_comes_after_it() -> None:
    resources = wanted(read(network=SERVED))
    removed = moves(removal(cluster="dev", cluster_id=ID, observed=found(resources)))
    kinds = [key.kind for key, _ in removed]
    assert kinds.index(Kind.NETBOOT) < kinds.index(Kind.RELAY)
    made = moves(diff(cluster="dev", cluster_id=ID, desired=resources, observed=[], rules={}))
    kinds = [key.kind for key, _ in made]
    assert kinds.index(Kind.RELAY) < kinds.index(Kind.NETBOOT) < kinds.index(Kind.MACHINE)


def test_a_network_of_a_cloud_without_a_relay_on_it_is_refused_with_its_place() -> None:
    text = FILE.format(relay=RELAYED, network=SERVED, nics="[lan]", more="")
    relay = next(line for line in text.splitlines() if "relay:" in line)
    with pytest.raises(SpecError) as caught:
        load(text.replace(relay, "      boot_address: 192.0.2.9"), file="x")
    (problem,) = map(str, caught.value.problems)
    assert problem.startswith("x:10:")
    assert "networks.lan.netboot: in a cloud, a relay on the network serves DHCP" in problem
    assert "Write `relay: {network: lan, image: IMAGE, flavor: FLAVOR}`" in problem
    assert "or leave `netboot` out" in problem


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            SERVED + ", other: {netboot: builtin}",
            "network other: host cloud is a cloud, where a relay on the network serves DHCP",
        ),
        (
            SERVED.replace("nat: true", "nat: true, anti_spoofing: true"),
            "with `anti_spoofing` the cloud drops the answers of its relay's DHCP and TFTP.",
        ),
        (
            SERVED.replace("nat: true, ", ""),
            "network lan: host cloud: its relay is on it, which the daemon reaches by a router",
        ),
    ],
)
def test_what_a_relay_cannot_serve_is_refused(network: str, said: str) -> None:
    """Of files with other hosts, where each network is on any host, the plan refuses it."""
    nics = "[lan, other]" if "other" in network else "[lan]"
    text = FILE.format(relay=RELAYED, network=network, nics=nics, more="")
    beside = text.replace("hosts:\n", 'hosts:\n  here: {libvirt: "qemu:///system"}\n')
    cluster = load(beside.replace("{name: a,", "{name: a, host: cloud,"), file="x")
    assert said in refused(cluster)


@pytest.mark.parametrize(
    "nameservers", ['["fd00::53"]', "[x]", "[192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4]"]
)
def test_name_servers_that_are_none_are_refused(nameservers: str) -> None:
    assert "nameservers" in problems(relay=f"{RELAYED}, nameservers: {nameservers}")


def test_a_recovered_file_has_what_it_serves() -> None:
    cluster = read(f"{RELAYED}, nameservers: [192.0.2.53]", SERVED)
    text = cluster_file("dev", ID, cluster.hosts, found(wanted(cluster)), lambda _: SETTINGS)
    again = load(text, file="x")
    assert [each.connection.relay for each in again.hosts] == [
        each.connection.relay for each in cluster.hosts
    ]
    assert [each.netboot for each in again.networks] == [Netboot.BUILTIN]


POOL = "\nbmc: {pool: 10.1.0.128/25}"


def with_pool(relay: str, network: str = CIDR, bmc: str = POOL) -> Cluster:
    text = FILE.format(relay=relay, network=network, nics="[lan]", more="")
    return load(text + bmc, file="x")


def test_bmcs_on_its_network_have_the_addresses_of_their_pool() -> None:
    resources = wanted(with_pool(f"{RELAYED}, bmcs: true"))
    relay = resources[relay_of("cloud")].shape
    link = resources[Key(Kind.NETWORK, "cloud", "lan")].shape
    bmc = resources[Key(Kind.BMC, "cloud", "a")].shape
    assert isinstance(relay, Relay)
    assert isinstance(link, Link)
    assert isinstance(bmc, Bmc)
    assert (relay.bmcs, relay.redfish) == ("10.1.0.128/25", bmc.redfish_port)
    assert relay.address == "10.1.0.127", "the last one beside the pool"
    assert link.spared == "10.1.0.128/25", "Neutron gives none of these"
    assert bmc.address == "10.1.0.129"
    without = wanted(with_pool(RELAYED))
    relay, link = (
        without[each].shape for each in (relay_of("cloud"), Key(Kind.NETWORK, "cloud", "lan"))
    )
    assert isinstance(relay, Relay)
    assert isinstance(link, Link)
    assert (relay.bmcs, relay.redfish, link.spared) == ("", 0, "")


def test_a_cloud_that_filters_lets_addresses_of_bmcs_through() -> None:
    guarded = CIDR.replace("nat: true", "nat: true, anti_spoofing: true")
    for relay, virtual_ips in ((RELAYED, ()), (f"{RELAYED}, bmcs: true", ("10.1.0.128/25",))):
        port = wanted(with_pool(relay, guarded))[Key(Kind.PORT, "cloud", RELAY)].shape
        assert isinstance(port, Port)
        assert (port.guarded, port.virtual_ips) == (True, virtual_ips)


@pytest.mark.parametrize(
    ("network", "bmc", "said"),
    [
        (CIDR, "", "expected a pool"),
        ("{nat: true}", POOL, "`bmc.pool` 10.1.0.128/25 is not a part of network 'lan'"),
        (CIDR, "\nbmc: {pool: 10.2.0.0/25}", "`bmc.pool` 10.2.0.0/25 is not a part of network"),
        (CIDR, "\nbmc: {pool: 10.1.0.128/25, redfish_port: 8069}", "port 8069 of a relay is taken"),
    ],
)
def test_bmcs_that_cannot_be_on_its_network_are_refused(network: str, bmc: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        with_pool(f"{RELAYED}, bmcs: true", network, bmc)
    assert said in " ".join(map(str, caught.value.problems))


def test_an_ipv6_address_stands_in_brackets_in_a_url() -> None:
    assert url_of("2001:db8::1") == "http://[2001:db8::1]:8069"


def found(resources: dict[Key, Resource]) -> list[Observed]:
    return [Observed(key, each.shape, OwnerTag("d", ID)) for key, each in resources.items()]


def test_it_goes_after_what_asks_it_and_before_its_port() -> None:
    resources = wanted(read(f"{RELAYED}, floating_ip: public"))
    order = list(moves(removal(cluster="dev", cluster_id=ID, observed=found(resources))))
    names = [key.name if key.kind is Kind.PORT else str(key.kind) for key, _ in order]
    assert names.index("machine") < names.index("boot-image") < names.index("relay")
    assert names.index("relay") < names.index(RELAY, names.index("relay") + 1)
    assert names[-1] == "network"


@pytest.mark.parametrize(
    "relay",
    [
        f"{RELAYED.replace('debian-12', 'debian-13')}",
        f"{RELAYED.replace('m1.tiny', 'metal')}",
        f"{RELAYED}, port: 2222",
    ],
)
def test_another_relay_takes_its_place_and_nodes_stay(relay: str) -> None:
    before, after = wanted(read()), wanted(read(relay))
    running = [replace(each, running=each.key.kind is Kind.MACHINE) for each in found(before)]
    plan = diff(cluster="dev", cluster_id=ID, desired=after, observed=running, rules={})
    assert [(step.key, step.action) for step in plan.steps] == [(relay_of("cloud"), Action.REPLACE)]
    halves = [half for key, half in moves(plan) if key == relay_of("cloud")]
    assert halves == [Half.REMOVE, Half.MAKE]


def test_other_keys_are_drift_that_no_plan_shows() -> None:
    before, after = wanted(read()), wanted(read(), key="another")
    plan = diff(cluster="dev", cluster_id=ID, desired=after, observed=found(before), rules={})
    (step,) = plan.steps
    assert step.action is Action.REPLACE
    assert "another" not in repr(step.changes)


@pytest.mark.parametrize(
    ("of_file", "facts", "said"),
    [
        (
            {"relay": RELAYED.replace("m1.tiny", "m1.none")},
            FACTS,
            "host cloud has no flavor m1.none, which its relay is to have",
        ),
        (
            {"network": "{}"},
            FACTS,
            "host cloud: its relay is on it, and nodes get no address there. Write `nat: true`",
        ),
        (
            {"network": "{physnet: ours}"},
            FACTS,
            "Give the relay an `address`.",
        ),
        (
            {"relay": f"{RELAYED}, address: 10.2.0.9"},
            FACTS,
            "the `address` of its relay, 10.2.0.9, is not in its `cidr`.",
        ),
        (
            {"network": CIDR + ", other: {nat: true}", "nics": "[other]"},
            FACTS,
            "the boot image asks the relay of the host, which is on network lan. Plug one NIC",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    of_file: dict[str, str], facts: HostFacts, said: str
) -> None:
    assert said in refused(read(**of_file), facts)


@pytest.mark.parametrize(
    ("of_file", "said"),
    [
        ({"more": "boot_address: 192.0.2.9"}, "expected one of boot_address and relay, got both"),
        (
            {"relay": f"{RELAYED}, floating_address: 192.0.2.9"},
            "`floating_address` is of a network: name it as `floating_ip`",
        ),
        ({"relay": RELAYED.replace("lan", "lane")}, "no network named 'lane'"),
        ({"relay": f"{RELAYED}, port: 0"}, "port"),
        ({"relay": f"{RELAYED}, address: -oProxyCommand=x"}, "address"),
        (
            {"relay": f'{RELAYED}, address: "fe80::1%x\\nAllowTcpForwarding yes"'},
            "expected an IPv4 or IPv6 address, got",
        ),
        ({"more": 'boot_address: "fe80::1%eth0"', "relay": RELAYED}, "expected an IPv4 or IPv6"),
        ({"relay": "network: lan, flavor: m1.tiny"}, "image"),
    ],
)
def test_a_wrong_section_is_refused_with_its_place(of_file: dict[str, str], said: str) -> None:
    told = problems(**of_file)
    assert said in told
    assert "x:" in told


def test_a_recovered_file_has_it() -> None:
    cluster = read(f"{RELAYED}, floating_ip: public, port: 2222")
    text = cluster_file("dev", ID, cluster.hosts, found(wanted(cluster)), lambda _: SETTINGS)
    again = load(text, file="x")
    assert [each.connection.relay for each in again.hosts] == [
        each.connection.relay for each in cluster.hosts
    ]


def test_a_recovered_file_takes_the_addresses_of_bmcs_for_no_virtual_ips() -> None:
    guarded = CIDR.replace("nat: true", "nat: true, anti_spoofing: true")
    cluster = with_pool(f"{RELAYED}, bmcs: true", guarded)
    text = cluster_file("dev", ID, cluster.hosts, found(wanted(cluster)), lambda _: SETTINGS)
    assert "virtual_ips" not in text
    assert "bmcs: true" in text


SETTINGS = {"auth": {"auth_url": "http://192.0.2.1/v3", "username": "u", "password": "p"}}
