"""Networks of a cloud from which a router leads out, and ports with addresses there."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import Conflict, Gone, HostUnreachable
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import ENDLESS, HostFacts, SizeOffered
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import FloatingIp, Led, Link, Port, Router
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.order.order import dependents
from nospoon.plan.refuse import reasons_against
from nospoon.plan.words import describe
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
TAG = OwnerTag("kit", UUID(int=7))
LINK = Resource(Key(Kind.NETWORK, "cloud", "lan"), Link("ns-lan", address="10.77.0.1/24", nat=True))
LEADS = Router("ns-lan", (Led("ns-lan", "10.77.0.0/24"),), "external")
ROUTER = Resource(Key(Kind.ROUTER, "cloud", "lan"), LEADS, (LINK.key,))
PORT = Resource(Key(Kind.PORT, "cloud", "n-0"), Port("ns-lan", MAC, range="10.77.0.0/24"))


async def only(connection: OpenStackConnection, kind: Kind) -> Observed:
    (seen,) = await connection.drivers[kind].observe(None)
    return seen


async def make(connection: OpenStackConnection, *resources: Resource) -> None:
    for each in resources:
        await connection.drivers[each.key.kind].create(each, TAG)


async def test_a_router_leads_out_of_a_network_and_goes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    for _ in range(2):
        await make(connection, LINK, ROUTER, PORT)
        for each in (LINK, ROUTER, PORT):
            seen = await only(connection, each.key.kind)
            assert (seen.shape, seen.fault) == (each.shape, "")
    (subnet,) = cloud.subnets.values()
    assert (subnet["cidr"], subnet["gateway_ip"]) == ("10.77.0.0/24", "10.77.0.1")
    assert subnet["enable_dhcp"] is True
    (port,) = (each for each in cloud.ports.values() if each.get("description"))
    assert port["fixed_ips"] == [{"subnet_id": subnet["id"]}]
    seen = await only(connection, Kind.ROUTER)
    assert describe(seen.shape) == "from ns-lan to external"
    for each in (PORT, ROUTER, LINK):
        found = await only(connection, each.key.kind)
        for _ in range(2):
            await connection.drivers[each.key.kind].delete(found)
    assert [cloud.routers, cloud.ports, cloud.subnets] == [{}, {}, {}]
    with pytest.raises(Gone):
        await connection.drivers[Kind.ROUTER].change(seen, ROUTER, TAG)


async def test_a_router_that_lost_its_way_is_mended(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, LINK, ROUTER)
    cloud.ports.clear()
    seen = await only(connection, Kind.ROUTER)
    assert seen.shape == replace(LEADS, networks=())
    await connection.drivers[Kind.ROUTER].change(seen, ROUTER, TAG)
    assert (await only(connection, Kind.ROUTER)).shape == LEADS
    (record,) = cloud.routers.values()
    record["external_gateway_info"] = None
    seen = await only(connection, Kind.ROUTER)
    assert seen.shape == replace(LEADS, external="")
    await connection.drivers[Kind.ROUTER].change(seen, ROUTER, TAG)
    assert (await only(connection, Kind.ROUTER)).shape == ROUTER.shape


async def test_a_router_follows_the_range_of_its_network(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Whose former addresses are led as long as they are there."""
    await make(connection, LINK, ROUTER)
    moved = replace(LINK, shape=Link("ns-lan", address="10.78.0.1/24", nat=True))
    await connection.drivers[Kind.NETWORK].change(await only(connection, Kind.NETWORK), moved, TAG)
    seen = await only(connection, Kind.ROUTER)
    assert seen.shape == LEADS
    there = replace(ROUTER, shape=replace(LEADS, networks=(Led("ns-lan", "10.78.0.0/24"),)))
    await connection.drivers[Kind.ROUTER].change(seen, there, TAG)
    assert (await only(connection, Kind.ROUTER)).shape == there.shape
    assert len(cloud.ports) == 2


