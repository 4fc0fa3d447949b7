"""Networks that are VLANs of a cloud's physical networks, for who may make them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import ProviderError, SpecError
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import ENDLESS, HostFacts, SizeOffered
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.order.order import Half, moves
from nospoon.plan.order.steps import Action
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.words import describe
from nospoon.providers.openstack.connection import RULES, OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
TAG = OwnerTag("kit", UUID(int=7))
KEY = Key(Kind.NETWORK, "cloud", "lan")
WANTED = Resource(KEY, Link("ns-lan", provider="racks", vlan=101))
CLOUD = """
hosts:
  here:
    openstack: {cloud: {name: c, auth: {auth_url: "http://192.0.2.1/v3", username: u, password: p}},
      boot_address: 192.0.2.9}
    physnets: {lab: rack}
"""
FACTS = HostFacts(
    frozenset(Firmware), frozenset(Arch), tpm=True,
    networks=frozenset({"rack"}), own_networks=frozenset({"rack"}),
    trunks=False, sizes=(SizeOffered("m", "1", 8, 1 << 36, ENDLESS, ENDLESS),),
)  # fmt: skip


async def only(connection: OpenStackConnection) -> Observed:
    (seen,) = await connection.drivers[Kind.NETWORK].observe(None)
    return seen


@pytest.mark.parametrize(
    "link",
    [
        WANTED.shape,
        Link("ns-lan", mtu=9000, provider="racks", vlan=101),
        Link("ns-lan", "10.1.0.1/24", nat=True, provider="racks", vlan=101),
        Link("ns-lan", "10.1.0.1/24", mtu=9000, nat=True),
        Link("ns-lan", provider="racks", segment="flat"),
        Link("ns-lan", segment="vxlan", segment_id=7001),
        Link("ns-lan", "10.1.0.1/24", nat=True, segment="geneve", segment_id=7002),
    ],
)
async def test_a_network_is_the_segment_that_the_file_says(
    cloud: FakeCloud, connection: OpenStackConnection, link: Link
) -> None:
    driver = connection.drivers[Kind.NETWORK]
    for _ in range(2):
        await driver.create(replace(WANTED, shape=link), TAG)
    made = cloud.networks[next(each for each in cloud.networks if each != "n0")]
    placed = {name: value for name, value in made.items() if name.startswith("provider:")}
    said = {
        "provider:network_type": link.segment or ("vlan" if link.provider else ""),
        "provider:physical_network": link.provider,
        "provider:segmentation_id": link.segment_id or link.vlan,
    }
    assert placed == {name: value for name, value in said.items() if value}
    assert (await only(connection)).shape == link
    await driver.change(await only(connection), replace(WANTED, shape=link), TAG)
    assert (await only(connection)).shape == link
    await driver.delete(await only(connection))
    assert set(cloud.networks) == {"n0"}


async def test_the_id_of_a_type_that_the_cloud_chose_is_no_part_of_a_networks_shape(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    typed = replace(WANTED, shape=Link("ns-lan", segment="vxlan"))
    await connection.drivers[Kind.NETWORK].create(typed, TAG)
    (made,) = (each for each in cloud.networks.values() if each["id"] != "n0")
    assert "provider:segmentation_id" not in made
    made |= {"provider:segmentation_id": 12, "provider:physical_network": None}
    assert (await only(connection)).shape == typed.shape


async def test_a_vlan_that_the_cloud_chose_is_no_part_of_a_networks_shape(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Projects' own networks are VLANs in some clouds, as administrators see."""
    plain = replace(WANTED, shape=Link("ns-lan"))
    await connection.drivers[Kind.NETWORK].create(plain, TAG)
    (made,) = (each for each in cloud.networks.values() if each["id"] != "n0")
    made |= {
        "provider:network_type": "vlan", "provider:physical_network": "default",
        "provider:segmentation_id": 7,
    }  # fmt: skip
    assert (await only(connection)).shape == plain.shape
    assert (await connection.survey("", ())).provider_networks


