"""Trunks of NICs: the networks that reach them tagged, at a cloud in memory."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import Conflict, Gone, NotOurs, ProviderError
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Carried, FloatingIp, Link, Port, Trunk
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image
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
from nospoon.testing.cloud_connection import AT
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.racks import PLAN, AnyRack, Bench, any_rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
TAG = OwnerTag("kit", UUID(int=7), name="dev")
MAC = "02:00:00:00:00:01"
NAMES = ("lan", "red", "blue")
LINKS = {name: Resource(Key(Kind.NETWORK, "cloud", name), Link(f"ns-{name}")) for name in NAMES}
OWN = Resource(Key(Kind.PORT, "cloud", "n-0"), Port("ns-lan", MAC), (LINKS["lan"].key,))
RED, BLUE = (
    Resource(
        Key(Kind.PORT, "cloud", f"n-0.{vlan}"), Port(f"ns-{name}", MAC, vlan=vlan),
        (LINKS[name].key,),
    )
    for vlan, name in ((101, "red"), (102, "blue"))
)  # fmt: skip
BOTH = Resource(
    Key(Kind.TRUNK, "cloud", "n-0"),
    Trunk("ns-lan", MAC, (Carried(101, "ns-red"), Carried(102, "ns-blue"))),
    (OWN.key, RED.key, BLUE.key),
)
ONE = replace(BOTH, shape=Trunk("ns-lan", MAC, (Carried(102, "ns-blue"),)))
PARTS = (*LINKS.values(), OWN, RED, BLUE)


async def make(connection: OpenStackConnection, *resources: Resource) -> None:
    for each in resources:
        await connection.drivers[each.key.kind].create(each, TAG)


async def observed(connection: OpenStackConnection, kind: Kind) -> list[Observed]:
    return list(await connection.drivers[kind].observe(TAG.cluster))


async def only(connection: OpenStackConnection) -> Observed:
    (seen,) = await observed(connection, Kind.TRUNK)
    return seen


async def test_it_is_made_found_and_removed_beside_what_others_made(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    theirs = {"id": "t", "port_id": "p", "sub_ports": [], "description": "mine"}
    cloud.trunks["t"] = dict(theirs)
    await make(connection, *PARTS)
    for _ in range(2):  # a second time changes nothing
        await make(connection, BOTH)
    (made,) = (each for each in cloud.trunks.values() if each["id"] != "t")
    ids = {each["id"]: each["name"] for each in cloud.ports.values()}
    assert {each["mac_address"] for each in cloud.ports.values()} == {MAC}, "as VLANs of Linux have"
    assert ids[made["port_id"]] == "dev-n-0"
    assert [(ids[e.pop("port_id")], e) for e in map(dict, made["sub_ports"])] == [
        (f"dev-n-0.{vlan}", {"segmentation_type": "vlan", "segmentation_id": vlan})
        for vlan in (101, 102)
    ]
    assert (await only(connection)).shape == BOTH.shape
    ports = await observed(connection, Kind.PORT)
    assert {each.key: each.shape for each in ports} == {
        each.key: each.shape for each in (OWN, RED, BLUE)
    }
    with pytest.raises(Conflict, match="sub-port of a trunk"):
        await connection.drivers[Kind.PORT].delete(Observed(RED.key, RED.shape, TAG))
    seen = await only(connection)
    for _ in range(2):
        await connection.drivers[Kind.TRUNK].delete(seen)
    assert cloud.trunks == {"t": theirs}
    with pytest.raises(Gone, match="no longer exists"):
        await connection.drivers[Kind.TRUNK].change(seen, BOTH, TAG)


async def test_what_it_carries_changes_in_place(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.TRUNK]
    await make(connection, *PARTS, BOTH)
    (id_,) = cloud.trunks
    swapped = Trunk("ns-lan", MAC, (Carried(102, "ns-red"),))
    for wanted in (ONE, BOTH, ONE):
        await driver.change(await only(connection), wanted, TAG)
        assert (await only(connection)).shape == wanted.shape
    with pytest.raises(Gone, match=r"no port with MAC 02:00:00:00:00:01 on ns-red"):
        await driver.change(await only(connection), replace(ONE, shape=swapped), TAG)
    (sub,) = cloud.trunks[id_]["sub_ports"]
    sub["segmentation_id"] = 7  # another user did
    assert (await only(connection)).shape == Trunk("ns-lan", MAC, (Carried(7, "ns-blue"),))
    await driver.change(await only(connection), ONE, TAG)
    assert (await only(connection)).shape == ONE.shape
    assert set(cloud.trunks) == {id_}


async def test_another_users_trunk_of_a_port_is_left_unchanged(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, *PARTS)
    own = next(each["id"] for each in cloud.ports.values() if each["name"] == "dev-n-0")
    theirs = {"id": "t", "port_id": own, "sub_ports": [], "description": "mine"}
    cloud.trunks["t"] = dict(theirs)
    with pytest.raises(NotOurs, match="trunk/n-0@cloud is not managed by nospoon"):
        await make(connection, BOTH)
    assert cloud.trunks == {"t": theirs}


async def test_what_neutron_refuses_is_reported(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, *PARTS)
    cloud.fail("POST .*/trunks", 403)
    with pytest.raises(ProviderError, match="a fault of the test"):
        await make(connection, BOTH)
    cloud.fail("POST .*/trunks", 409)
    with pytest.raises(Conflict, match="a fault of the test"):
        await make(connection, BOTH)
    await make(connection, BOTH)
    (cloud.trunks[next(iter(cloud.trunks))])["sub_ports"] = "some"
    with pytest.raises(ProviderError, match="not a list"):
        await only(connection)


async def test_a_cloud_without_trunks_has_none(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    assert (await connection.survey("", ())).trunks is True
    cloud.has_trunks = False
    assert (await connection.survey("", ())).trunks is False
    assert await observed(connection, Kind.TRUNK) == []


async def nothing(_: Resource) -> None:
    """It is not needed here."""


def rack_of(connection: OpenStackConnection) -> AnyRack:
    """A server with one NIC."""
    image = Image("", "ab" * 32, "raw", 1 << 20)
    bench = Bench(
        connection=connection, place=AT, deployment="kit", pool_root="", image=image,
        make_stranger=nothing, remove_machine=nothing, flavor="metal.512", cluster=TAG.cluster,
    )  # fmt: skip
    return any_rack(bench)


async def test_a_port_is_out_of_a_server_that_is_off_meanwhile(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Of one that is on it stays, and nothing changes: its guest may not let go of it."""
    rack = rack_of(connection)
    plug = next(each for each in rack.all if isinstance(each.shape, Port))
    assert isinstance(plug.shape, Port)
    red = replace(RED, shape=Port("ns-red", plug.shape.mac, vlan=101))
    trunk = Trunk(plug.shape.network, plug.shape.mac, (Carried(101, "ns-red"),))
    wanted = replace(BOTH, shape=trunk)
    await make(connection, LINKS["red"], red, *rack.all)
    machines = connection.machine_driver
    assert isinstance(rack.machine.shape, Machine)
    machine = rack.machine.shape.uuid
    await machines.power(machine, PowerCommand.ON, PLAN)
    with pytest.raises(ProviderError, match="is ACTIVE: Neutron makes and removes no trunk"):
        await make(connection, wanted)
    assert not cloud.trunks
    await machines.power(machine, PowerCommand.OFF, PLAN)
    await make(connection, wanted)
    assert (await only(connection)).shape == trunk
    (server,) = cloud.servers
    devices = {each["name"]: each["device_id"] for each in cloud.ports.values()}
    assert devices == {"dev-m0-0": server, "dev-n-0.101": ""}, "it is plugged in again"
    (seen,) = await observed(connection, Kind.MACHINE)
    assert seen.shape == rack.machine.shape

    await machines.power(machine, PowerCommand.ON, PLAN)
    with pytest.raises(ProviderError, match="is ACTIVE"):
        await connection.drivers[Kind.TRUNK].delete(await only(connection))
    cloud.slow = 3
    await machines.power(machine, PowerCommand.SOFT, PLAN)
    assert cloud.servers[server]["OS-EXT-STS:task_state"], "Nova goes on after the command"
    cloud.fail("DELETE .*/trunks/", 409)
    cloud.fail("DELETE .*/trunks/", 500)
    with pytest.raises(ProviderError, match="a fault of the test"):
        await connection.drivers[Kind.TRUNK].delete(await only(connection))
    assert {each["device_id"] for each in cloud.ports.values()} == {server, ""}
    await connection.drivers[Kind.TRUNK].delete(await only(connection))
    assert not cloud.trunks
    assert {each["device_id"] for each in cloud.ports.values()} == {server, ""}


