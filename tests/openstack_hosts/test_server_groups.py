"""Rules of affinity in a cloud: server groups, whose names say whose they are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.openstack_hosts.test_roots import open_seed
from tests.openstack_hosts.test_routers import only
from tests.openstack_hosts.test_snapshots import make, shape_of, vm

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import OutOfSpace, ProviderError, SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.host_facts import HostFacts, QuotaName
from nospoon.model.resources.groups import GroupPolicy, ServerGroup
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.order.order import Half, dependents, moves
from nospoon.plan.order.steps import Action
from nospoon.plan.refuse import reasons_against
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.words import describe
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
ID = UUID(int=7)
TAG = OwnerTag("kit", ID, name="dev", uid=0)
NAME = "anti-affinity-role=control"
APART = ServerGroup(GroupPolicy.APART)
GROUP = Resource(Key(Kind.SERVER_GROUP, "cloud", NAME), APART)
FILE = """
cluster: dev
hosts:
  cloud:
    openstack: {{cloud: {{name: c, auth: {{auth_url: "http://k/v3", username: u, password: p}}}},
      boot_address: 192.0.2.9{more}}}
networks: {{lan: {{nat: true}}}}
flavors: {{small: {{memory: 64MiB, disks: [], nics: [lan]}}}}
nodes:
"""
TWO = """
  - {name: "c{n}", count: 2, labels: {role: control}, placement: {anti_affinity: role}}
  - {name: w}
"""


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def read(nodes: str, more: str = "") -> Cluster:
    return load(FILE.format(more=more) + nodes, file="x")


async def planned(
    connection: OpenStackConnection, cluster: Cluster
) -> tuple[dict[Key, Resource], list[str]]:
    """What is to be, and why it cannot."""
    known = {"cloud": await connection.survey("", ())}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=known)
    why = [*refused, *reasons_against(cluster, ID, placed, known)]
    if refused:
        return {}, why
    return resolve(cluster, ID, placed, Surroundings({"cloud": ""}, {}, {}, facts=known)), why


def groups_of(wanted: Mapping[Key, Resource]) -> dict[str, str]:
    """Node -> its group."""
    return {
        each.key.name: each.shape.group
        for each in wanted.values()
        if isinstance(each.shape, Machine)
    }


def shapes_of(wanted: Mapping[Key, Resource]) -> dict[str, ServerGroup]:
    return {
        each.key.name: each.shape for each in wanted.values() if isinstance(each.shape, ServerGroup)
    }


async def test_a_group_says_by_its_name_whose_it_is_and_goes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.SERVER_GROUP]
    theirs = {"id": "t", "name": "web", "policy": "affinity", "rules": {}, "members": []}
    cloud.server_groups["t"] = dict(theirs)
    for _ in range(2):
        await driver.create(GROUP, TAG)
    assert len(cloud.server_groups) == 2
    seen = await only(connection, Kind.SERVER_GROUP)
    assert (seen.key, seen.shape, seen.tag.name) == (GROUP.key, APART, "dev")
    assert describe(APART) == "anti-affinity"
    assert not await driver.observe(UUID(int=8)), "it is of another cluster"
    (own,) = (each for each in cloud.server_groups.values() if each["id"] != "t")
    cloud.server_groups["lost"] = {**own, "id": "lost"}  # of a call whose answer was lost
    for _ in range(2):
        await driver.delete(seen)
    assert cloud.server_groups == {"t": theirs}


async def test_a_nova_before_rocky_has_policies_and_no_rules(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    cloud.microversion = "2.61"
    driver = connection.drivers[Kind.SERVER_GROUP]
    await driver.create(GROUP, TAG)
    assert (await only(connection, Kind.SERVER_GROUP)).shape == APART
    with pytest.raises(ProviderError, match="no rules of server groups"):
        await driver.create(replace(GROUP, key=Key(Kind.SERVER_GROUP, "cloud", "x"),
                                    shape=replace(APART, most=3)), TAG)  # fmt: skip
    _, why = await planned(connection, read(TWO, ", per_compute_host: 3"))
    assert [each.partition(", which")[0] for each in why] == [
        "host cloud: Nova has no rules of server groups there"
    ]


@pytest.mark.parametrize(
    "shape",
    [
        ServerGroup(GroupPolicy.APART, 3),
        ServerGroup(GroupPolicy.SOFT_APART),
        ServerGroup(GroupPolicy.TOGETHER),
        ServerGroup(GroupPolicy.SOFT_TOGETHER),
    ],
)
async def test_what_a_group_is_is_seen_as_it_was_asked_for(
    connection: OpenStackConnection, shape: ServerGroup
) -> None:
    await connection.drivers[Kind.SERVER_GROUP].create(replace(GROUP, shape=shape), TAG)
    assert (await only(connection, Kind.SERVER_GROUP)).shape == shape


async def test_a_server_is_made_in_its_group_and_seen_to_be_in_it(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    grouped = replace(vm(), shape=replace(shape_of(vm()), group=NAME))
    tag = replace(TAG, name="one")
    await connection.drivers[Kind.SERVER_GROUP].create(GROUP, tag)
    await make(connection, grouped)
    (server,), (group,) = cloud.servers, cloud.server_groups.values()
    assert group["members"] == [server]
    assert (await only(connection, Kind.MACHINE)).shape == grouped.shape
    assert describe(grouped.shape).endswith(f", group {NAME}")
    group["members"] = []
    assert (await only(connection, Kind.MACHINE)).shape == vm().shape, "it is not in it"


async def test_a_server_without_a_compute_host_is_refused_with_novas_words(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    cloud.compute_hosts = 1
    await connection.drivers[Kind.SERVER_GROUP].create(GROUP, replace(TAG, name="one"))
    (group,) = cloud.server_groups.values()
    group["members"] = ["of another node"]
    grouped = replace(vm(), shape=replace(shape_of(vm()), group=NAME))
    with pytest.raises(OutOfSpace, match="No valid host was found"):
        await make(connection, grouped)
    assert not cloud.servers


async def test_rules_of_a_file_are_server_groups_of_a_cloud(
    connection: OpenStackConnection,
) -> None:
    wanted, why = await planned(connection, read(TWO))
    assert not why, "two of them are in one cloud, which has several compute hosts"
    assert shapes_of(wanted) == {NAME: APART}
    assert groups_of(wanted) == {"c0": NAME, "c1": NAME, "w": ""}
    key = Key(Kind.SERVER_GROUP, "cloud", NAME)
    needing = [name.name for name, each in wanted.items() if key in each.needs]
    assert needing == ["c0", "c1"]
    seen = [Observed(each.key, each.shape, TAG) for each in wanted.values()]
    assert [each.name for each in dependents(seen)[key]] == ["c0", "c1"]
    wanted, _ = await planned(connection, read(TWO, ", server_groups: soft"))
    assert shapes_of(wanted) == {f"soft-{NAME}": ServerGroup(GroupPolicy.SOFT_APART)}
    wanted, _ = await planned(connection, read(TWO, ", per_compute_host: 2"))
    assert shapes_of(wanted) == {"anti-affinity.2-role=control": replace(APART, most=2)}


async def test_nodes_that_go_together_are_in_one_group_by_whichever_keys(
    connection: OpenStackConnection,
) -> None:
    nodes = """
  - {name: a, flavor: small, labels: {rack: r1}, placement: {affinity: [rack]}}
  - {name: b, flavor: small, labels: {rack: r1, row: x}, placement: {affinity: [rack, row]}}
  - {name: c, flavor: small, labels: {row: x}, placement: {affinity: row}}
  - {name: d, flavor: small, placement: {affinity: flavor}}
