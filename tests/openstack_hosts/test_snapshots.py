"""Snapshots of servers: images that Nova makes of their roots, which go with their nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from starlette.responses import JSONResponse
from tests.openstack_hosts.test_roots import MAC, ONE, OTHER, image, open_seed, server
from tests.openstack_hosts.test_volumes import with_volumes

from nospoon.clusterfile.load import load
from nospoon.errors import Gone, OutOfSpace, ProviderError, SpecError
from nospoon.model.boot import BootPlan
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import HostFacts
from nospoon.model.images import KeptIn
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import KeptRoot
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.identity import node_uuid
from nospoon.plan.order.steps import Action, Step
from nospoon.plan.refuse import reasons_against
from nospoon.plan.roots import against_lost_roots, with_kept_roots
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.snapshots import ServerSnapshots
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud, Rule

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
PLAN = BootPlan((), ())


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def vm() -> Resource:
    """With its root alone."""
    made = server()
    return replace(made, shape=replace(shape_of(made), disks=shape_of(made).disks[:1]))


def shape_of(resource: Resource) -> Machine:
    assert isinstance(resource.shape, Machine)
    return resource.shape


async def make(connection: OpenStackConnection, machine: Resource) -> ServerSnapshots:
    link = Resource(Key(Kind.NETWORK, "cloud", "wire"), Link("wire"))
    plug = Resource(Key(Kind.PORT, "cloud", "v-0"), Port("wire", MAC, guarded=True))
    for each in (link, plug, image(), machine):
        await connection.drivers[each.key.kind].create(each, ONE)
    return connection.machine_driver.snapshots


async def test_a_root_is_kept_and_made_again_of_what_was_kept(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    assert await states.refusal(uuid) == ""
    with pytest.raises(ProviderError, match="was resumed"):
        await states.create(uuid, "first")
    for _ in range(2):
        assert await states.pause(uuid)
    for _ in range(2):
        await states.create(uuid, "first")
    for _ in range(2):
        await states.resume(uuid)
    assert [each["status"] for each in cloud.servers.values()] == ["ACTIVE"]
    base, kept = cloud.images.values()
    assert (kept["name"], kept["image_type"]) == ("nospoon-one-v-first", "snapshot")
    assert kept["nospoon_sha256"] == base["nospoon_sha256"], "as Nova does"
    (root,) = shape_of(vm()).disks
    listed = await states.list(uuid)
    assert {name: state.on for name, state in listed[root.volume].items()} == {"first": True}
    with pytest.raises(ProviderError, match="runs"):
        await states.restore(uuid, "first")
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    assert not await states.pause(uuid)
    await states.restore(uuid, "first")
    (record,) = cloud.servers.values()
    assert (record["status"], record["image"]) == ("SHUTOFF", {"id": kept["id"]})
    await states.delete(uuid, "first")
    assert list(cloud.images) == [base["id"]]
    with pytest.raises(Gone, match="no state first"):
        await states.restore(uuid, "first")
    for call in (states.pause, states.list, states.refusal):
        with pytest.raises(Gone):
            await call(uuid4())
    (seen,) = await connection.machine_driver.observe(None)
    assert seen.shape == vm().shape, "its image in the cloud is no part of its shape"


async def test_what_nova_does_not_keep_is_refused_with_the_reason(
    connection: OpenStackConnection,
) -> None:
    uuid = shape_of(vm()).uuid
    states = await make(connection, server())
    assert await states.refusal(uuid) == "Nova keeps roots alone, and it has more disks"
    blank = MachineDisk("v-0", "sata", "")
    shape = replace(shape_of(vm()), kind=NodeKind.BAREMETAL, disks=(blank,))
    metal = replace(vm(), shape=shape)
    (seen,) = await connection.machine_driver.observe(None)
    await connection.machine_driver.change(seen, metal, ONE)
    assert "its root is the boot image" in await states.refusal(uuid)
    assert await states.list(uuid) == {}


async def kept_on_volumes(cloud: FakeCloud, connection: OpenStackConnection) -> ServerSnapshots:
    """Of a VM, paused, whose root is a volume."""
    cloud.volume_types = ["usual"]
    for each in cloud.flavors.values():
        each["OS-FLV-EXT-DATA:ephemeral"] = 0
    with_volumes(connection)
    states = await make(connection, vm())
    assert await states.pause(shape_of(vm()).uuid)
    return states


async def test_a_root_that_is_a_volume_is_kept_by_a_copy_and_made_again(
    cloud: FakeCloud, connection: OpenStackConnection, tmp_path: Path
) -> None:
    states, uuid = await kept_on_volumes(cloud, connection), shape_of(vm()).uuid
    assert await states.refusal(uuid) == ""
    own = set(cloud.volumes)
    for _ in range(2):
        await states.create(uuid, "first")
    assert (set(cloud.volumes), cloud.volume_snapshots) == (own, {}), "copies are gone"
    _, kept = cloud.images.values()
    assert (kept["name"], kept["status"]) == ("nospoon-one-v-first", "active")
    (root,) = shape_of(vm()).disks
    assert list((await states.list(uuid))[root.volume]) == ["first"]
    (seen,) = await connection.drivers[Kind.SNAPSHOT].observe(ONE.cluster)
    assert seen.key.name == "v.first"
    await states.resume(uuid)
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    await states.restore(uuid, "first")
    (record,) = cloud.servers.values()
    assert (cloud.acted[-1], record["status"], record["image"]) == ("rebuild", "SHUTOFF", "")
    cloud.microversion = "2.92"
    (tmp_path / "older").mkdir()
    async with connected(cloud, tmp_path / "older") as older:
        why = await older.machine_driver.snapshots.refusal(uuid)
    assert why == "its root is a volume, and its cloud's Nova is older than Zed"


@pytest.mark.parametrize(
    ("call", "status", "what"),
    [
        ("POST .*/snapshots$", 413, OutOfSpace),
        ("POST .*/volumes$", 413, OutOfSpace),
        ("POST .*/volumes/.*/action$", 400, ProviderError),
    ],
)
async def test_a_copy_of_a_root_that_cinder_refuses_leaves_nothing(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    call: str,
    status: int,
    what: type[ProviderError],
) -> None:
    states, uuid = await kept_on_volumes(cloud, connection), shape_of(vm()).uuid
    before = cloud.everything()
    words = {"overLimit": {"message": "VolumeLimitExceeded: quota exceeded"}}
    cloud.rules.append(Rule(call, lambda: JSONResponse(words, status)))
    with pytest.raises(what, match="quota exceeded"):
        await states.create(uuid, "first")
    assert (cloud.everything(), cloud.volume_snapshots) == (before, {})


async def test_a_copy_that_becomes_an_error_is_reported_and_removed(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await kept_on_volumes(cloud, connection), shape_of(vm()).uuid

    def fail(call: str) -> None:
        if call.startswith("POST") and call.endswith("/snapshots"):
            for each in cloud.volume_snapshots.values():
                each["status"] = "error"

    cloud.heard = fail
    with pytest.raises(ProviderError, match="a copy of a root, is error"):
        await states.create(uuid, "first")
    assert not cloud.volume_snapshots


async def test_copies_that_a_daemon_left_go_with_their_server_and_those_of_others_stay(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await kept_on_volumes(cloud, connection)
    (root,) = cloud.volumes
    own = {"nospoon_deployment": ONE.deployment, "nospoon_uuid": str(shape_of(vm()).uuid)}
    for name, metadata in (("own", own), ("theirs", {**own, "nospoon_deployment": "other"})):
        cloud.volumes[name] = {
            "id": name, "status": "uploading", "size": 1, "server": "", "goes": False,
            "metadata": metadata, "volume_type": "usual", "attachments": [],
        }  # fmt: skip
        held = {"id": name, "status": "creating", "metadata": metadata}
        cloud.volume_snapshots[name] = {**held, "volume_id": root if name == "own" else "theirs"}
    (seen,) = await connection.machine_driver.observe(None)
    await connection.machine_driver.delete(seen)
    assert (list(cloud.volumes), list(cloud.volume_snapshots)) == (["theirs"], ["theirs"])


async def test_an_image_that_nova_gives_up_is_an_error_and_the_earlier_one_stays(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    await states.create(uuid, "first")
    before = set(cloud.images)

    def give_up(call: str) -> None:
        if call.endswith("/action"):
            for id_ in set(cloud.images) - before:
                del cloud.images[id_]

    cloud.heard = give_up
    with pytest.raises(ProviderError, match="could not store"):
        await states.create(uuid, "first")
    assert set(cloud.images) == before
    assert (await connection.machine_driver.machines())[0].power is PowerState.OFF


async def test_what_is_kept_goes_with_its_node_and_images_of_others_stay(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    await states.create(uuid, "first")
    await states.restore(uuid, "first")
    (record,) = cloud.servers.values()
    copy = cloud.images[record["image"]["id"]] | {"id": "theirs", "name": "of another"}
    cloud.images["theirs"] = copy
    driver = connection.drivers[Kind.SNAPSHOT]
    assert await driver.observe(OTHER.cluster) == []
    (seen,) = await driver.observe(ONE.cluster)
    (root,) = shape_of(vm()).disks
    assert (seen.key.name, seen.shape) == ("v.first", KeptRoot("v", "first", root.volume))
    there = {vm().key: vm()}
    (kept,) = (each for each in with_kept_roots(there, [seen]).values() if each.key == seen.key)
    assert (kept.shape, kept.needs) == (seen.shape, (vm().key,))
    assert seen.key not in with_kept_roots({image().key: image()}, [seen])
    with pytest.raises(Gone):
        await driver.create(kept, ONE)
    for _ in range(2):
        await driver.delete(seen)
    assert await driver.observe(None) == []
    assert "theirs" in cloud.images
    assert len(cloud.images) == 2


async def test_snapshots_of_the_same_name_are_those_of_their_clusters(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Also where a cloud lists more than it is asked for: by mistake, or on purpose."""
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    await states.create(uuid, "first")
    base, kept = cloud.images.values()
    of_other = kept | {"id": "other", "nospoon_cluster": str(OTHER.cluster)}
    of_another_deployment = kept | {"id": "theirs", "nospoon_deployment": "theirs"}
    cloud.images |= {each["id"]: each for each in (of_other, of_another_deployment)}
    driver = connection.drivers[Kind.SNAPSHOT]
    seen = await driver.observe(None)
    assert {each.tag.cluster for each in seen} == {ONE.cluster, OTHER.cluster}
    assert len(seen) == 2
    all_ = {"images": list(cloud.images.values())}
    cloud.rules.append(Rule("GET /image/v2/images", lambda: JSONResponse(all_), times=2))
    (own,) = await driver.observe(ONE.cluster)
    await driver.delete(own)
    assert set(cloud.images) == {base["id"], "other", "theirs"}


