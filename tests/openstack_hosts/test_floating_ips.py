"""Floating IPs that lead to NICs of nodes."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import Gone, NotOurs, ProviderError, SpecError
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.networks import FloatingIp, Port
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.refuse import reasons_against
from nospoon.plan.words import describe
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.fake_neutron import PROJECT

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
TAG = OwnerTag("kit", UUID(int=7))
WANTED = Resource(Key(Kind.FLOATING_IP, "cloud", "n-0"), FloatingIp("external", MAC))


async def with_ports(connection: OpenStackConnection, *macs: str) -> None:
    for number, mac in enumerate(macs):
        port = Resource(Key(Kind.PORT, "cloud", f"n-{number}"), Port("external", mac))
        await connection.drivers[Kind.PORT].create(port, TAG)


async def only(connection: OpenStackConnection) -> Observed:
    (seen,) = await connection.drivers[Kind.FLOATING_IP].observe(None)
    return seen


async def test_one_leads_to_a_port_is_made_once_and_goes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.FLOATING_IP]
    await with_ports(connection, MAC)
    for _ in range(2):
        await driver.create(WANTED, TAG)
        assert (await only(connection)).shape == WANTED.shape
    seen = await only(connection)
    assert describe(seen.shape) == f"203.0.113.7 of external to {MAC}"
    for _ in range(2):
        await driver.delete(seen)
        assert cloud.floatingips == {}


async def test_one_that_lost_its_port_leads_to_another_and_keeps_its_address(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.FLOATING_IP]
    await with_ports(connection, MAC, OTHER)
    await driver.create(WANTED, TAG)
    (made,) = cloud.floatingips
    first, *_ = await connection.drivers[Kind.PORT].observe(None)
    await connection.drivers[Kind.PORT].delete(first)
    seen = await only(connection)
    assert seen.shape == FloatingIp("external", "")
    other = replace(WANTED, shape=FloatingIp("external", OTHER))
    await driver.change(seen, other, TAG)
    assert (await only(connection)).shape == other.shape
    assert list(cloud.floatingips) == [made]
    with pytest.raises(ProviderError, match="no port of the cluster has"):
        await driver.change(seen, WANTED, TAG)
    cloud.floatingips.clear()
    with pytest.raises(Gone):
        await driver.change(seen, other, TAG)


async def test_a_cloud_without_floating_ips_has_none(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    cloud.has_routers = False
    assert await connection.drivers[Kind.FLOATING_IP].observe(None) == []


async def test_those_of_others_are_left_unchanged(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.FLOATING_IP]
    await with_ports(connection, MAC)
    await driver.create(WANTED, TAG)
    seen = await only(connection)
    (record,) = cloud.floatingips.values()
    record["description"] = "mine"
    assert await driver.observe(None) == []
    await driver.delete(seen)
    assert len(cloud.floatingips) == 1


CLOUD = """
hosts:
  here:
    openstack: {cloud: {name: c, auth: {auth_url: "http://192.0.2.1/v3", username: u, password: p}},
      boot_address: 192.0.2.9}
    physnets: {lab: rack}
