"""Cluster files that would cost much to read or plan are refused, or cost little."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
from tests.security.asked import OTHER, a_daemon

from nospoon.clusterfile.load import load
from nospoon.clusterfile.models import MAX_PARTS
from nospoon.clusterfile.section import each_once
from nospoon.clusterfile.sections import MOST
from nospoon.control.fleet.hosts import IDLE, Hosts
from nospoon.control.fleet.recent_hosts import MOST_NAMES, MOST_SIMULATED, RecentHosts
from nospoon.errors import Conflict, SpecError
from nospoon.model.cluster import BmcAddressing, BmcProtocol, Cluster, Host, Network, Node
from nospoon.model.connections import Libvirt, Simulated
from nospoon.model.grants import DEFAULTS
from nospoon.plan.access import MOST_NETWORKS, violations
from nospoon.plan.addresses import numbers
from nospoon.plan.addresses.pdus import plug

LOCAL = "{libvirt: 'qemu:///system'}"


class Counted(IPv4Network):
    """It counts the addresses that are taken out of it."""

    given = 0

    def hosts(self):  # type: ignore[no-untyped-def]
        for number in range(1, 1000):
            type(self).given += 1
            yield IPv4Address(int(self.network_address) + number)


@pytest.mark.parametrize("protocol", [BmcProtocol.REDFISH, BmcProtocol.PDU])
def test_of_a_large_pool_few_addresses_are_looked_at(protocol: BmcProtocol) -> None:
    """16 million of them took 4 GB."""
    pool = Counted("10.0.0.0/8")
    nodes = tuple(Node(name=name, bmc=(protocol,)) for name in "abc")
    cluster = Cluster("c", (), (), (), nodes, BmcAddressing(pool=pool))
    before = Counted.given
    list(plug(cluster, {}, {("10.0.0.1", 161)}, []))
    assert Counted.given - before < 16


class Name(str):
    """It counts comparisons."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return super().__eq__(other)


def test_long_lists_without_duplicates_are_read_once() -> None:
    names: list[str] = [Name(f"CUSTOM_{number}") for number in range(1000)]
    before = Name.compared
    assert each_once(names) == names
    assert Name.compared - before < 5000
    with pytest.raises(ValueError, match="twice"):
        each_once(["a", "b", "a"])


@pytest.mark.parametrize("section", sorted(MOST))
def test_a_section_has_so_many_entries(section: str) -> None:
    script = "{script: 'http://a/b'}"
    entries = {"boot": script, "hosts": "simulated", "services": "{nodes: n}"}
    entry = entries.get(section, "{}")
    names = ", ".join(f"x{number}: {entry}" for number in range(MOST[section] + 1))
    flavors = "flavors: {f: {}}\n" if section == "labs" else ""
    nodes = "[{name: n, kind: vm, image: i}]" if section == "services" else "[]"
    text = f"cluster: c\n{flavors}{section}: {{{names}}}\nnodes: {nodes}\n"
    with pytest.raises(SpecError) as caught:
        load(text, file="f")
    (problem,) = caught.value.problems
    assert problem.message == f"expected at most {MOST[section]} {section}, got {MOST[section] + 1}"


def test_a_members_cluster_has_so_many_networks_on_real_hosts() -> None:
    networks = tuple(Network(f"n{number}") for number in range(MOST_NETWORKS + 1))
    real, simulated = Host("r"), Host("s", Simulated())
    cluster = Cluster("c", (real,), networks, (), ())
    (found,) = violations(cluster, DEFAULTS)
    assert (found.path, "65" in found.message) == (("networks",), True)
    assert not list(violations(Cluster("c", (simulated,), networks, (), ()), DEFAULTS))
    assert not list(violations(Cluster("c", (real,), networks[1:], (), ()), DEFAULTS))


def test_a_member_names_a_host_in_few_ways() -> None:
    now = [0.0]
    recent = RecentHosts(now=lambda: now[0])
    for number in range(MOST_NAMES):
        recent.ask(1, [Host(f"h{number}")])
    recent.ask(1, [Host("h0")])
    recent.ask(2, [Host("more")])
    recent.ask(1, [Host("more", Libvirt("qemu+ssh://a/system"))])
    for _ in range(2):
        with pytest.raises(Conflict, match="more than 8 ways within 5 minutes"):
            recent.ask(1, [Host("more")])
    recent.ask(1, [Host(f"s{n}", Simulated()) for n in range(MOST_SIMULATED)])
    with pytest.raises(Conflict, match="simulated hosts"):
        recent.ask(1, [Host("s", Simulated())])
    now[0] = IDLE
    recent.ask(1, [Host("more")])
    recent.ask(1, [Host("s", Simulated())])


