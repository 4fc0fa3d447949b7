"""What `host check` says of a cloud, and a plan of one that takes no boot images."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.maintenance.cloud_check import findings
from nospoon.model.cluster import Cluster, Host
from nospoon.model.connections import Libvirt, OpenStack
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Kind
from nospoon.model.rest.hosts import Verdict
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.placement.hosts import against_node
from nospoon.plan.placement.placement import place
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.providers.openstack.connection import MOST_COMPUTES, OpenStackConnection
from nospoon.testing.cloud_connection import AT
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: c
hosts:
  cloud:
    openstack:
      cloud: {name: mine}
      flavors: [metal.512, metal.2048]
      relay: {network: out, image: debian, flavor: tiny, floating_ip: external}
networks: {out: {cidr: 192.168.9.0/24, nat: true}, red: {vlan: 101}}
nodes:
- {name: a, memory: 512MiB, disks: [1GiB], firmware: bios, nics: [{network: out, trunk: [101]}]}
- {name: b, memory: 2GiB, disks: [1GiB], firmware: bios,
   nics: [{network: out, floating_ip: external}]}
"""
MIXED = """
cluster: c
hosts:
  here: {}
  cloud:
    openstack:
      cloud: {name: mine}
      relay: {network: relayed, image: debian, flavor: tiny}
networks:
  both: {nat: true, cidr: 192.168.9.0/24}
  carried: {vlan: 101}
  elsewhere: {nat: true, cidr: 192.168.10.0/24}
  relayed: {nat: true, cidr: 192.168.11.0/24}
  unused: {}
nodes:
- {name: a, host: cloud, disks: [1GiB], nics: [{network: both, trunk: [101]}]}
- {name: b, host: here, disks: [1GiB], nics: [elsewhere, both, relayed]}
"""
Survey = Callable[[], Awaitable[HostFacts]]


@pytest.fixture
def survey(connection: OpenStackConnection) -> Survey:
    return lambda: connection.survey("", ())


@pytest.fixture
def cluster() -> Cluster:
    return load(FILE, file="x")


def said(cluster: Cluster, facts: HostFacts) -> dict[str, tuple[Verdict, str]]:
    found = findings(cluster, cluster.hosts[0], facts)
    return {what: (verdict, detail) for what, verdict, detail in found}


async def test_a_cloud_that_has_all(survey: Survey, cluster: Cluster) -> None:
    found = said(cluster, await survey())
    assert found["roles"] == (Verdict.OK, "member")
    assert found["images"] == (Verdict.OK, "Glance takes iso, qcow2, raw")
    others = replace(await survey(), image_formats=frozenset({"qcow2", "raw"}))
    words = "Glance takes qcow2, raw. Boot images are qcow2."
    assert said(cluster, others)["images"] == (Verdict.OK, words)
    assert found["trunks"] == (Verdict.OK, "`trunk` of NICs")
    assert found["external networks"] == (
        Verdict.OK, "routers and floating IPs lead to external",
    )  # fmt: skip
    assert found["way to the daemon"] == (Verdict.OK, "a relay on network out")
    servers = "3 servers (1 of metal.2048, 1 of metal.512, 1 of tiny)"
    nodes = "3 CPUs and 2560 MiB of memory for nodes"
    assert found["billed"] == (Verdict.OK, f"{servers}, {nodes}, 1 router, 2 floating IPs")
    of_others = replace(cluster.networks[0], name="elsewhere")
    at_home = Host("here", Libvirt("qemu:///system"))
    there = [replace(node, host="cloud") for node in cluster.nodes]
    nic = replace(there[0].nics[0], network="elsewhere", trunk=(), floating_ip="")
    there.append(replace(there[0], name="c", host="here", nics=(nic,)))
    both = replace(
        cluster,
        hosts=(*cluster.hosts, at_home),
        networks=(*cluster.networks, of_others),
        nodes=tuple(there),
    )
    assert said(both, await survey())["billed"] == found["billed"], (
        "one router is of libvirt's host"
    )
    assert "provider networks" not in found, "the file has none"


async def test_what_a_cloud_lacks_is_missing_to_who_needs_it(
    cloud: FakeCloud, survey: Survey, cluster: Cluster
) -> None:
    cloud.has_trunks, cloud.image_formats = False, ("raw",)
    facts = replace(await survey(), external_networks=(), roles=("reader",))
    found = said(cluster, facts)
    assert {what: verdict for what, (verdict, _) in found.items() if verdict is not Verdict.OK} == (
        dict.fromkeys(("roles", "images", "trunks", "external networks"), Verdict.MISSING)
    )
    assert found["images"][1] == (
        "Glance takes neither `iso` nor `qcow2` there, which boot images are. It takes raw."
    )
    host = cluster.hosts[0]
    assert isinstance(host.connection, OpenStack)
    asked = replace(host.connection, relay=None, boot_address="192.0.2.1")
    alone = replace(cluster, networks=(), nodes=(), hosts=(replace(host, connection=asked),))
    nowhere = replace(host, connection=replace(host.connection, relay=None))
    found = said(replace(cluster, hosts=(nowhere,)), facts)
    assert found["way to the daemon"][0] is Verdict.MISSING
    found = said(alone, facts)
    assert found["trunks"][0] is Verdict.WITHOUT
    assert found["external networks"] == (Verdict.WITHOUT, "no external network")
    assert found["way to the daemon"][1].startswith("192.0.2.1: ")
    assert found["billed"] == (Verdict.OK, "0 servers")


