"""What a project may still have, by Nova's limits, and plans that would take more."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.errors import NoCapacity
from nospoon.model.host_facts import HostFacts, Quota, SizeOffered
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.refuse import reasons_against
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
MIB = 1 << 20
TEXT = """
cluster: c
hosts:
  cloud:
    openstack:
      cloud: {name: mine, auth: {auth_url: "http://192.0.2.1:5000/v3", username: u, password: p}}
      boot_address: 192.0.2.7
networks: {lan: {}}
nodes: [{memory: 1GiB, disks: [], nics: [lan]}]
"""


async def test_what_is_left_is_what_others_do_not_use(
    connection: OpenStackConnection, cloud: FakeCloud
) -> None:
    cloud.limits = {
        "maxTotalInstances": 10, "totalInstancesUsed": 7, "maxTotalCores": 20,
        "totalCoresUsed": 20, "maxTotalRAMSize": -1, "totalRAMUsed": 512,
    }  # fmt: skip
    facts = await connection.survey("", ())
    assert facts.quota == Quota(servers=3, cpus=0, memory=None)
    cloud.limits |= {"totalInstancesUsed": 12, "maxTotalRAMSize": 1024}
    facts = await connection.survey("", ())
    assert facts.quota == Quota(servers=0, cpus=0, memory=512 * MIB), "others use more than all"
    assert (facts.cpus, facts.memory) == (1, 512 * MIB), "0 would be unknown"
    assert facts.quota.whole == Quota(servers=10, cpus=20, memory=1024 * MIB)
    cloud.limits = {}
    assert (await connection.survey("", ())).quota == Quota()


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        (Quota(servers=0), ["leaves 0 servers, and the nodes there take 1"]),
        (Quota(cpus=1), ["leaves 1 CPUs, and the nodes there take 2"]),
        (Quota(memory=0), ["leaves 0 MiB of memory, and the nodes there take 2048"]),
        (Quota(servers=1, cpus=2, memory=2048 * MIB), []),
        (Quota(), []),
    ],
    ids=str,
)
async def test_a_quota_with_nothing_left_refuses_even_one_node(
    connection: OpenStackConnection, quota: Quota, said: list[str]
) -> None:
    facts: HostFacts = replace(
        await connection.survey("", ()),
        quota=quota,
        sizes=(SizeOffered("m", "m", cpus=2, memory=2048 * MIB, disk=0),),
    )
    cluster = load(TEXT, file="c.yaml")
    name = cluster.hosts[0].name
    allocations = Allocations(hosts={each.name: name for each in cluster.nodes})
    reasons = [
        each
        for each in reasons_against(
            cluster, UUID(int=1), allocations, {name: facts}, before=Allocations()
        )
        if "quota" in each
    ]
    assert [any(part in reason for reason in reasons) for part in said] == [True] * len(said)
    assert len(reasons) == len(said)
    assert not any(isinstance(each, NoCapacity) for each in reasons)
    whole = replace(quota, whole=Quota(servers=1, cpus=2, memory=2048 * MIB))
    emptied = replace(facts, quota=whole)
    found = reasons_against(cluster, UUID(int=1), allocations, {name: emptied})
    assert [isinstance(each, NoCapacity) for each in found if "quota" in each] == [True] * len(said)


async def test_a_relay_that_is_not_there_yet_takes_of_the_quota(
    connection: OpenStackConnection,
) -> None:
    size = SizeOffered("m", "1", cpus=2, memory=2048 * MIB, disk=0)
    facts = replace(
        await connection.survey("", ()), quota=Quota(servers=1), sizes=(size,), flavors={"m": size}
    )
    relay = "relay: {network: lan, image: debian, flavor: m, floating_ip: public}"
    text = TEXT.replace("boot_address: 192.0.2.7", relay).replace("{lan: {}}", "{lan: {nat: true}}")
    cluster = load(text, file="c.yaml")
    name = cluster.hosts[0].name
    now = Allocations(hosts={each.name: name for each in cluster.nodes})

    def refused(before: Allocations) -> list[str]:
        found = reasons_against(cluster, UUID(int=1), now, {name: facts}, before=before)
        return [each for each in found if "quota" in each]

    [reason] = refused(Allocations())
    assert "leaves 1 servers, and the nodes there, with their relay, take 2" in reason
    assert refused(now) == [], "what is there is counted as used"