async def test_no_host_is_opened_for_a_plan_that_names_one_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each name had five connections to libvirtd, and as many threads."""
    opened: list[str] = []
    monkeypatch.setattr(Hosts, "use", lambda _, host: opened.append(host.name))
    twins = f"cluster: c\nhosts: {{a: {LOCAL}, b: {LOCAL}}}\nnodes: [{{}}]\n"
    names = ", ".join(f"h{number}: {LOCAL}" for number in range(MOST_NAMES + 1))
    many = f"cluster: c\nhosts: {{{names}}}\nnodes: [{{}}]\n"
    async with a_daemon(tmp_path) as asked:
        for uid in (0, OTHER):
            refused = await asked.ask(uid, "POST", "/v1/plan", {"file": "f", "text": twins})
            assert (refused.status, b"one libvirtd" in refused.body) == (422, True)
        for path in ("/v1/plan", "/v1/hosts/check"):
            refused = await asked.ask(OTHER, "POST", path, {"file": "f", "text": many})
            assert (refused.status, b"in more than 8 ways" in refused.body) == (409, True)
    assert opened == []


def test_disks_and_nics_of_a_cluster_are_bounded_together() -> None:
    """A plan of 20,000 nodes with 24 disks each took a gigabyte, and 4 s of the event loop."""
    text = (
        "cluster: c\nhosts: {sim: simulated}\nnetworks: {n: {}}\nnodes:\n"
        "- {count: %d, disks: [%s], nics: [%s]}\n"
    )
    most = MAX_PARTS // 16
    assert len(load(text % (most, "1GiB", ", ".join("n" * 16)), file="x").nodes) == most
    with pytest.raises(SpecError, match=r"at most 100000 disks.*\n?.*at most 100000 NICs"):
        load(text % (most + 1, ", ".join(["1GiB"] * 16), ", ".join("n" * 16)), file="x")


def test_ports_of_trunks_in_clouds_are_bounded_together() -> None:
    """A plan of 1,000 nodes with 900 VLANs each took 0.6 GB, and 20,000 nodes may have as many."""
    cloud = '{openstack: {cloud: {name: c, auth: {auth_url: "http://192.0.2.1/v3"}}}}'
    text = (
        "cluster: c\nhosts: {h: %s}\nbmc: {ports: 6230-26229}\n"
        "networks: {lan: {%s}, a: {%s, vlan: 2}, b: {%s, vlan: 3}}\n"
        "nodes: [{count: %d, nics: [%s]}]\n"
    )
    nics = ", ".join(["{network: lan, trunk: [2, 3]}"] * 5)
    most, own, bridges = MAX_PARTS // 10, ("mtu: 1400",) * 3, ("bridge: br, switch: ovs",) * 3
    assert len(load(text % (cloud, *own, most, nics), file="x").nodes) == most
    with pytest.raises(SpecError, match=r"at most 100000 VLANs in trunks .* got 100010"):
        load(text % (cloud, *own, most + 1, nics), file="x")
    assert load(text % ("simulated", *bridges, most + 1, nics), file="x"), "they are no ports"


def test_networks_on_all_hosts_are_bounded_together() -> None:
    """A plan of a thousand hosts with a thousand networks each took 0.7 GB, and held up all BMCs
    for 0.14 s at once.
    """
    hosts = ", ".join(f"h{number}: simulated" for number in range(1000))

    def text(made: int) -> str:
        own = [f"n{number}: {{}}" for number in range(made)]
        others = [f"e{number}: {{bridge: br{number}}}" for number in range(5)]
        networks = ", ".join([*own, *others])
        return f"cluster: c\nhosts: {{{hosts}}}\nnetworks: {{{networks}}}\nnodes: []\n"

    assert len(load(text(100), file="x").networks) == 105
    with pytest.raises(SpecError, match=r"at most 100000 networks on all .* 101000"):
        load(text(101), file="x")


def test_numbers_of_many_networks_are_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each of a thousand networks, those of all NICs were: most of a minute for each plan."""
    names = [f"n{number}" for number in range(30)]
    networks = ", ".join(f"{each}: {{netboot: builtin}}" for each in names)
    nics = ", ".join(names[:10])
    text = f"cluster: c\nhosts: {{sim: simulated}}\nnetworks: {{{networks}}}\n"
    cluster = load(f"{text}nodes: [{{count: 20, nics: [{nics}]}}]\n", file="x")
    cidrs = {name: f"10.0.{number}.0/24" for number, name in enumerate(names)}
    given = numbers.numbers(cluster, cidrs, {}, numbers.HostNumbers(), standing=())
    hosts = numbers.host_numbers(cluster, cidrs, numbers.HostNumbers(), nics={}, standing=())
    asked: list[str] = []

    def network_of(key: str) -> str:
        asked.append(key)
        return key.partition("/")[0]

    monkeypatch.setattr(numbers, "network_of", network_of)
    held = list(given)
    again = numbers.numbers(cluster, cidrs, given, hosts, standing=(), held=held)
    assert again == given
    numbers.host_numbers(cluster, cidrs, hosts, nics=given, standing=())
    assert len(asked) <= 6 * len(given)
