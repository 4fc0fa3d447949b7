"""Servers made of images: who uses an image is said by it, and cloud-init gets user data."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest
from starlette.responses import JSONResponse, Response

from nospoon.errors import OutOfSpace, ProviderError
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.machine import PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import BootImage, Image, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.seed import Seed
from nospoon.plan.identity import node_uuid
from nospoon.plan.user_data import joined
from nospoon.providers import cloud_calls
from nospoon.providers.openstack import roots
from nospoon.providers.openstack.connection import OpenStackConnection
from nospoon.testing.cloud_connection import connected
from nospoon.testing.fake_cloud import FakeCloud, Rule

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
SHA = "ab" * 32
SHAPE = Image("", SHA, "qcow2", 3 << 29, Firmware.UEFI)
NAME = f"image-{SHA[:16]}-uefi"
ONE, OTHER = OwnerTag("kit", UUID(int=7), name="one"), OwnerTag("kit", UUID(int=8), name="other")
MAC = "02:00:00:00:00:01"
SEED = Seed("i", "v", (), "#!/bin/sh\ntrue\n", "{}")


async def open_seed(digest: str) -> Seed:
    assert digest == SEED.digest
    return SEED


@pytest.fixture
async def connection(cloud: FakeCloud, tmp_path: Path) -> AsyncIterator[OpenStackConnection]:
    async with connected(cloud, tmp_path, open_seed=open_seed) as made:
        yield made


def image(shape: Image = SHAPE) -> Resource:
    return Resource(Key(Kind.IMAGE, "cloud", NAME), shape)


async def test_an_image_is_sent_once_and_goes_with_the_last_cluster_that_uses_it(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.IMAGE]
    for tag in (ONE, OTHER, ONE):
        await driver.create(image(), tag)
    (record,) = cloud.images.values()
    assert cloud.uploads[record["id"]] == SHA.encode()
    assert (record["disk_format"], record["min_disk"]) == ("qcow2", 2)
    assert (record["hw_firmware_type"], record["hw_cdrom_bus"]) == ("uefi", "scsi")
    seen = await driver.observe(None)
    assert {(each.tag.cluster, each.key.name, each.fault) for each in seen} == {
        (ONE.cluster, NAME, ""), (OTHER.cluster, NAME, ""),
    }  # fmt: skip
    (first,) = await driver.observe(ONE.cluster)
    assert first.shape == SHAPE
    await driver.delete(first)
    await driver.delete(first)
    assert list(cloud.images) == [record["id"]]
    (last,) = await driver.observe(None)
    await driver.delete(last)
    assert not cloud.images


async def test_half_of_an_image_is_sent_again(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.IMAGE]
    cloud.fail("PUT .*/file", 500)
    with pytest.raises(ProviderError):
        await driver.create(image(), ONE)
    assert not cloud.images, "it is not left"
    await driver.create(image(), ONE)
    (record,) = cloud.images.values()
    record["status"] = "queued"  # as a daemon leaves it that is killed meanwhile
    (seen,) = await driver.observe(ONE.cluster)
    assert seen.fault == "its upload is queued"
    await driver.change(seen, image(), ONE)
    assert [each["status"] for each in cloud.images.values()] == ["active"]
    assert record["id"] not in cloud.images


async def test_images_of_others_of_other_firmware_and_machine_types_are_not_shared(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    driver = connection.drivers[Kind.IMAGE]
    await driver.create(image(), replace(ONE))
    (record,) = cloud.images.values()
    record["nospoon_deployment"] = "another"
    await driver.create(image(), ONE)
    await driver.create(image(replace(SHAPE, firmware=Firmware.BIOS)), OTHER)
    assert len(cloud.images) == 3
    of_qemu = replace(SHAPE, hypervisor_type="qemu")
    await driver.create(image(of_qemu), OTHER)
    assert [each.get("img_hv_type") for each in cloud.images.values()] == [None] * 3 + ["qemu"]
    assert of_qemu in [each.shape for each in await driver.observe(OTHER.cluster)]


def server() -> Resource:
    uuid = node_uuid(ONE.cluster, "v")
    shape = Machine(
        uuid=uuid, cpus=1, memory=512 << 20, arch=Arch.X86_64, firmware=Firmware.UEFI, tpm=False,
        disks=(MachineDisk(NAME, "virtio", "", size=2 << 30), MachineDisk("v-1", "virtio", "")),
        nics=(MachineNic(MAC, "wire", "virtio"),), boot_order=(BootDevice.DISK,),
        boot=BootMethod.NONE, flavor="metal.512", kind=NodeKind.VM, seed=SEED.digest,
    )  # fmt: skip
    return Resource(Key(Kind.MACHINE, "cloud", "v"), shape)


async def test_a_server_of_an_image_gets_its_user_data_on_a_config_drive_and_runs(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    link = Resource(Key(Kind.NETWORK, "cloud", "wire"), Link("wire"))
    plug = Resource(Key(Kind.PORT, "cloud", "v-0"), Port("wire", MAC, guarded=True))
    for each in (link, plug, image(), server()):
        await connection.drivers[each.key.kind].create(each, ONE)
    (asked,) = cloud.requested
    (record,) = cloud.images
    assert asked["imageRef"] == record
    root, blank = asked["block_device_mapping_v2"]
    assert (root["uuid"], root["boot_index"], root["disk_bus"]) == (record, 0, "virtio")
    assert blank["source_type"] == "blank"
    assert b64decode(asked["user_data"]).decode() == SEED.user_data
    assert asked["config_drive"] is True
    assert SEED.user_data not in str(asked["metadata"])
    assert not cloud.acted, "its first boot is not interrupted"
    (event,) = await connection.machine_driver.machines()
    assert event.power is PowerState.ON
    (seen,) = await connection.machine_driver.observe(ONE.cluster)
    assert seen.shape == server().shape


async def test_what_services_need_is_a_part_of_the_user_data(
    cloud: FakeCloud, tmp_path: Path
) -> None:
    seed = replace(SEED, vendor_data="#!/bin/sh\necho services\n")

    async def opened(_: str) -> Seed:
        return seed

    async with connected(cloud, tmp_path, open_seed=opened) as connection:
        await made_container(connection)
    (asked,) = cloud.requested
    given = b64decode(asked["user_data"]).decode()
    assert given == joined(seed.user_data, seed.vendor_data, ())
    assert given.startswith("Content-Type: multipart/mixed; ")


OF_LXC = replace(SHAPE, format="raw", hypervisor_type="lxc")


def container() -> Resource:
    machine = server().shape
    assert isinstance(machine, Machine)
    shape = replace(machine, kind=NodeKind.CONTAINER, disks=machine.disks[:1])
    return replace(server(), shape=shape)


async def made_container(connection: OpenStackConnection) -> None:
    link = Resource(Key(Kind.NETWORK, "cloud", "wire"), Link("wire"))
    plug = Resource(Key(Kind.PORT, "cloud", "v-0"), Port("wire", MAC, guarded=True))
    for each in (link, plug, image(OF_LXC), container()):
        await connection.drivers[each.key.kind].create(each, ONE)


async def test_a_container_is_a_server_of_an_image_that_the_lxc_driver_mounts(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Nova gives it neither a disk bus, nor firmware, nor a config drive."""
    await made_container(connection)
    (record,) = cloud.images.values()
    assert (record["img_hv_type"], record["hypervisor_type"]) == ("lxc", "lxc")
    assert record["disk_format"] == "raw"
    assert not [each for each in record if each.startswith("hw_")]
    (asked,) = cloud.requested
    assert asked["imageRef"] == record["id"]
    assert not {"block_device_mapping_v2", "config_drive"} & asked.keys()
    assert b64decode(asked["user_data"]).decode() == SEED.user_data
    assert not cloud.acted
    (seen,) = await connection.machine_driver.observe(ONE.cluster)
    assert seen.shape == container().shape
    (there,) = await connection.drivers[Kind.IMAGE].observe(ONE.cluster)
    assert there.shape == OF_LXC
    why = await connection.machine_driver.snapshots.refusal(node_uuid(ONE.cluster, "v"))
    assert "Nova pauses no container" in why