async def test_networks_share_a_router_leave_it_and_come_to_it_from_their_own(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    leaf = Resource(
        Key(Kind.NETWORK, "cloud", "leaf"), Link("ns-leaf", address="10.78.0.1/24", nat=True)
    )
    shared = Router(
        "ns-spine", (Led("ns-lan", "10.77.0.0/24"), Led("ns-leaf", "10.78.0.0/24")), "external"
    )
    spine = Resource(Key(Kind.ROUTER, "cloud", "spine"), shared)
    await make(connection, LINK, ROUTER, leaf, spine)
    driver = connection.drivers[Kind.ROUTER]
    former, seen = sorted(await driver.observe(None), key=lambda each: each.key.name)
    assert (seen.shape, former.shape) == (shared, replace(LEADS, networks=()))
    await driver.delete(former)
    assert describe(shared) == "from ns-lan, ns-leaf to external"
    links = await connection.drivers[Kind.NETWORK].observe(None)
    found = dependents([*links, seen])
    assert found == {LINK.key: [spine.key], leaf.key: [spine.key]}
    text = cluster_file("dev", TAG.cluster, (), [*links, seen], lambda _: {})
    given = {"nat": True, "router": "spine"}
    assert yaml.safe_load(text)["networks"] == {
        "lan": {"cidr": "10.77.0.0/24", **given}, "leaf": {"cidr": "10.78.0.0/24", **given},
    }  # fmt: skip
    lan_port = replace(PORT, key=Key(Kind.PORT, "cloud", "lan-0"))
    leaf_port = replace(
        lan_port,
        key=Key(Kind.PORT, "cloud", "leaf-0"),
        shape=Port("ns-leaf", OTHER, range="10.78.0.0/24"),
    )
    floating = [
        Resource(
            Key(Kind.FLOATING_IP, "cloud", name), FloatingIp("external", mac, router="ns-spine")
        )
        for name, mac in (("lan-0", MAC), ("leaf-0", OTHER))
    ]
    await make(connection, lan_port, leaf_port, *floating)
    seen_floating = await connection.drivers[Kind.FLOATING_IP].observe(None)
    assert [each.shape for each in seen_floating] == [each.shape for each in floating]
    alone = replace(spine, shape=replace(shared, networks=shared.networks[1:]))
    await driver.change(seen, alone, TAG)
    assert (await only(connection, Kind.ROUTER)).shape == alone.shape
    left = await connection.drivers[Kind.FLOATING_IP].observe(None)
    assert [each.shape for each in left] == [FloatingIp("external", ""), floating[1].shape]
    cloud.ports = {id_: each for id_, each in cloud.ports.items() if each["mac_address"] != MAC}
    for each in links:
        if each.key == LINK.key:
            await connection.drivers[Kind.NETWORK].delete(each)
    assert [each["name"] for each in cloud.networks.values() if each.get("description")] == [
        "ns-leaf"
    ]


async def test_a_gateway_of_somebody_else_is_not_taken(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, LINK, ROUTER)
    (record,) = cloud.routers.values()
    record["description"] = "mine"
    with pytest.raises(Conflict):
        await make(connection, ROUTER)
    assert len(cloud.ports) == 1


async def test_a_router_goes_whose_way_goes_meanwhile(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, LINK, ROUTER)
    seen = await only(connection, Kind.ROUTER)

    def heard(call: str) -> None:
        if call.startswith("GET") and "/ports" in call:
            cloud.ports.clear()

    cloud.heard = heard
    await connection.drivers[Kind.ROUTER].delete(seen)
    assert cloud.routers == {}


async def test_those_of_others_are_left_unchanged(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, LINK, ROUTER)
    seen = await only(connection, Kind.ROUTER)
    (record,) = cloud.routers.values()
    record["description"] = "mine"
    driver = connection.drivers[Kind.ROUTER]
    assert await driver.observe(None) == []
    await driver.delete(seen)
    assert list(cloud.routers.values()) == [record]


async def test_nat_comes_goes_and_moves_to_another_range_while_ports_stay(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    plain = replace(LINK, shape=Link("ns-lan"))
    unaddressed = replace(PORT, shape=Port("ns-lan", MAC))
    await make(connection, plain, unaddressed)
    other = replace(LINK, shape=Link("ns-lan", address="10.78.0.1/24", nat=True))
    moved = replace(PORT, shape=Port("ns-lan", MAC, range="10.78.0.0/24"))
    for link, port, cidr in (
        (LINK, PORT, "10.77.0.0/24"), (other, moved, "10.78.0.0/24"), (plain, unaddressed, ""),
        (LINK, PORT, "10.77.0.0/24"),
    ):  # fmt: skip
        for each in (link, port):
            driver = connection.drivers[each.key.kind]
            await driver.change(await only(connection, each.key.kind), each, TAG)
            assert (await only(connection, each.key.kind)).shape == each.shape
        serving = [each["cidr"] for each in cloud.subnets.values() if each["enable_dhcp"]]
        assert serving == ([cidr] if cidr else [])
        (record,) = cloud.ports.values()
        given = [cloud.subnets[each["subnet_id"]]["cidr"] for each in record["fixed_ips"]]
        assert given == serving


async def test_a_cloud_without_routers_has_none(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    cloud.has_routers = False
    assert await connection.drivers[Kind.ROUTER].observe(None) == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [(Kind.ROUTER, "routers"), (Kind.FLOATING_IP, "floatingips"), (Kind.TRUNK, "trunks")],
)
async def test_a_wrong_404_is_not_taken_for_a_cloud_that_has_none(
    cloud: FakeCloud, connection: OpenStackConnection, kind: Kind, path: str
) -> None:
    """Such as that of a proxy in front of Neutron: what is there would be left."""
    driver = connection.drivers[kind]
    cloud.fail(f"GET /network/v2.0/{path}", 404)
    with pytest.raises(HostUnreachable, match="though it has the extension"):
        await driver.observe(None)
    cloud.fail("GET /network/", 404, times=2)
    with pytest.raises(HostUnreachable, match="and so is its list of extensions"):
        await driver.observe(None)
    cloud.has_trunks = cloud.has_routers = False
    assert await driver.observe(None) == []


def test_what_is_routed_goes_before_its_router_and_that_before_its_network() -> None:
    floating = Key(Kind.FLOATING_IP, "cloud", "n-0")

    seen = [Observed(each.key, each.shape, TAG) for each in (LINK, ROUTER, PORT)]
    same_mac = Port("other", MAC)
    seen.append(Observed(Key(Kind.PORT, "another cloud", "n-0"), same_mac, TAG))
    seen.append(Observed(floating, FloatingIp("external", MAC), TAG))
    found = dependents(seen)
    assert found[ROUTER.key] == [floating]
    assert set(found[LINK.key]) == {ROUTER.key, PORT.key}


CLOUD = """
cluster: dev
hosts:
  here:
    openstack:
      {{cloud: {{name: c, auth: {{auth_url: "http://192.0.2.1/v3", username: u, password: p}}}},
      boot_address: 192.0.2.9{more}}}
networks: {{lan: {{nat: true{network}}}}}
nodes: [{{nics: [lan]}}]
"""


@pytest.mark.parametrize(
    ("external", "more", "network", "said"),
    [
        ((("public", "1"),), "", "", ""),
        ((("public", "1"), ("other", "2")), ", external_network: '2'", "", ""),
        ((("public", "1"), ("other", "2")), "", "", "has several external networks: other, public"),
        ((), "", "", "has no external network to which `nat` could lead"),
        (
            (("public", "1"),), ", external_network: lab", "",
            "does not see `external_network` lab. External networks that it sees: public",
        ),
        ((("public", "1"),), "", ", cidr: 'fd00:1::/64'", "`nat` is of IPv4"),
    ],
)  # fmt: skip
def test_where_nat_leads_is_known_before_anything_is_made(
    external: tuple[tuple[str, str], ...], more: str, network: str, said: str
) -> None:
    cluster = load(CLOUD.format(more=more, network=network), file="x")
    facts = HostFacts(
        frozenset(Firmware), frozenset(Arch), tpm=True,
        networks=frozenset({"public", "1"}), external_networks=external,
        sizes=(SizeOffered("m", "1", 8, 1 << 36, ENDLESS, ENDLESS),),
    )  # fmt: skip
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts={"here": facts})
    told = [*refused, *reasons_against(cluster, UUID(int=1), placed, {"here": facts})]
    assert any(said in each for each in told) if said else not told, told


def test_a_recovered_file_has_nat() -> None:
    seen = [Observed(each.key, each.shape, TAG) for each in (LINK, ROUTER)]
    text = cluster_file("dev", TAG.cluster, (), seen, lambda _: {})
    assert yaml.safe_load(text)["networks"] == {"lan": {"cidr": "10.77.0.0/24", "nat": True}}
