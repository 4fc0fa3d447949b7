"""Former roots of servers: stored once, each of a server that stays off; servers made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse
from tests.openstack_hosts.test_roots import ONE, OTHER, open_seed
from tests.openstack_hosts.test_snapshots import PLAN, make, shape_of, vm
from tests.openstack_hosts.test_volumes import with_volumes

from nospoon.errors import Gone, ProviderError
from nospoon.model.images import KeptIn, StoredRoot
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import KeptRoot
from nospoon.plan.identity import node_uuid
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud, Rule

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
ROOT = shape_of(vm()).disks[0].volume


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def former(number: int = 0, root: str = ROOT) -> Resource:
    name = f"former.{number}"
    return Resource(Key(Kind.SNAPSHOT, "cloud", f"v.{name}"), KeptRoot("v", name, root), (), "v")


def statuses(cloud: FakeCloud) -> list[str]:
    return [each["status"] for each in cloud.servers.values()]


def kept(cloud: FakeCloud) -> list[str]:
    return [each["name"] for each in cloud.images.values() if "image_type" in each]


async def test_a_root_is_stored_once_and_the_next_server_is_made_of_it(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    states, uuid = await make(connection, vm()), shape_of(vm()).uuid
    driver, machines = connection.drivers[Kind.SNAPSHOT], connection.machine_driver
    tag = replace(ONE, token="once")
    for _ in range(2):
        await driver.create(former(), tag)
        assert (statuses(cloud), kept(cloud)) == (["SHUTOFF"], ["nospoon-one-v-former.0"])
    (seen,) = await driver.observe(ONE.cluster)
    assert (seen.key, seen.shape, seen.fault) == (former().key, former().shape, "")
    assert seen.tag.token == "once"
    (facts, listed) = (await connection.survey("", ()), await states.list(uuid))
    assert (facts.kept, listed) == ({}, {ROOT: {}}), "no snapshot of a user's"
    (there,) = await machines.observe(None)
    await machines.delete(there)
    root = StoredRoot(ROOT, former=0)
    disks = (replace(shape_of(vm()).disks[0], volume=str(root)),)
    back = replace(vm(), shape=replace(shape_of(vm()), disks=disks))
    with pytest.raises(Gone, match=r"has no root former\.0"):
        await machines.create(replace(back, shape=replace(shape_of(back), nics=())), OTHER)
    await machines.create(back, ONE)
    assert cloud.requested[-1]["imageRef"] == list(cloud.images)[-1]
    (there,) = await machines.observe(None)
    assert there.shape == back.shape
    await driver.create(former(1, str(root)), replace(ONE, token="next"))
    assert len(await driver.observe(ONE.cluster)) == 2
    with pytest.raises(Gone, match="has another root by now"):
        await driver.create(former(2), replace(ONE, token="late"))
    for each in await driver.observe(ONE.cluster):
        await driver.delete(each)
    assert kept(cloud) == []


async def test_roots_of_several_nodes_are_stored_by_one_action(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """All that one `up` makes has one token."""
    await make(connection, vm())
    other = replace(shape_of(vm()), uuid=node_uuid(ONE.cluster, "w"), nics=())
    second = replace(vm(), key=replace(vm().key, name="w"), shape=other)
    await connection.machine_driver.create(second, ONE)
    of_second = replace(
        former(),
        key=replace(former().key, name="w.former.0"),
        shape=KeptRoot("w", "former.0", ROOT),
    )
    for each in (former(), of_second):
        await connection.drivers[Kind.SNAPSHOT].create(each, replace(ONE, token="once"))
    assert kept(cloud) == ["nospoon-one-v-former.0", "nospoon-one-w-former.0"]
    assert statuses(cloud) == ["SHUTOFF", "SHUTOFF"]


async def test_what_was_stored_of_a_server_that_ran_since_is_stored_again(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, vm())
    uuid, tag = shape_of(vm()).uuid, replace(ONE, token="once")
    await connection.drivers[Kind.SNAPSHOT].create(former(), tag)
    (before,) = (id_ for id_, each in cloud.images.items() if "image_type" in each)
    await connection.machine_driver.power(uuid, PowerCommand.ON, PLAN)
    await connection.drivers[Kind.SNAPSHOT].create(former(), tag)
    assert (statuses(cloud), len(kept(cloud))) == (["SHUTOFF"], 1)
    assert before not in cloud.images


@pytest.mark.parametrize("was_on", [True, False])
async def test_a_server_whose_root_cannot_be_stored_is_as_it_was(
    cloud: FakeCloud, connection: OpenStackConnection, *, was_on: bool
) -> None:
    await make(connection, vm())
    uuid = shape_of(vm()).uuid
    if not was_on:
        await connection.machine_driver.power(uuid, PowerCommand.OFF, PLAN)
    words = {"forbidden": {"message": "Quota exceeded"}}

    def full(call: str) -> None:
        if call.endswith("/action") and statuses(cloud) == ["SHUTOFF"]:
            cloud.heard = None
            cloud.rules.append(Rule("POST .*/action$", lambda: JSONResponse(words, 403), times=1))

    if was_on:
        cloud.heard = full
    else:
        cloud.rules.append(Rule("POST .*/action$", lambda: JSONResponse(words, 403), times=1))
    with pytest.raises(ProviderError, match="Quota exceeded"):
        await connection.drivers[Kind.SNAPSHOT].create(former(), replace(ONE, token="once"))
    (event,) = await connection.machine_driver.machines()
    assert event.power is (PowerState.ON if was_on else PowerState.OFF)
    assert kept(cloud) == []


async def test_the_image_of_a_server_need_not_say_its_firmware(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, vm())
    for each in cloud.images.values():
        each.pop("hw_firmware_type", None)
    await connection.drivers[Kind.SNAPSHOT].create(former(), replace(ONE, token="once"))
    assert len(await connection.drivers[Kind.SNAPSHOT].observe(ONE.cluster)) == 1


async def test_half_of_a_former_root_is_at_fault(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    await make(connection, vm())
    await connection.drivers[Kind.SNAPSHOT].create(former(), replace(ONE, token="once"))
    (image,) = (each for each in cloud.images.values() if "image_type" in each)
    image["status"] = "queued"
    (seen,) = await connection.drivers[Kind.SNAPSHOT].observe(ONE.cluster)
    assert seen.fault == "its image is queued"


async def test_a_former_root_that_is_a_volume_is_stored_by_a_copy(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    cloud.volume_types = ["usual"]
    for each in cloud.flavors.values():
        each["OS-FLV-EXT-DATA:ephemeral"] = 0
    with_volumes(connection)
    await make(connection, vm())
    own = set(cloud.volumes)
    await connection.drivers[Kind.SNAPSHOT].create(former(), replace(ONE, token="once"))
    assert (set(cloud.volumes), cloud.volume_snapshots) == (own, {}), "copies are gone"
    assert (statuses(cloud), kept(cloud)) == (["SHUTOFF"], ["nospoon-one-v-former.0"])
    (seen,) = await connection.drivers[Kind.SNAPSHOT].observe(ONE.cluster)
    assert seen.shape == former().shape


async def test_a_snapshot_is_of_a_root_and_of_the_server_that_returned_to_it(
    connection: OpenStackConnection,
) -> None:
    states, machines = await make(connection, vm()), connection.machine_driver
    uuid = shape_of(vm()).uuid
    assert await states.pause(uuid)
    await states.create(uuid, "first")
    await states.resume(uuid)
    await connection.drivers[Kind.SNAPSHOT].create(former(), replace(ONE, token="once"))
    (there,) = await machines.observe(None)
    await machines.delete(there)
    disks = (replace(shape_of(vm()).disks[0], volume=str(StoredRoot(ROOT, former=0))),)
    await machines.create(replace(vm(), shape=replace(shape_of(vm()), disks=disks)), ONE)
    assert {name: list(of) for name, of in (await states.list(uuid)).items()} == {ROOT: ["first"]}
    await machines.power(uuid, PowerCommand.OFF, PLAN)
    await states.restore(uuid, "first")
    assert list((await connection.survey("", ())).kept) == [KeptIn("one", "first", "v")]