async def test_a_container_that_no_compute_host_takes_says_what_it_needs(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    fault = {"message": "No valid host was found. There are not enough hosts available."}

    def failed() -> Response:
        (made,) = cloud.servers.values()
        return JSONResponse({"server": {**made, "status": "ERROR", "fault": fault}})

    cloud.rules.append(Rule("GET /compute/v2.1/servers/[0-9a-f]{8}-", failed))
    with pytest.raises(OutOfSpace, match=r"No valid host .* needs a compute host with `virt_type"):
        await made_container(connection)


async def test_an_image_may_take_longer_to_send_than_a_call_may_take(
    cloud: FakeCloud, connection: OpenStackConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, clock, pieces = [0.0], time.monotonic, 4
    content, send = len(SHA), roots.File.__iter__

    def slowly(file: roots.File) -> Iterator[bytes]:
        """Five minutes in all: a call has two."""
        for piece in send(file):
            yield piece
            late[0] += 300 / pieces

    ahead = SimpleNamespace(monotonic=lambda: clock() + late[0])
    monkeypatch.setattr(cloud_calls, "time", ahead)
    monkeypatch.setattr(roots, "CHUNK", content // pieces)
    monkeypatch.setattr(roots.File, "__iter__", slowly)
    monkeypatch.setattr(roots, "SLOWEST", content / 600)
    driver = connection.drivers[Kind.IMAGE]
    await driver.create(image(), ONE)
    assert list(cloud.uploads.values()) == [SHA.encode()]
    monkeypatch.setattr(roots, "SLOWEST", content / 60)
    with pytest.raises(ProviderError):
        await driver.create(image(replace(SHAPE, sha256="cd" * 32)), ONE)
    assert len(cloud.images) == 1, "the other one is not left"


async def test_an_image_that_others_made_of_a_server_is_theirs_though_it_has_its_properties(
    cloud: FakeCloud, connection: OpenStackConnection
) -> None:
    """Nova gives images of servers the properties of the image that a server was made of."""
    roots, boots = connection.drivers[Kind.IMAGE], connection.drivers[Kind.BOOT_IMAGE]
    url = "http://daemon"
    boot = Resource(boot_image("cloud", Firmware.BIOS, url), BootImage(Firmware.BIOS, url))
    await roots.create(image(), ONE)
    await boots.create(boot, ONE)
    for number, record in enumerate(list(cloud.images.values())):
        copy = {**record, "id": f"copy-{number}", "image_type": "snapshot"}
        cloud.images[copy["id"]] = {**copy, "name": "theirs"}
    seen = [*await roots.observe(None), *await boots.observe(None)]
    assert [each.key for each in seen] == [image().key, boot.key]
    await roots.create(image(), OTHER)
    for each in [*await roots.observe(None), *await boots.observe(None)]:
        await connection.drivers[each.key.kind].delete(each)
    assert sorted(cloud.images) == ["copy-0", "copy-1"]
    assert not any(OTHER.cluster.hex in str(each) for each in cloud.images.values())