async def test_a_cloud_that_refuses_says_why(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    assert not (await connection.survey("", ())).provider_networks
    cloud.fail("POST .*/networks", 403)
    with pytest.raises(ProviderError, match="a fault of the test"):
        await connection.drivers[Kind.NETWORK].create(WANTED, TAG)


def test_it_is_described_and_in_a_recovered_file() -> None:
    assert describe(WANTED.shape) == "bridge ns-lan VLAN 101 of racks"
    text = cluster_file("dev", TAG.cluster, (), [Observed(KEY, WANTED.shape, TAG)], lambda _: {})
    assert yaml.safe_load(text)["networks"] == {"lan": {"provider": "racks", "vlan": 101}}


@pytest.mark.parametrize(
    ("said", "link", "words"),
    [
        (
            {"provider": "racks", "segment": "flat"},
            Link("x", provider="racks", segment="flat"),
            "flat of racks",
        ),
        ({"segment": "gre"}, Link("x", segment="gre"), "gre"),
        (
            {"segment": "vxlan", "segment_id": 16777215},
            Link("x", segment="vxlan", segment_id=16777215),
            "vxlan 16777215",
        ),
        (
            {"provider": "racks", "segment": "vlan", "vlan": 101},
            Link("x", provider="racks", vlan=101),
            "VLAN 101 of racks",
        ),
    ],
)
def test_a_file_says_of_what_a_network_is_made(
    said: dict[str, object], link: Link, words: str
) -> None:
    text = f"cluster: dev\n{CLOUD}networks: {{ext: {{physnet: lab}}, lan: {said}}}\n"
    cluster = load(f"{text}nodes: [{{nics: [ext, lan]}}]\n", file="x")
    allowed = {"here": replace(FACTS, provider_networks=True)}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=allowed)
    assert not refused
    made = resolve(cluster, TAG.cluster, placed, Surroundings({}, {}, {}, facts=allowed))
    shape = made[Key(Kind.NETWORK, "here", "lan")].shape
    assert isinstance(shape, Link)
    assert replace(shape, name="x") == link
    assert describe(link).startswith(f"bridge x {words}")
    written = cluster_file("dev", TAG.cluster, (), [Observed(KEY, link, TAG)], lambda _: {})
    again = yaml.safe_load(written)["networks"]["lan"]
    assert again == {name: value for name, value in said.items() if value != "vlan"}


@pytest.mark.parametrize(("running", "machine"), [(False, Action.CHANGE), (True, Action.REPLACE)])
def test_what_is_plugged_into_a_network_that_is_replaced_is_plugged_into_the_other_one(
    machine: Action, *, running: bool
) -> None:
    """Neutron removes no network that has ports."""
    allowed = {"here": replace(FACTS, provider_networks=True, external_networks=(("public", "p"),))}

    def wanted(vni: int) -> dict[Key, Resource]:
        text = (
            f"cluster: dev\n{CLOUD}"
            f"networks: {{lan: {{nat: true, segment: vxlan, segment_id: {vni}}}}}\n"
            "nodes: [{name: n, nics: [{network: lan, floating_ip: public}]}]\n"
        )
        cluster = load(text, file="x")
        placed, refused = allocate(cluster, Allocations(), Occupied(), facts=allowed)
        assert not refused
        return resolve(cluster, TAG.cluster, placed, Surroundings({}, {}, {}, facts=allowed))

    there = [
        Observed(key, each.shape, TAG, running=running and key.kind is Kind.MACHINE)
        for key, each in wanted(1).items()
        if key.kind in RULES or key.kind is Kind.NETWORK
    ]
    plan = diff(
        cluster="dev", cluster_id=TAG.cluster, desired=wanted(2), observed=there,
        rules={"here": RULES},
    )  # fmt: skip
    actions = {step.key.kind: step.action for step in plan.steps if step.key.kind in RULES}
    assert actions == {
        Kind.NETWORK: Action.REPLACE, Kind.PORT: Action.REPLACE, Kind.ROUTER: Action.REPLACE,
        Kind.FLOATING_IP: Action.CHANGE, Kind.MACHINE: machine,
    }  # fmt: skip
    order = [(key.kind, half) for key, half in moves(plan)]
    gone = order.index((Kind.NETWORK, Half.REMOVE))
    assert order.index((Kind.PORT, Half.REMOVE)) < gone
    assert order.index((Kind.ROUTER, Half.REMOVE)) < gone
    assert order.index((Kind.PORT, Half.MAKE)) < order.index((Kind.MACHINE, Half.MAKE))
    assert order.index((Kind.ROUTER, Half.MAKE)) < order.index((Kind.FLOATING_IP, Half.MAKE))


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            "{segment: flat}",
            "networks.lan.segment: a segment of type flat is in a physical network",
        ),
        (
            "{segment: vlan, vlan: 5}",
            "networks.lan.segment: a segment of type vlan is in a physical",
        ),
        ("{segment: vxlan, provider: p, vlan: 5}", "type vxlan is in no physical network"),
        (
            "{segment: flat, provider: p, vlan: 5}",
            "networks.lan.vlan: a segment of type flat has no",
        ),
        ("{segment: gre, physnet: lab}", "networks.lan.segment: expected a network of nospoon's"),
        ("{segment_id: 5}", "networks.lan.segment_id: expected the id of a tunnel"),
        ("{segment: geneve, segment_id: 16777216}", "expected 16777215 at most"),
        ("{segment: token_ring}", "networks.lan.segment"),
        ("{provider: p}", "a network of a cloud's physical one needs a VLAN"),
    ],
)
def test_segments_that_cannot_be_are_refused(network: str, said: str) -> None:
    text = f"cluster: dev\n{CLOUD}networks: {{ext: {{physnet: lab}}, lan: {network}}}\n"
    with pytest.raises(SpecError) as caught:
        load(f"{text}nodes: [{{nics: [ext, lan]}}]\n", file="x")
    assert said in " ".join(map(str, caught.value.problems))


TUNNEL = "networks: {ext: {physnet: lab}, lan: {segment: vxlan}}\n"
VLAN = "networks: {ext: {physnet: lab}, lan: {provider: racks, vlan: 101}}\n"