async def test_a_server_starts_from_a_root_that_its_own_user_kept(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    await states.create(uuid, "first")
    facts = await connection.survey("", ())
    kept = KeptIn("one", "first", "v")
    assert facts.kept == {kept: Firmware.UEFI}
    assert KeptIn.of(str(kept)) == kept
    root = MachineDisk(str(kept), "virtio", "", size=1 << 30)
    shape = replace(shape_of(vm()), uuid=node_uuid(OTHER.cluster, "v"), disks=(root,), nics=())
    other = replace(vm(), shape=shape)
    with pytest.raises(Gone, match="your cluster one has no snapshot first with a node v"):
        await connection.drivers[Kind.MACHINE].create(other, replace(OTHER, uid=1000))
    await connection.drivers[Kind.MACHINE].create(other, OTHER)
    assert cloud.requested[-1]["imageRef"] == list(cloud.images)[-1]
    (seen,) = await connection.machine_driver.observe(OTHER.cluster)
    assert seen.shape == other.shape
    step = Step(Action.CREATE, other.key, "missing", desired=other)
    assert against_lost_roots([step], {"cloud": facts}) == []
    (lost,) = against_lost_roots([step], {"cloud": replace(facts, kept={})})
    assert "node v: snapshot first of cluster one has no root of a node of this name" in lost
    bios = replace(facts, kept={kept: Firmware.BIOS})
    (wrong,) = against_lost_roots([step], {"cloud": bios})
    assert "has a root for firmware bios. Write `firmware: bios`" in wrong
    there = replace(step, action=Action.CHANGE)
    assert against_lost_roots([there], {"cloud": replace(facts, kept={})}) == []


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("{kind: vm, image: 'snapshot:a/b'}", "needs a size, at least that which was kept"),
        (
            "{kind: vm, disks: [{image: 'snapshot:a', size: 1GiB}]}",
            "expected snapshot:CLUSTER/NAME",
        ),
        ("{disks: [{image: 'snapshot:a/b', size: 1GiB}]}", "only roots of VMs start from a"),
        (
            "{kind: vm, disks: [{image: x.raw}, {image: 'snapshot:a/b', size: 1GiB}]}",
            "disk 1 of 'node-0': only roots of VMs start from a",
        ),
    ],
)
def test_what_starts_from_no_snapshot_is_refused_with_its_line(node: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load(f"cluster: c\nhosts: {{h: simulated}}\nnodes: [{node}]\n", file="x")


def test_other_hosts_than_clouds_start_nothing_from_snapshots() -> None:
    node = "{kind: vm, disks: [{image: 'snapshot:a/b', size: 1GiB}]}"
    cluster = load(f"cluster: c\nhosts: {{h: simulated}}\nnodes: [{node}]\n", file="x")
    facts = {"h": HostFacts(frozenset(Firmware), frozenset(Arch), tpm=True)}
    placed, refused = allocate(cluster, Allocations(), Occupied(), facts=facts)
    told = [*refused, *reasons_against(cluster, UUID(int=1), placed, facts)]
    assert any("VMs start from snapshots in clouds alone" in each for each in told), told