"""


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (CLOUD, "network lan: nospoon makes it, so that its NICs have no address to which a"),
        ("hosts: {here: {}}\n", "network lan: floating IPs are of clouds. Leave `floating_ip` out"),
        ("hosts: {here: simulated}\n", "network lan: floating IPs are of clouds."),
    ],
)
def test_nics_to_which_none_can_lead_are_refused(hosts: str, said: str) -> None:
    networks = (
        "networks: {ext: {physnet: lab}, lan: {}}\n" if hosts == CLOUD else "networks: {lan: {}}\n"
    )
    nics = (
        "[ext, {network: lan, floating_ip: public}]"
        if hosts == CLOUD
        else "[{network: lan, floating_ip: public}]"
    )
    cluster = load(f"cluster: dev\n{hosts}{networks}nodes: [{{nics: {nics}}}]\n", file="x")
    facts = HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts={"here": facts})
    told = [*refused, *reasons_against(cluster, UUID(int=1), placed, {"here": facts})]
    assert any(said in each for each in told), told


def test_a_recovered_file_has_them() -> None:
    nic = MachineNic(MAC, "rack", "virtio")
    machine = Machine(
        uuid=UUID(int=7), cpus=1, memory=1 << 29, arch=Arch.X86_64, firmware=Firmware.BIOS,
        tpm=False, disks=(), nics=(nic,), boot_order=(), boot=BootMethod.NATIVE,
    )  # fmt: skip
    seen = [
        Observed(Key(Kind.MACHINE, "cloud", "n"), machine, TAG),
        Observed(WANTED.key, WANTED.shape, TAG),
    ]
    text = cluster_file("dev", TAG.cluster, (), seen, lambda _: {})
    (found,) = yaml.safe_load(text)["nodes"][0]["nics"]
    assert found["floating_ip"] == "external"
    assert "floating_address" not in found
    seen[1] = Observed(WANTED.key, chosen("203.0.113.9").shape, TAG)
    text = cluster_file("dev", TAG.cluster, (), seen, lambda _: {})
    (found,) = yaml.safe_load(text)["nodes"][0]["nics"]
    assert found["floating_address"] == "203.0.113.9"


def chosen(address: str) -> Resource:
    return replace(WANTED, shape=FloatingIp("external", MAC, chosen=address))


async def test_an_address_that_is_chosen_is_asked_for_and_goes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.FLOATING_IP]
    await with_ports(connection, MAC)
    for _ in range(2):
        await driver.create(chosen("203.0.113.50"), TAG)
    (record,) = cloud.floatingips.values()
    assert record["floating_ip_address"] == "203.0.113.50"
    seen = await only(connection)
    assert seen.shape == chosen("203.0.113.50").shape
    assert seen.shape != WANTED.shape, "another one takes its place"
    await driver.delete(seen)
    assert cloud.floatingips == {}
    cloud.fail("POST .*/floatingips", 403)
    with pytest.raises(ProviderError, match=r"floating IP 203.0.113.51") as refused:
        await driver.create(chosen("203.0.113.51"), TAG)
    assert "allocated to the project before" in refused.value.hint
    cloud.fail("POST .*/floatingips", 403)
    with pytest.raises(ProviderError) as other:
        await driver.create(WANTED, TAG)
    assert "allocated" not in other.value.hint


async def test_an_address_that_the_project_has_is_used_and_kept(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.FLOATING_IP]
    await with_ports(connection, MAC)
    before = {
        "id": "kept", "project_id": PROJECT, "floating_network_id": "n0",
        "floating_ip_address": "203.0.113.60",
        "port_id": None, "description": "",
    }  # fmt: skip
    cloud.floatingips["kept"] = dict(before)
    for _ in range(2):
        await driver.create(chosen("203.0.113.60"), TAG)
    assert list(cloud.floatingips) == ["kept"]
    assert cloud.floatingips["kept"]["port_id"] in cloud.ports
    seen = await only(connection)
    assert seen.shape == chosen("203.0.113.60").shape
    another = replace(chosen("203.0.113.60"), key=Key(Kind.FLOATING_IP, "cloud", "m-0"))
    with pytest.raises(NotOurs, match="leads to another port"):
        await driver.create(another, TAG)
    for _ in range(2):
        await driver.delete(seen)
    assert cloud.floatingips == {"kept": before}


@pytest.mark.parametrize(
    ("found", "why"),
    [({"port_id": "theirs"}, "leads to another port"), ({"description": "dns"}, "a description")],
)
async def test_an_address_that_others_use_is_left_unchanged(
    cloud: FakeCloud, connection: OpenStackConnection, found: dict[str, str], why: str
) -> None:
    await with_ports(connection, MAC)
    record = {
        "id": "kept", "project_id": PROJECT, "floating_network_id": "n0",
        "floating_ip_address": "203.0.113.60",
        "port_id": None, "description": "", **found,
    }  # fmt: skip
    cloud.floatingips["kept"] = dict(record)
    with pytest.raises(NotOurs, match=why):
        await connection.drivers[Kind.FLOATING_IP].create(chosen("203.0.113.60"), TAG)
    assert cloud.floatingips == {"kept": record}


def test_an_address_leads_to_one_nic_and_is_of_a_network() -> None:
    nic = "{network: ext, floating_ip: public, floating_address: 203.0.113.9}"
    text = f"cluster: dev\n{CLOUD}networks: {{ext: {{physnet: lab}}}}\n"
    with pytest.raises(SpecError, match="is also that of 'node-0'"):
        load(f"{text}nodes: [{{count: 2, nics: [{nic}]}}]\n", file="x")
    alone = nic.replace("floating_ip: public, ", "")
    with pytest.raises(SpecError, match="name it as `floating_ip`"):
        load(f"{text}nodes: [{{nics: [{alone}]}}]\n", file="x")


async def test_an_address_that_another_project_has_is_left_unchanged(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """An administrator of a cloud is given a list of all projects' floating IPs."""
    await with_ports(connection, MAC)
    record = {
        "id": "theirs", "project_id": "1" * 32, "floating_network_id": "n0",
        "floating_ip_address": "203.0.113.60", "port_id": None, "description": "",
    }  # fmt: skip
    cloud.floatingips["theirs"] = dict(record)
    cloud.fail("POST /network/v2.0/floatingips", 409)  # of an address that is given away
    with pytest.raises(ProviderError, match=r"floating IP 203\.0\.113\.60"):
        await connection.drivers[Kind.FLOATING_IP].create(chosen("203.0.113.60"), TAG)
    assert cloud.floatingips == {"theirs": record}
