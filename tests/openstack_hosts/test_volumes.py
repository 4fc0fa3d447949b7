"""Disks that are volumes of Cinder: of any size, and gone with their server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.openstack_hosts.test_roots import MAC, ONE, image, open_seed, server

from nospoon.clusterfile.load import load
from nospoon.errors import ProviderError, SpecError
from nospoon.model.cluster import Firmware, Node
from nospoon.model.connections import OpenStack
from nospoon.model.host_facts import HostFacts, QuotaName, Share
from nospoon.model.lab import Disks
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import BootImage, boot_image
from nospoon.plan.placement.flavors import chosen, lacking
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import AT, connected
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """cluster: c
hosts: {{cloud: {{openstack: {{cloud: {{name: x, auth: {{auth_url: 'http://k'}}}}, volumes: {}}}}}}}
nodes: []
"""
KIND = "destination_type"


def with_volumes(connection: OpenStackConnection, type_: str = "") -> None:
    """As the host of a file says."""
    host = connection._around.host
    cloud = host.connection
    assert isinstance(cloud, OpenStack)
    connection.configure(
        replace(host, connection=replace(cloud, has_volumes=True, volume_type=type_))
    )


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    cloud.volume_types = ["fast", "slow"]
    for each in cloud.flavors.values():
        each["OS-FLV-EXT-DATA:ephemeral"] = 0
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


@pytest.mark.parametrize(
    ("given", "has", "type_"), [("true", True, ""), ("fast", True, "fast"), ("false", False, "")]
)
def test_a_file_says_whether_disks_are_volumes_and_of_which_type(
    given: str, type_: str, *, has: bool
) -> None:
    (host,) = load(FILE.format(given), file="x").hosts
    assert isinstance(host.connection, OpenStack)
    assert (host.connection.has_volumes, host.connection.volume_type) == (has, type_)


def test_a_lab_makes_no_disks_as_asked_for_where_a_cloud_has_no_volumes() -> None:
    lab = "flavors: {small: {}}\nlabs: {dev: {disks: asked}}\n"
    with pytest.raises(SpecError, match=r"labs.dev.disks: host 'cloud' is a cloud"):
        load(FILE.format("false") + lab, file="x")
    assert load(FILE.format("true") + lab, file="x").labs[0].disks is Disks.ASKED


async def plugged(connection: OpenStackConnection) -> None:
    """The port of the server is there."""
    link = Resource(Key(Kind.NETWORK, "cloud", "wire"), Link("wire"))
    plug = Resource(Key(Kind.PORT, "cloud", "v-0"), Port("wire", MAC, guarded=True))
    for each in (link, plug):
        await connection.drivers[each.key.kind].create(each, ONE)


async def survey(connection: OpenStackConnection) -> HostFacts:
    return await connection.survey("", ())


async def test_a_flavor_holds_disks_of_any_size_where_they_are_volumes(
    connection: OpenStackConnection,
) -> None:
    disks = load("cluster: c\nnodes: [{disks: [500GiB, 2TiB]}]\n", file="x").nodes[0].disks
    node = Node("n", memory=1 << 30, disks=disks)
    assert chosen(node, AT, await survey(connection)) is None
    with_volumes(connection)
    facts = await survey(connection)
    found = chosen(node, AT, facts)
    assert found is not None
    assert found.name == "metal.2048"
    assert lacking(replace(node, memory=1 << 40), AT, facts) == (
        "no flavor without an ephemeral disk has 1 CPU, 1 TiB of memory. The largest flavors: "
        "metal.2048: 2 CPUs, 2 GiB of memory; metal.512: 1 CPU, 512 MiB of memory."
    )


async def test_a_flavor_with_an_ephemeral_disk_holds_no_volumes(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Nova gives it to the server beside them."""
    with_volumes(connection)
    cloud.flavors["1"]["OS-FLV-EXT-DATA:ephemeral"] = 10
    facts = await survey(connection)
    assert [each.name for each in facts.sizes or ()] == ["metal.2048"]
    cloud.flavors["2"]["OS-FLV-EXT-DATA:ephemeral"] = 10
    with pytest.raises(ProviderError, match=r"every flavor of .* has an ephemeral disk") as caught:
        await survey(connection)
    assert caught.value.hint == "Allow others by `flavors` of its host, or drop its `volumes`."