async def test_a_floating_ip_leads_to_the_nic_not_to_what_it_carries(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    floating = Resource(Key(Kind.FLOATING_IP, "cloud", "n-0"), FloatingIp("external", MAC))
    await make(connection, *LINKS.values(), RED, BLUE, OWN, floating)
    (address,) = cloud.floatingips.values()
    assert cloud.ports[address["port_id"]]["name"] == "dev-n-0"
    address["port_id"] = next(p["id"] for p in cloud.ports.values() if p["name"] == "dev-n-0.101")
    (seen,) = await observed(connection, Kind.FLOATING_IP)
    assert seen.shape == FloatingIp("external", ""), "it has to be led back"


def test_what_needs_what_is_read_from_shapes() -> None:
    seen = [Observed(each.key, each.shape, TAG) for each in (*PARTS, BOTH)]
    found = dependents(seen)
    assert found[OWN.key] == [BOTH.key]
    assert found[RED.key] == [BOTH.key]
    assert found[LINKS["red"].key] == [RED.key]
    lost = dependents([each for each in seen if each.key != BLUE.key])
    assert lost[RED.key] == [BOTH.key]


def test_it_is_described() -> None:
    assert describe(BOTH.shape) == f"VLAN 101 of ns-red, VLAN 102 of ns-blue to {MAC}"
    assert describe(RED.shape) == f"{MAC} on ns-red as VLAN 101"


FILE = """
cluster: dev
hosts:
  cloud:
    openstack: {cloud: {name: c, auth: {auth_url: "http://192.0.2.1/v3", username: u, password: p}},
      boot_address: 192.0.2.9}
    physnets: {lab: rack}
networks:
  ext: {physnet: lab, vlan: 103}
  lan: {}
  red: {vlan: 101}
nodes: [{name: n, nics: [ext, {network: lan, trunk: [101, 103]}]}]
"""


async def test_a_file_gives_ports_with_the_mac_of_the_nic_and_one_trunk(
    connection: OpenStackConnection, cloud: FakeCloud
) -> None:
    cloud.networks["r"] = {"id": "r", "name": "rack", "subnets": [], "project_id": "another"}
    cluster, id_ = load(FILE, file="x"), UUID(int=1)
    facts = {"cloud": await connection.survey("", ())}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=facts)
    assert not [*refused, *reasons_against(cluster, id_, placed, facts)]
    wanted = resolve(cluster, id_, placed, Surroundings({"cloud": ""}, {}, {}, facts=facts))
    key = Key(Kind.PORT, "cloud", "n-1")
    own = wanted[key].shape
    assert isinstance(own, Port)
    red, rack = (wanted[Key(Kind.PORT, "cloud", f"n-1.{vlan}")] for vlan in (101, 103))
    link = wanted[Key(Kind.NETWORK, "cloud", "red")]
    assert isinstance(link.shape, Link)
    assert (red.shape, red.needs) == (Port(link.shape.name, own.mac, vlan=101), (link.key,))
    assert rack.shape == Port("rack", own.mac, guarded=True, vlan=103)
    assert link.shape.vlan is None, "it is one of no physical network"
    trunk = wanted[Key(Kind.TRUNK, "cloud", "n-1")]
    carries = (Carried(101, link.shape.name), Carried(103, "rack"))
    assert trunk.shape == Trunk(own.network, own.mac, carries)
    assert trunk.needs == (key, red.key, rack.key)
    machine = wanted[Key(Kind.MACHINE, "cloud", "n")]
    assert {trunk.key, red.key, rack.key} <= set(machine.needs), "Neutron makes it before"
    assert isinstance(machine.shape, Machine)
    assert [(nic.vlan, nic.trunk) for nic in machine.shape.nics] == [(None, ())] * 2

    seen = [Observed(each.key, each.shape, TAG) for each in wanted.values()]
    assert diff(cluster="dev", cluster_id=id_, desired=wanted, observed=seen, rules={}).steps == ()
    recovered = yaml.safe_load(cluster_file("dev", id_, (), seen, lambda _: {}))
    assert recovered["networks"]["red"] == {"vlan": 101}
    assert recovered["networks"]["rack"] == {"bridge": "rack", "vlan": 103}
    (node,) = recovered["nodes"]
    assert [nic.get("trunk") for nic in node["nics"]] == [None, [101, 103]]