"""
    wanted, why = await planned(connection, read(nodes))
    assert not why
    groups = groups_of(wanted)
    assert groups == {**dict.fromkeys("abc", "affinity-rack=r1"), "d": "affinity-flavor=small"}
    assert set(shapes_of(wanted).values()) == {ServerGroup(GroupPolicy.TOGETHER)}


async def test_a_node_is_in_one_group_at_most(connection: OpenStackConnection) -> None:
    """Another one of which it alone is, or which has the same nodes, means nothing more."""
    nodes = """
  - {name: "n{n}", count: 2, labels: {role: control, az: x},
     placement: {anti_affinity: [role, az, flavor]}}
  - {name: m, labels: {role: control, az: y}, placement: {anti_affinity: [role, az]}}
"""
    _, (refused,) = await planned(connection, read(nodes))
    assert refused == (
        "node n0 and 1 more on host cloud: rules of its `placement` put it into the server groups "
        f"{NAME} and anti-affinity-flavor=small, and Nova has a server in one at most. Leave one "
        "of these rules out."
    )
    alone = nodes.replace("[role, az, flavor]", "[role, az]").replace("count: 2", "count: 1")
    wanted, why = await planned(connection, read(alone.replace("az: x", "az: z")))
    assert not why
    assert set(groups_of(wanted).values()) == {NAME}


async def test_a_name_says_what_it_can_and_is_another_ones_never(
    connection: OpenStackConnection,
) -> None:
    nodes = "".join(
        f"  - {{name: n{number}, labels: {{role: '{value}'}}, placement: {{affinity: role}}}}\n"
        for number, value in enumerate(["a:b", "a b", "x" * 255, "y" * 255, "a-b"])
    )
    wanted, why = await planned(connection, read("\n" + nodes))
    assert not why
    names = list(groups_of(wanted).values())
    assert len(set(names)) == 5
    assert names[4] == "affinity-role=a-b"
    assert all("~" in name and len(name) < 90 for name in names[:4])
    driver = connection.drivers[Kind.SERVER_GROUP]
    for each in wanted.values():
        if each.key.kind is Kind.SERVER_GROUP:
            await driver.create(each, replace(TAG, name="c" * 63, uid=1 << 31))
    assert {each.key.name for each in await driver.observe(ID)} == set(names)


def shown(steps: Iterator[tuple[Kind, str, Action]]) -> set[tuple[str, str, str]]:
    return {(str(kind), name, str(action)) for kind, name, action in steps}


async def test_another_rule_is_another_group_and_makes_its_servers_again(
    connection: OpenStackConnection,
) -> None:
    before, _ = await planned(connection, read(TWO))
    after, _ = await planned(connection, read(TWO, ", server_groups: soft"))
    seen = [Observed(each.key, each.shape, TAG) for each in before.values()]
    plan = diff(
        cluster="dev", cluster_id=ID, desired=after, observed=seen,
        rules={"cloud": (await connection.capabilities()).rules},
    )  # fmt: skip
    steps = shown((each.key.kind, each.key.name, each.action) for each in plan.steps)
    assert steps == {
        ("server-group", f"soft-{NAME}", "create"), ("server-group", NAME, "delete"),
        ("machine", "c0", "replace"), ("machine", "c1", "replace"),
    }  # fmt: skip
    (changed,) = {each.changes for each in plan.steps if each.key.kind is Kind.MACHINE}
    assert [(each.field, each.observed, each.desired) for each in changed] == [
        ("group", NAME, f"soft-{NAME}")
    ]
    order = moves(plan)
    left = order[Key(Kind.SERVER_GROUP, "cloud", NAME), Half.REMOVE]
    assert {(key.name, half) for key, half in left.waits} >= {
        ("c0", Half.REMOVE), ("c1", Half.REMOVE),
    }  # fmt: skip


async def test_a_recovered_file_has_the_rules_of_its_groups(
    connection: OpenStackConnection,
) -> None:
    nodes = TWO + "  - {name: f, flavor: small, placement: {affinity: flavor}}\n"
    nodes += "  - {name: o, labels: {role: 'a b'}, placement: {affinity: role}}\n"
    cluster = read(nodes, ", per_compute_host: 2")
    wanted, _ = await planned(connection, cluster)
    seen = [Observed(each.key, each.shape, TAG) for each in wanted.values()]
    text = cluster_file(
        "dev", ID, cluster.hosts, seen, lambda _: {"auth": {"auth_url": "http://k"}}
    )
    again, why = await planned(connection, load(text, file="recovered"))
    assert not why
    before = groups_of(wanted)
    assert groups_of(again) == {**before, "o": ""}, "a name that does not say all of it"
    assert before["c0"] == "anti-affinity.2-role=control"


async def test_groups_and_their_members_are_compared_with_their_quotas(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await connection.drivers[Kind.SERVER_GROUP].create(GROUP, replace(TAG, cluster=UUID(int=8)))
    cloud.limits = {
        "maxServerGroups": 3, "totalServerGroupsUsed": 3, "maxServerGroupMembers": 1,
    }  # fmt: skip
    facts: HostFacts = await connection.survey("", ())
    assert facts.quota.left(QuotaName.SERVER_GROUPS) == 1, "one is of nospoon"
    _, why = await planned(connection, read(TWO))
    told = [each.partition(". See")[0] for each in why]
    beginning = "host cloud: the quota of its project leaves"
    assert told == [
        f"{beginning} {left}), and the nodes there take {number}"
        for left, number in (
            ("0 server groups (3, of which others use 3", 1),
            ("1 servers of one group (1, of which others use 0", 2),
        )
    ]
    cloud.limits["maxServerGroups"] = 1
    with pytest.raises(OutOfSpace, match="too many server groups"):
        await connection.drivers[Kind.SERVER_GROUP].create(GROUP, TAG)


@pytest.mark.parametrize(
    "more", ["server_groups: soft, per_compute_host: 2", "server_groups: hard"]
)
def test_what_no_cloud_can_do_is_refused_in_the_file(more: str) -> None:
    with pytest.raises(SpecError):
        read(TWO, f", {more}")