@pytest.mark.parametrize(
    ("hosts", "networks", "nic", "said"),
    [
        (CLOUD, VLAN, "lan", "its project may not see physical networks"),
        (CLOUD, TUNNEL, "lan", "may not choose vxlan. Leave `segment` out"),
        ("hosts: {here: {}}\n", TUNNEL, "lan", "host here is not a cloud. Leave `segment` out"),
        ("hosts: {here: simulated}\n", VLAN, "lan", "host here is not a cloud. Write `physnet`"),
        ("hosts: {here: {}}\n", VLAN, "lan", "host here is not a cloud. Write `physnet`"),
        (
            "hosts: {here: {}}\n",
            "networks: {lan: {nat: true, router: a}}\n",
            "lan",
            "is not a cloud. Leave `router`",
        ),
        (
            CLOUD,
            "networks: {ext: {physnet: lab}, lan: {physnet: lab, vlan: 101, switch: ovs}}\n",
            "lan",
            "name the physical network of the VLAN as `provider`",
        ),
        (
            CLOUD,
            "networks: {ext: {physnet: lab}, lan: {physnet: lab, switch: ovs}}\n",
            "{network: lan, trunk: [101]}",
            "none of the file has VLAN 101. Write `vlan: 101` for the one that it is",
        ),
        (
            CLOUD,
            "networks: {ext: {physnet: lab}, lan: {}, red: {vlan: 101}, blue: {vlan: 101}}\n",
            "{network: lan, trunk: [101]}",
            "network lan: VLAN 101 is that of several networks: red, blue",
        ),
        (
            CLOUD,
            "networks: {ext: {physnet: lab}, lan: {}, red: {bridge: none, vlan: 101}}\n",
            "{network: lan, trunk: [101]}",
            "network red: host here has no network none that its project sees",
        ),
        (
            CLOUD,
            "networks: {ext: {physnet: lab}, lan: {}, red: {vlan: 101}}\n",
            "{network: lan, trunk: [101]}",
            "Neutron of host here makes no trunks: it has no extension `trunk`",
        ),
    ],
)
def test_what_a_host_cannot_do_is_refused(hosts: str, networks: str, nic: str, said: str) -> None:
    if hosts != CLOUD:
        networks = networks.replace("ext: {physnet: lab}, ", "")
    nics = f"[ext, {nic}]" if hosts == CLOUD else f"[{nic}]"
    cluster = load(f"cluster: dev\n{hosts}{networks}nodes: [{{nics: {nics}}}]\n", file="x")
    facts = {"here": FACTS}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=facts)
    told = [*refused, *reasons_against(cluster, UUID(int=1), placed, facts)]
    assert any(said in each for each in told), told
    allowed = {"here": replace(FACTS, provider_networks=True)}
    if "see physical" in said:
        placed, refused = allocate(cluster, Allocations(), Occupied(), facts=allowed)
        assert not [*refused, *reasons_against(cluster, UUID(int=1), placed, allowed)]


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ("red: {vlan: 101}, lan: {}", "network lan: a trunk needs Open vSwitch"),
        (
            "red: {vlan: 101}, lan: {physnet: lab, switch: ovs}",
            "network red: host there is not a cloud: a VLAN needs a bridge of Open vSwitch",
        ),
    ],
)
def test_what_a_trunk_is_in_a_cloud_alone_another_host_refuses(networks: str, said: str) -> None:
    """A file with both is read, for its nodes may be on either."""
    text = (
        f"cluster: dev\n{CLOUD}  there: {{physnets: {{lab: br0}}}}\nnetworks: {{{networks}}}\n"
        "nodes: [{host: there, nics: [{network: lan, trunk: [101]}, red]}]\n"
    )
    facts = {name: replace(FACTS, networks=None) for name in ("here", "there")}
    placed, refused = allocate(load(text, file="x"), Allocations(), Occupied(), facts=facts)
    assert not placed.hosts
    assert said in "".join(refused)


@pytest.mark.parametrize("more", ["trunk: [101]", "floating_ip: public"])
def test_one_of_two_nodes_is_refused_for_what_it_alone_has(more: str) -> None:
    text = (
        f"cluster: dev\n{CLOUD}networks: {{ext: {{physnet: lab}}, lan: {{}}}}\n"
        "nodes: [{name: a, nics: [ext, lan]}, {name: b, nics: [ext, {network: lan, MORE}]}]\n"
    ).replace("MORE", more)
    cluster = load(text, file="x")
    facts = {"here": replace(FACTS, trunks=True)}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=facts)
    assert set(placed.hosts) == {"a"}
    assert ["node b fits on no host" in each for each in refused] == [True]


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("{provider: racks}", "needs a VLAN"),
        ("{provider: racks, vlan: 5, physnet: lab}", "got both"),
        ("{vlan: 5}", "in a cloud a provider"),
    ],
)
def test_half_of_it_is_refused_with_its_line(network: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load(f"cluster: dev\n{CLOUD}networks: {{lan: {network}}}\nnodes: []\n", file="x")