async def test_a_port_that_is_replaced_takes_its_trunk_along(
    connection: OpenStackConnection, cloud: FakeCloud
) -> None:
    """And the server, where it runs; one that is off is plugged in again."""
    cloud.networks["r"] = {"id": "r", "name": "rack", "subnets": [], "project_id": "another"}
    cluster, id_ = load(FILE, file="x"), UUID(int=1)
    facts = {"cloud": await connection.survey("", ())}
    placed, _ = allocate(cluster, Allocations(), Occupied(), facts=facts)
    wanted = resolve(cluster, id_, placed, Surroundings({"cloud": ""}, {}, {}, facts=facts))
    port, trunk, machine = (
        Key(kind, "cloud", name)
        for kind, name in ((Kind.PORT, "n-1"), (Kind.TRUNK, "n-1"), (Kind.MACHINE, "n"))
    )
    for running, then in ((False, Action.CHANGE), (True, Action.REPLACE)):
        seen = [
            Observed(
                each.key,
                replace(each.shape, guarded=True)
                if each.key == port and isinstance(each.shape, Port)
                else each.shape,
                TAG,
                running=running and each.key == machine,
            )
            for each in wanted.values()
        ]
        plan = diff(cluster="dev", cluster_id=id_, desired=wanted, observed=seen, rules={})
        steps = {step.key: step.action for step in plan.steps if step.key.kind is not Kind.BMC}
        assert steps == {port: Action.REPLACE, trunk: Action.REPLACE, machine: then}
        order = [id_ for id_ in moves(plan) if id_[0] in steps]
        assert order.index((trunk, Half.REMOVE)) < order.index((port, Half.REMOVE))
        assert order.index((port, Half.MAKE)) < order.index((trunk, Half.MAKE))
        assert order.index((trunk, Half.MAKE)) < order.index((machine, Half.MAKE))
