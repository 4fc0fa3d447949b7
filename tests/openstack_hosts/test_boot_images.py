"""Boot images where Glance takes no ISO: the same ones as qcow2, which Nova has as CDs."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nospoon.clusterfile.load import load
from nospoon.errors import ProviderError
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import HostFacts, SizeOffered
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import BootImage, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.identity import node_uuid
from nospoon.plan.placement.hosts import against_node
from nospoon.plan.refuse import cautions
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.providers.openstack.qcow2 import CLUSTER, CONTENT, MAGIC, MOST, qcow2
from nospoon.testing.cloud_connection import AT
from nospoon.testing.fake_cloud import FakeCloud

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
TAG = OwnerTag("kit", uuid4(), 1, "t", name="c")
URL = "http://h:8069"
IMAGE = Resource(boot_image("cloud", Firmware.BIOS, URL), BootImage(Firmware.BIOS, URL))
UNTIL_YOGA = "2.90"


@given(st.binary(min_size=1, max_size=3 * CLUSTER))
def test_an_image_maps_its_content_and_counts_its_clusters(content: bytes) -> None:
    made = qcow2(content)
    magic, version, backing, _, bits, size = struct.unpack_from(">4sIQIIQ", made)
    assert (magic, version, backing, 1 << bits) == (MAGIC, 3, 0, CLUSTER)
    assert 0 <= size - len(content) < 512
    (l1,) = struct.unpack_from(">Q", made, 40)
    (l2,) = struct.unpack_from(">Q", made, l1)
    clusters = -(-len(content) // CLUSTER)
    entries = struct.unpack_from(f">{clusters}Q", made, l2 & ((1 << 63) - 1))
    mapped = (made[each & ((1 << 63) - 1) :][:CLUSTER] for each in entries)
    assert b"".join(mapped).rstrip(b"\0") == content.rstrip(b"\0")
    assert len(made) == (CONTENT + clusters) * CLUSTER


def test_qemu_finds_no_error_in_an_image(tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    (plain, made) = (tmp_path / "plain", tmp_path / "made")
    plain.write_bytes(content)
    made.write_bytes(qcow2(content))
    for argv in (
        ["qemu-img", "check", "-f", "qcow2", str(made)],
        ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", str(plain), str(made)],
    ):
        subprocess.run(argv, check=True, capture_output=True)


def test_an_image_is_not_too_large_for_one_table() -> None:
    class Long(bytes):
        def __len__(self) -> int:
            return MOST + 1

    with pytest.raises(ValueError, match="at most 536870912 bytes"):
        qcow2(Long())


@pytest.mark.parametrize(
    ("formats", "as_", "root"),
    [
        (("raw", "qcow2", "iso"), "iso", {}),
        (("raw", "qcow2"), "qcow2", {"device_type": "cdrom", "disk_bus": "sata"}),
    ],
)
async def test_a_server_boots_a_cd_of_an_image_in_a_format_that_glance_takes(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    formats: tuple[str, ...],
    as_: str,
    root: dict[str, str],
) -> None:
    cloud.image_formats = formats
    await connection.drivers[Kind.BOOT_IMAGE].create(IMAGE, TAG)
    (seen,) = await connection.drivers[Kind.BOOT_IMAGE].observe(TAG.cluster)
    assert (seen.shape, seen.fault) == (IMAGE.shape, ""), "there is nothing to change"
    ((id_, image),) = cloud.images.items()
    assert image["disk_format"] == as_
    assert image["img_hv_type"] == "qemu", "Nova gives no host of containers the server"
    assert cloud.uploads[id_].startswith(MAGIC) == (as_ == "qcow2")
    machine = Machine(
        node_uuid(TAG.cluster, "n"), cpus=1, memory=512 << 20, arch=Arch.X86_64,
        firmware=Firmware.BIOS, tpm=False, nics=(), boot_order=(), boot=BootMethod.SCRIPT,
        disks=(MachineDisk("n-0", "sata", "", size=1 << 30),), flavor="metal.512",
    )  # fmt: skip
    await connection.machine_driver.create(Resource(Key(Kind.MACHINE, "cloud", "n"), machine), TAG)
    (asked,) = cloud.requested
    first, disk = asked["block_device_mapping_v2"]
    assert asked["imageRef"] == first["uuid"] == id_
    assert {name: first[name] for name in ("device_type", "disk_bus") if name in first} == root
    assert (first["boot_index"], disk["boot_index"]) == (0, -1)


FILE = """
cluster: c
hosts: {cloud: {openstack: {cloud: {name: mine}, boot_address: 192.0.2.1}}}
nodes: [{name: a, memory: 512MiB, disks: []}, {name: b, memory: 512MiB, disks: []}]
"""


@pytest.mark.parametrize(
    ("formats", "microversion", "refused", "warned"),
    [
        (("iso", "qcow2"), UNTIL_YOGA, "", False),
        (("raw", "qcow2"), "2.93", "", True),
        (("raw", "qcow2"), UNTIL_YOGA, "no `iso` there, and Nova is older than Zed", False),
        (("raw",), "2.96", "neither `iso` nor `qcow2`", False),
    ],
)
async def test_the_plan_says_by_what_nodes_boot_or_why_they_do_not(
    cloud: FakeCloud,
    connection: OpenStackConnection,
    formats: tuple[str, ...],
    microversion: str,
    refused: str,
    *,
    warned: bool,
) -> None:
    cloud.image_formats, cloud.microversion = formats, microversion
    facts: HostFacts = replace(
        await connection.survey("", ()), sizes=(SizeOffered("m", "1", 1, 1 << 30, 0),)
    )
    cluster = load(FILE, file="x")
    found = list(against_node(cluster.nodes[0], AT, facts))
    assert [refused in each for each in found] == [True] * bool(refused)
    placed = Allocations(hosts={"a": "cloud", "b": "cloud"})
    said = [each for each in cautions(cluster, placed, {"cloud": facts}) if "iso" in each]
    words = (
        "host cloud: Glance takes no `iso` there, so a, b boot by images in the format `qcow2`, "
        "which Nova has as CDs"
    )
    assert said == ([words] if warned else [])


def alike(cloud: FakeCloud) -> list[str]:
    """Ids of boot images, in the order in which they were made."""
    return [id_ for id_, each in cloud.images.items() if "nospoon_url" in each]


def machine(name: str, asks_at: str) -> Resource:
    shape = Machine(
        node_uuid(TAG.cluster, name), cpus=1, memory=512 << 20, arch=Arch.X86_64,
        firmware=Firmware.BIOS, tpm=False, nics=(), boot_order=(), boot=BootMethod.SCRIPT,
        disks=(MachineDisk(f"{name}-0", "sata", "", size=1 << 30),), flavor="metal.512",
        asks_at=asks_at,
    )  # fmt: skip
    return Resource(Key(Kind.MACHINE, "cloud", name), shape)


OTHER_URL = "http://other:8069"
OTHER = Resource(boot_image("cloud", Firmware.BIOS, OTHER_URL), BootImage(Firmware.BIOS, OTHER_URL))


async def test_a_server_is_made_of_the_image_that_asks_where_it_is_to_ask(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.BOOT_IMAGE]
    await driver.create(IMAGE, TAG)
    await driver.create(OTHER, TAG)
    first, second = alike(cloud)
    for name, url in (("a", URL), ("b", OTHER_URL)):
        await connection.machine_driver.create(machine(name, url), TAG)
    assert [each["imageRef"] for each in cloud.requested] == [first, second]
    seen = await connection.machine_driver.observe(TAG.cluster)
    assert [each.shape for each in seen] == [machine("a", URL).shape, machine("b", OTHER_URL).shape]
    assert {each.key for each in await driver.observe(TAG.cluster)} == {IMAGE.key, OTHER.key}
    (old,) = [each for each in await driver.observe(TAG.cluster) if each.key == IMAGE.key]
    await driver.delete(old)
    assert alike(cloud) == [second]


async def test_where_a_server_of_an_earlier_version_asks_is_what_its_image_says(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """It noted nothing, and called the images of all URLs alike."""
    await connection.drivers[Kind.BOOT_IMAGE].create(IMAGE, TAG)
    (id_,) = alike(cloud)
    cloud.images[id_]["nospoon_name"] = "boot-bios"
    del cloud.images[id_]["nospoon_recipe"]
    await connection.machine_driver.create(machine("a", ""), TAG)
    (seen,) = await connection.machine_driver.observe(TAG.cluster)
    assert seen.shape == machine("a", URL).shape
    (image,) = await connection.drivers[Kind.BOOT_IMAGE].observe(TAG.cluster)
    assert (image.key, image.fault) == (IMAGE.key, "")
    cloud.images["new"] = cloud.images.pop(id_) | {"id": "new"}
    (seen,) = await connection.machine_driver.observe(TAG.cluster)
    assert seen.shape == machine("a", "").shape, "its image is gone: no one knows"


async def test_an_image_of_another_recipe_is_there_before_the_earlier_one_goes_with_its_last_server(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver, machines = connection.drivers[Kind.BOOT_IMAGE], connection.machine_driver
    await driver.create(IMAGE, TAG)
    (old,) = alike(cloud)
    for name in "ab":
        await machines.create(machine(name, URL), TAG)
    cloud.images[old]["nospoon_recipe"] = "0"
    (seen,) = await driver.observe(TAG.cluster)
    assert seen.fault == "another version of nospoon made it"
    there = list[bool]()

    def heard(call: str) -> None:
        del call
        there.append(cloud.images.get(old, {}).get("status") == "active")

    cloud.heard = heard
    await driver.change(seen, IMAGE, TAG)
    assert there
    assert all(there)
    cloud.heard = None
    _, new = alike(cloud)
    (seen,) = await driver.observe(TAG.cluster)
    assert (seen.key, seen.fault) == (IMAGE.key, "")
    await machines.create(machine("c", URL), TAG)
    assert cloud.requested[-1]["imageRef"] == new
    for name, left in (("c", [old, new]), ("a", [old, new]), ("b", [new])):
        (server,) = [each for each in await machines.observe(TAG.cluster) if each.key.name == name]
        await machines.delete(server)
        assert alike(cloud) == left


async def test_what_is_left_of_an_upload_goes_with_the_next_one(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.BOOT_IMAGE]
    await driver.create(IMAGE, TAG)
    (first,) = alike(cloud)
    half = cloud.images[first] | {"id": "half", "status": "queued"}
    cloud.images["half"] = half
    (seen,) = await driver.observe(TAG.cluster)
    assert seen.fault == "others of it are there that no server was made of"
    await driver.change(seen, IMAGE, TAG)
    assert alike(cloud) == [first]
    cloud.images = {"half": half}
    (seen,) = await driver.observe(TAG.cluster)
    assert seen.fault == "its upload is queued"
    await driver.change(seen, IMAGE, TAG)
    (second,) = alike(cloud)
    assert second != "half"


async def test_an_image_is_used_once_glance_has_stored_it(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Some stores go on after the upload was answered."""
    states = ["active", "importing", "saving"]

    def upload(call: str) -> None:
        if call.startswith("PUT") or (call.startswith("GET /image/v2/images/") and states):
            (each,) = cloud.images.values()
            each["status"] = states.pop()

    cloud.heard = upload
    await connection.drivers[Kind.BOOT_IMAGE].create(IMAGE, TAG)
    assert not states
    cloud.images.clear()
    states.append("killed")
    with pytest.raises(ProviderError, match="it is killed"):
        await connection.drivers[Kind.BOOT_IMAGE].create(IMAGE, TAG)
    assert cloud.images == {}
