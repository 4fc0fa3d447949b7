"""What a project may still have, by Nova's limits, and plans that would take more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from nospoon.clusterfile.load import load
from nospoon.control.maintenance.host_check import _resources
from nospoon.errors import NoCapacity, ProviderError
from nospoon.model.cluster import Adopted, Arch, Firmware
from nospoon.model.host_facts import HostFacts, Quota, QuotaName, Share, SizeOffered
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.rest.hosts import Verdict
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.refuse import cautions, reasons_against
from nospoon.providers.openstack.around import cloud_of
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.quotas import NEUTRONS
from nospoon.testing.cloud_connection import AT
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
NETWORKS = """
  lan: {}
  red: {vlan: 101}
  ext: {nat: true}
  one: {nat: true, router: both}
  two: {nat: true, router: both}
"""
NICS = """[
  {network: ext, floating_ip: public}, {network: lan, trunk: [101]},
  {network: one, floating_ip: public, floating_address: 203.0.113.9}, two]"""
TAKEN_THERE = {
    "servers": 1, "CPUs": 2, "MiB of memory": 2048, "ports": 5, "trunks": 1, "networks": 5,
    "subnets": 5, "routers": 2, "floating IPs": 2, "server groups": 1,
    "servers of one group": 1, "key pairs of the user": 0, "volumes": 2, "GiB of volumes": 7,
    "volumes of their type": 2, "GiB of volumes of their type": 7, "GiB for one volume": 5,
}  # fmt: skip


def left(facts: HostFacts) -> dict[str, int]:
    return {str(name): each.left for name, each in facts.quota.shares.items()}


async def test_what_is_left_is_what_others_do_not_use(
    connection: OpenStackConnection, cloud: FakeCloud
) -> None:
    cloud.limits = {
        "maxTotalInstances": 10, "totalInstancesUsed": 7, "maxTotalCores": 20,
        "totalCoresUsed": 20, "maxTotalRAMSize": -1, "totalRAMUsed": 512,
    }  # fmt: skip
    facts = await connection.survey("", ())
    assert left(facts) == {"servers": 3, "cpus": 0}
    cloud.limits |= {"totalInstancesUsed": 12, "maxTotalRAMSize": 1024}
    facts = await connection.survey("", ())
    assert left(facts) == {"servers": 0, "cpus": 0, "memory": 512 * MIB}, "more than all is used"
    assert (facts.cpus, facts.memory) == (1, 512 * MIB), "0 would be unknown"
    assert left(facts.emptied) == {"servers": 10, "cpus": 20, "memory": 1024 * MIB}
    cloud.limits = {}
    assert (await connection.survey("", ())).quota == Quota()


LEFT = {
    "network": ("networks", 7), "subnet": ("subnets", 7), "port": ("ports", 8),
    "trunk": ("trunks", 9), "router": ("routers", 9), "floatingip": ("floating_ips", 8),
}  # fmt: skip
"""Of ten: three networks of others, two ports, one trunk, one router, two floating IPs."""


async def test_what_is_left_of_neutrons_quotas_is_beside_what_others_have(
    connection: OpenStackConnection, cloud: FakeCloud
) -> None:
    own, other = OwnerTag("kit", UUID(int=7)), OwnerTag("kit", UUID(int=8))
    for number, tag in enumerate((own, own, other)):
        link = Resource(Key(Kind.NETWORK, "cloud", f"n{number}"), Link(f"wire{number}"))
        await connection.drivers[Kind.NETWORK].create(link, tag)
    port = Resource(Key(Kind.PORT, "cloud", "n-0"), Port("wire0", "02:00:00:00:00:01"))
    await connection.drivers[Kind.PORT].create(port, own)
    plain: dict[str, object] = {"description": "", "device_id": "", "fixed_ips": []}
    for number in range(2):
        id_ = f"other{number}"
        cloud.networks[id_] = {"id": id_, "name": id_, "subnets": [], **plain}
        cloud.subnets[id_] = {"id": id_, "network_id": id_, "cidr": "192.0.2.0/24"}
        cloud.ports[id_] = {"id": id_, "mac_address": f"fa:16:3e:00:00:0{number}", **plain}
        cloud.ports[id_]["network_id"] = id_
        cloud.floatingips[id_] = {
            "id": id_, "floating_ip_address": f"203.0.113.{number}", "port_id": None, **plain,
            "floating_network_id": "n0",
        }  # fmt: skip
    cloud.subnets["s"] = {"id": "s", "network_id": "n0", "cidr": "203.0.113.0/24"}
    for kind in (cloud.trunks, cloud.routers):
        kind["other"] = {"id": "other", **plain}
    assert (await connection.survey("", ())).quota == Quota(), "there are none"
    cloud.quotas = dict.fromkeys(LEFT, 10)
    facts = await connection.survey("", ())
    assert left(facts) == dict(LEFT.values())
    of_networks = facts.quota.shares[QuotaName.NETWORKS]
    assert (of_networks.used_beside(own.cluster), of_networks.used_beside(other.cluster)) == (4, 5)
    assert facts.quota.shares[QuotaName.SUBNETS].own == of_networks.own
    assert facts.quota.allocated == {"203.0.113.0", "203.0.113.1"}
    cloud.floatingips["other0"]["project_id"] = "2" * 32
    assert (await connection.survey("", ())).quota.allocated == {"203.0.113.1"}
    cloud.quotas = {"subnet": 4}
    assert left(await connection.survey("", ())) == {"subnets": 1}
    unknown = frozenset(NEUTRONS)
    for status in (403, 404):
        cloud.fail("GET .*/quotas/", status)
        assert (await connection.survey("", ())).quota == Quota(unknown=unknown), "for other roles"


@pytest.mark.parametrize("path", [".*/quotas/", "/volume/.*/limits", "/volume/.*/os-quota-sets/"])
async def test_quotas_that_a_cloud_fails_to_show_are_not_unlimited(
    cloud: FakeCloud, connection: OpenStackConnection, path: str
) -> None:
    """What fails there is asked for again; a login that is refused is told at once."""
    cloud.volume_types = ["usual"]
    with_volumes = replace(cloud_of(AT), has_volumes=True, volume_type="usual")
    connection.configure(replace(AT, connection=with_volumes))
    flavor = cloud.flavors["1"]
    cloud.flavors = {"1": flavor | {"OS-FLV-EXT-DATA:ephemeral": 0}}
    whole = (await connection.survey("", ())).quota
    assert whole.unknown == frozenset()
    for status in (500, 502):
        cloud.fail(f"GET {path}", status, times=3)
        assert (await connection.survey("", ())).quota == whole
        cloud.fail(f"GET {path}", status, times=4)
        with pytest.raises(ProviderError, match=f"refused with {status}"):
            await connection.survey("", ())
    cloud.fail(f"GET {path}", 401, times=2)  # keystoneauth logs in again once
    with pytest.raises(ProviderError, match="401"):
        await connection.survey("", ())
    assert not cloud.rules[-1].times
    cloud.fail(f"GET {path}", 403)
    assert (await connection.survey("", ())).quota.unknown


async def test_a_plan_says_which_addresses_of_the_networks_of_others_nodes_take(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """On networks that are made for the cluster, ports have none."""
    pools = [{"start": "203.0.113.10", "end": "203.0.113.19"}, {"start": "203.0.113.30"}]
    pools[1]["end"] = "203.0.113.30"
    cloud.subnets = {
        "s": {"id": "s", "network_id": "n0", "ip_version": 4, "cidr": "203.0.113.0/24",
              "allocation_pools": pools},
        "six": {"id": "six", "network_id": "n0", "ip_version": 6, "cidr": "fd00::/64",
                "allocation_pools": [{"start": "fd00::1", "end": "fd00::ffff"}]},
    }  # fmt: skip
    facts = await connection.survey("", ())
    assert facts.addresses == {"n0": 11, "external": 11}
    text = TEXT.replace("networks: {lan: {}}", "networks: {lan: {}, ext: {physnet: outside}}")
    text = text.replace("networks:", "    physnets: {outside: external}\nnetworks:")
    text = text.replace("{memory: 1GiB, disks: [], nics: [lan]}", NODE * 2)
    cluster = load(text, file="c.yaml")
    placed = Allocations(hosts=dict.fromkeys((each.name for each in cluster.nodes), "cloud"))
    said = [each for each in cautions(cluster, placed, {"cloud": facts}) if "address" in each]
    words = "has no ports without an address: NICs of nodes take 4 of the 11 that its subnets give"
    assert said == [f"host cloud: network external of its cloud {words}"]


NODE = "{memory: 1GiB, disks: [], nics: [ext, lan, ext]},"


def test_a_plan_says_which_quotas_it_does_not_know() -> None:
    cluster, placed = load(TEXT, file="c.yaml"), Allocations(hosts={"a": "cloud"})
    hidden = frozenset({QuotaName.PORTS, QuotaName.VOLUME_SPACE})
    facts = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=False, quota=Quota(unknown=hidden))
    words = (
        "host cloud: its cloud does not show this login the quotas of ports, GiB of volumes: "
        "whether they suffice is not known"
    )
    assert words in list(cautions(cluster, placed, {"cloud": facts}))
    assert not any("quotas" in each for each in cautions(cluster, Allocations(), {"cloud": facts}))
    said = [each for each in _resources(facts) if each[0] == "quotas"]
    assert said == [("quotas", Verdict.WITHOUT, "not shown to this login: ports, GiB of volumes")]


def test_what_nodes_take_is_compared_with_all_quotas_at_once() -> None:
    text = TEXT.replace("{lan: {}}", NETWORKS).replace("[lan]", NICS)
    text = text.replace("disks: []", "disks: [5GiB, 1500MiB]")
    text = text.replace("disks:", "placement: {anti_affinity: flavor}, disks:")
    text = text.replace("boot_address", "volumes: true\n      boot_address")
    cluster = load(text, file="c.yaml")
    size = SizeOffered("m", "m", cpus=2, memory=2048 * MIB, disk=1 << 62)
    space = (QuotaName.VOLUME_SPACE, QuotaName.SPACE_OF_TYPE, QuotaName.VOLUME_SIZE)
    unit = {QuotaName.MEMORY: MIB, **dict.fromkeys(space, 1024 * MIB)}
    own = {UUID(int=1): 1, UUID(int=2): 1}
    facts = HostFacts(
        frozenset(Firmware), frozenset(Arch), tpm=False, sizes=(size,),
        trunks=True, external_networks=(("public", "p"),),
    )  # fmt: skip
    placed = Allocations(hosts={each.name: "cloud" for each in cluster.nodes})

    def refused(most: Mapping[QuotaName, int], allocated: str = "") -> list[str]:
        shares = {
            name: Share(
                number * unit.get(name, 1),
                4 * unit.get(name, 1),
                {key: each * unit.get(name, 1) for key, each in own.items()},
            )
            for name, number in most.items()
        }
        there = replace(facts, quota=Quota(shares, frozenset(filter(None, [allocated]))))
        return [*reasons_against(cluster, UUID(int=1), placed, {"cloud": there})]

    found = refused(dict.fromkeys(QuotaName, 3))
    assert [each.partition("leaves ")[2].partition(". ")[0] for each in found] == [
        f"0 {called} (3, of which others use 3), and the nodes there take {number}"
        for called, number in TAKEN_THERE.items()
        if number
    ]
    passing = [isinstance(each, NoCapacity) for each in found]
    assert passing == [number <= 3 for number in TAKEN_THERE.values() if number], (
        "when others use less"
    )
    enough = {n: number + 3 for n, number in zip(QuotaName, TAKEN_THERE.values(), strict=True)}
    assert not refused(enough)
    enough[QuotaName.FLOATING_IPS] -= 1
    assert len(refused(enough)) == 1
    assert not refused(enough, "203.0.113.9"), "the project has that address already"


@pytest.mark.parametrize("adopts", [True, False])
def test_a_server_of_others_takes_of_no_quota(*, adopts: bool) -> None:
    cluster = load(TEXT, file="c.yaml")
    (node,) = cluster.nodes
    adopted = Adopted(UUID(int=5), "theirs") if adopts else None
    cluster = replace(cluster, nodes=(replace(node, adopted=adopted),))
    size = SizeOffered("m", "m", cpus=2, memory=2048 * MIB, disk=0)
    facts = HostFacts(
        frozenset(Firmware), frozenset(Arch), tpm=False, sizes=(size,),
        quota=Quota({QuotaName.SERVERS: Share(3, 3)}),
    )  # fmt: skip
    placed = Allocations(hosts={node.name: "cloud"})
    found = [*reasons_against(cluster, UUID(int=1), placed, {"cloud": facts})]
    assert bool(found) is not adopts


async def test_a_relay_that_is_not_there_yet_takes_of_the_quota(
    connection: OpenStackConnection,
) -> None:
    size = SizeOffered("m", "1", cpus=2, memory=2048 * MIB, disk=0)
    facts = replace(
        await connection.survey("", ()),
        quota=Quota({QuotaName.SERVERS: Share(1)}),
        sizes=(size,),
        flavors={"m": size},
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
    assert "leaves 1 servers (1, of which others use 0)" in reason
    assert "and the nodes there, with their relay, take 2" in reason
    assert refused(now) == [], "what is there is counted as used"