@pytest.mark.parametrize("given", ["", "slow"])
async def test_quotas_of_a_volume_type_are_those_of_the_type_that_disks_have(
    cloud: FakeCloud, connection: OpenStackConnection, given: str
) -> None:
    with_volumes(connection, given)
    assert not (await survey(connection)).quota.shares, "none is limited"
    asked = len([each for each in cloud.log if "volumes/detail" in each])
    assert not asked, "what counts is asked for alone"
    type_ = given or "fast"
    cloud.volume_quotas = {
        "volumes_fast": 9, "gigabytes_fast": 90, "volumes_slow": 9, "gigabytes_slow": 90,
        "per_volume_gigabytes": 50, "volumes": -1, "snapshots": 1,
    }  # fmt: skip
    await plugged(connection)
    await connection.drivers[Kind.IMAGE].create(image(), ONE)
    await connection.machine_driver.create(server(), ONE)
    own = [*cloud.volumes.values()]
    for name, wanted in (("theirs", type_), ("other", "other")):
        cloud.volumes[name] = {
            "id": name, "size": 4, "volume_type": wanted, "server": "", "goes": False,
            "attachments": [{"server_id": "theirs"}],
        }  # fmt: skip
    count, size = len(own), sum(each["size"] for each in own)
    shares = (await survey(connection)).quota.shares
    assert shares[QuotaName.VOLUMES_OF_TYPE] == Share(9, count + 1, {ONE.cluster: count})
    gib = 1 << 30
    assert shares[QuotaName.SPACE_OF_TYPE] == Share(
        90 * gib, (size + 4) * gib, {ONE.cluster: size * gib}
    )
    assert shares[QuotaName.VOLUME_SIZE] == Share(50 * gib)
    for each in own:  # as of a host that had another type when it made them
        each["volume_type"] = "other"
    shares = (await survey(connection)).quota.shares
    assert shares[QuotaName.VOLUMES_OF_TYPE] == Share(9, 1)
    cloud.fail("GET .*/os-quota-sets/", 403)
    assert not (await survey(connection)).quota.shares, "not for this role"


async def test_a_volume_type_that_is_not_there_is_refused(
    connection: OpenStackConnection,
) -> None:
    with_volumes(connection, "gold")
    with pytest.raises(ProviderError, match=r"no volume type gold. It has fast, slow"):
        await survey(connection)


async def test_a_region_without_cinder_is_refused(cloud: FakeCloud, tmp_path: Path) -> None:
    async with connected(cloud, tmp_path) as connection:
        with_volumes(connection)
        with pytest.raises(ProviderError, match=r"makes no volumes.*Drop `volumes`"):
            await survey(connection)


async def test_the_root_of_an_image_is_a_volume_that_goes_with_its_server(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    with_volumes(connection, "fast")
    await plugged(connection)
    await connection.drivers[Kind.IMAGE].create(image(), ONE)
    driver = connection.machine_driver
    await driver.create(server(), ONE)
    (asked,) = cloud.requested
    root = asked["block_device_mapping_v2"][0]
    assert (root["source_type"], root[KIND], root["volume_type"]) == ("image", "volume", "fast")
    assert asked["imageRef"] == ""
    sizes = sorted(each["size"] for each in cloud.volumes.values())
    assert sizes == sorted(each["volume_size"] for each in asked["block_device_mapping_v2"])
    (seen,) = await driver.observe(ONE.cluster)
    assert seen.shape == server().shape, "there is nothing to change"
    cloud.limits = {"maxTotalVolumes": 5, "totalVolumesUsed": 3, "maxTotalVolumeGigabytes": 100}
    quota = (await survey(connection)).quota
    space = sum(sizes) << 30
    assert quota.shares[QuotaName.VOLUMES] == Share(5, 3, {ONE.cluster: len(sizes)})
    assert quota.shares[QuotaName.VOLUME_SPACE] == Share(100 << 30, space, {ONE.cluster: space})
    await driver.delete(seen)
    assert not cloud.volumes


async def test_disks_of_bare_metal_are_blank_volumes_beside_the_boot_image(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    with_volumes(connection)
    boot = Resource(
        boot_image("cloud", Firmware.UEFI, "http://x"), BootImage(Firmware.UEFI, "http://x")
    )
    await connection.drivers[Kind.BOOT_IMAGE].create(boot, ONE)
    await plugged(connection)
    shape = server().shape
    assert isinstance(shape, Machine)
    disk = MachineDisk("", "virtio", "", size=(25 << 30) - 1)
    shape = replace(shape, kind=NodeKind.BAREMETAL, seed="", disks=(disk,))
    await connection.machine_driver.create(replace(server(), shape=shape), ONE)
    (asked,) = cloud.requested
    cd, blank = asked["block_device_mapping_v2"]
    assert (cd[KIND], asked["imageRef"]) == ("local", cd["uuid"])
    assert (blank["source_type"], blank[KIND], blank["volume_size"]) == ("blank", "volume", 25)
    assert "volume_type" not in blank
    assert "guest_format" not in blank
