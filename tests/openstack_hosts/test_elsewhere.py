"""Servers for which Nova finds no compute host: what may be made in their place, and where."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
import yaml

from nospoon.clusterfile.load import load
from nospoon.clusterfile.recovered import cluster_file
from nospoon.errors import NoComputeHost, ProviderError, SpecError
from nospoon.model.cluster import Cluster
from nospoon.model.machine import PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.diff.diff import diff
from nospoon.plan.placement.placement import elsewhere
from nospoon.plan.resolution.around import Surroundings
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.text import plan_text
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.racks import Bench, any_rack, make

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
ID = UUID(int=1)
FILE = """
cluster: dev
hosts:
  cloud:
    openstack: {{cloud: {{name: c, auth: {{auth_url: "http://k/v3", username: u, password: p}}}},
      boot_address: 192.0.2.9{more}}}
networks: {{lan: {{nat: true}}}}
nodes: [{{name: n, memory: 64MiB, disks: [], nics: [lan]}}]
{end}
"""
IRONIC = "ironic: {endpoint: 'http://192.0.2.1:6385'}"


def read(more: str = "", end: str = "") -> Cluster:
    return load(FILE.format(more=more, end=end), file="x")


async def machine_of(
    connection: OpenStackConnection, cluster: Cluster, made: Machine | None = None
) -> Resource:
    """`made`: what the node has."""
    facts = {"cloud": await connection.survey("", ())}
    placed, _ = allocate(cluster, Allocations(), Occupied(), facts=facts)
    there = {"n": made} if made is not None else {}
    around = Surroundings({"cloud": ""}, {}, {}, facts=facts, made=there)
    return resolve(cluster, ID, placed, around)[Key(Kind.MACHINE, "cloud", "n")]


def shape_of(resource: Resource) -> Machine:
    assert isinstance(resource.shape, Machine)
    return resource.shape


BOTH = ", flavors: [metal.512, metal.2048]"


@pytest.mark.parametrize(
    ("more", "end", "words"),
    [
        ("", "", []),
        (BOTH, "", ["with flavor metal.2048"]),
        (BOTH, IRONIC, []),
        (", availability_zone: one", "", []),
        (", availability_zone: [one, two]", IRONIC, ["in availability zone two"]),
        (
            f"{BOTH}, availability_zone: [one, two, three]",
            "",
            [
                "in availability zone two",
                "in availability zone three",
                "with flavor metal.2048",
            ],
        ),
    ],
)
async def test_another_zone_and_flavor_that_the_file_names_are_as_good(
    connection: OpenStackConnection, more: str, end: str, words: list[str]
) -> None:
    machine = await machine_of(connection, read(more, end))
    assert [each.words for each in machine.alternatives] == words
    assert shape_of(machine).flavor == "metal.512"


async def test_a_machine_that_was_made_elsewhere_stays_what_it_is(
    connection: OpenStackConnection,
) -> None:
    cluster = read(f"{BOTH}, availability_zone: [one, two]")
    first = await machine_of(connection, cluster)
    assert shape_of(first).zone == "one"
    for each in first.alternatives:
        assert isinstance(each.shape, Machine)
        assert (await machine_of(connection, cluster, each.shape)).shape == each.shape
    other = replace(shape_of(first), zone="three")
    assert shape_of(await machine_of(connection, cluster, other)).zone == "one"
    (fallback,) = (each.shape for each in first.alternatives if "flavor" in each.words)
    assert isinstance(fallback, Machine)
    assert (fallback.cpus, fallback.memory >> 20, fallback.flavor) == (2, 2048, "metal.2048")


async def test_a_plan_shows_what_else_may_be_made(connection: OpenStackConnection) -> None:
    machine = await machine_of(connection, read(BOTH))
    plan = diff(cluster="dev", cluster_id=ID, desired={machine.key: machine}, observed=[], rules={})
    assert "flavor metal.512; else with flavor metal.2048" in plan_text(plan)


async def test_zones_of_a_file_are_recovered() -> None:
    text = cluster_file(
        "dev", ID, read(", availability_zone: [one, two]").hosts, [],
        lambda _: {"auth": {"auth_url": "http://k"}},
    )  # fmt: skip
    (host,) = yaml.safe_load(text)["hosts"].values()
    assert host["openstack"]["availability_zone"] == ["one", "two"]
    with pytest.raises(SpecError):
        read(", availability_zone: {one: two}")


async def test_a_failed_server_that_was_not_deleted_is_made_again_by_a_change(
    cloud: FakeCloud, connection: OpenStackConnection, bench: Bench
) -> None:
    """Such as of a daemon that died in between: it is there, and not made to its end."""
    rack = any_rack(bench)
    *before, machine = rack.all
    await make(bench, *before)
    cloud.full = {"metal.512"}
    cloud.fail("DELETE .*/servers/", 500)
    with pytest.raises(ProviderError, match="a fault of the test"):
        await make(bench, machine)
    (seen,) = await connection.drivers[Kind.MACHINE].observe(bench.cluster)
    assert seen.fault
    with pytest.raises(NoComputeHost, match="No valid host"):
        await connection.drivers[Kind.MACHINE].change(seen, machine, bench.tag)
    assert not cloud.servers
    cloud.full = set()
    await make(bench, machine)
    (event,) = await connection.machine_driver.machines()
    assert event.power is PowerState.OFF


async def test_other_hosts_of_the_file_that_can_have_a_node_are_named(
    connection: OpenStackConnection,
) -> None:
    text = FILE.replace("hosts:\n", "hosts:\n  here: {{simulated: true}}\n").format(more="", end="")
    cluster = load(text, file="x")
    facts = {"cloud": await connection.survey("", ())}
    assert elsewhere(cluster, facts, "n", "cloud") == (
        "Of the file's other hosts, here can have node n: write `host: here` for it, and plan "
        "again."
    )
    assert elsewhere(read(), facts, "n", "cloud") == ""
    pinned = load(text.replace("{name: n,", "{name: n, host: cloud,"), file="x")
    assert elsewhere(pinned, facts, "n", "cloud") == ""