async def test_bare_metal_is_refused_where_boot_images_cannot_be(
    cloud: FakeCloud, survey: Survey, cluster: Cluster
) -> None:
    """`up` met it with Glance's words, after networks and ports."""
    assert not list(against_node(cluster.nodes[0], AT, await survey()))
    cloud.image_formats = ("raw",)
    (why,) = against_node(cluster.nodes[0], AT, await survey())
    assert why.startswith("Glance takes neither `iso` nor `qcow2` there")


async def test_bare_metal_that_is_there_stays_where_boot_images_can_be_no_longer(
    cloud: FakeCloud, survey: Survey, cluster: Cluster
) -> None:
    cloud.image_formats = ("raw",)
    facts = {"cloud": replace(await survey(), flavors=None)}
    now = Allocations(hosts={"a": "cloud", "b": "cloud"})

    def refused(before: Allocations) -> list[str]:
        found = reasons_against(cluster, UUID(int=1), now, facts, before=before)
        return [each.partition(" on ")[0] for each in found if "iso" in each]

    assert refused(Allocations()) == ["node a", "node b"]
    assert refused(Allocations(hosts={"a": "cloud"})) == ["node b"]
    assert refused(now) == []
    placed, _ = place(cluster, now.hosts, facts, {})
    assert {name: each.host for name, each in placed.items()} == now.hosts


def test_networks_of_other_hosts_nodes_alone_are_not_made_in_a_cloud() -> None:
    """Each with `nat` had a router there, and that an address of the external network."""
    cluster = load(MIXED, file="x")
    placed = Allocations(hosts={node.name: node.host for node in cluster.nodes})
    around = Surroundings({"cloud": "", "here": "/p"}, {}, {})
    found = resolve(cluster, UUID(int=1), placed, around)
    made = {(key.kind, key.place, key.name) for key in found}
    assert {name for kind, host, name in made if (kind, host) == (Kind.NETWORK, "cloud")} == {
        "both", "carried", "relayed", "unused",
    }  # fmt: skip
    assert {name for kind, _, name in made if kind is Kind.ROUTER} == {"both", "relayed"}
    at_home = {name for kind, host, name in made if (kind, host) == (Kind.NETWORK, "here")}
    assert at_home == {each.name for each in cluster.networks}


CONTAINER = """
cluster: c
hosts: {cloud: {openstack: {cloud: {name: mine}}, physnets: {out: external}}}
networks: {out: {physnet: out}}
nodes: [{name: a, kind: container, memory: 512MiB, nics: [out], disks: [{image: r, size: 1GiB}]}]
"""


async def test_what_compute_hosts_run_is_known_to_administrators(
    cloud: FakeCloud, survey: Survey
) -> None:
    cluster = load(CONTAINER, file="x")
    cloud.roles = ("admin",)
    facts = await survey()
    assert facts.computes == frozenset({"qemu"})
    assert said(cluster, facts)["containers"] == (Verdict.MISSING, "compute hosts run qemu")
    (refused,) = place(cluster, {}, {"cloud": facts}, {})[1]
    assert "no compute host of the cloud runs containers: qemu alone. It needs" in refused
    cloud.hypervisors = ("QEMU", "LXC")
    facts = await survey()
    assert said(cluster, facts)["containers"] == (Verdict.OK, "compute hosts run lxc, qemu")
    assert not place(cluster, {}, {"cloud": facts}, {})[1]
    cloud.hypervisors = ("QEMU",) * (MOST_COMPUTES + 1)
    assert (await survey()).computes is None, "there are more than are looked at"
    cloud.fail("os-hypervisors", 403)
    assert (await survey()).computes is None


async def test_others_do_not_ask_what_compute_hosts_run(cloud: FakeCloud, survey: Survey) -> None:
    facts = await survey()
    assert facts.computes is None
    assert not any("os-hypervisors" in each for each in cloud.log)
    assert not place(load(CONTAINER, file="x"), {}, {"cloud": facts}, {})[1]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("{size: 1GiB, mount: /srv}", "Nova gives containers no disks but their root"),
        ("", "roots of containers are parts of the flavor there"),
    ],
)
async def test_a_container_of_a_cloud_has_a_root_of_its_flavor_alone(
    survey: Survey, more: str, why: str
) -> None:
    root = "{image: r, size: 1GiB}"
    text = CONTAINER.replace(root, f"{root}, {more}") if more else CONTAINER
    if not more:
        text = text.replace("{name: mine}}", "{name: mine}, volumes: true}")
    (refused,) = place(load(text, file="x"), {}, {"cloud": await survey()}, {})[1]
    assert why in refused
