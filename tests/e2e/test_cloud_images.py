"""Servers of a cluster file that start from images which are in the cloud's Glance already."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from uuid import uuid4

import pytest

from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.rack import Rack, private_rack

FILE = """
cluster: theirs
hosts:
  here: simulated
  cloud: {{openstack: {{cloud: {settings}}}, physnets: {{external: external}}}}
networks: {{external: {{physnet: external}}}}
flavors:
  vm: {{kind: vm, cpus: 1, memory: 512MiB, firmware: {firmware}, nics: [external]}}
  box: {{kind: container, cpus: 1, memory: 512MiB, nics: [external]}}
nodes:
- {{name: v, flavor: {flavor}, disks: [{{image: 'glance:{image}', size: {size}}}]}}
"""


def added(cloud: FakeCloud, name: str, **more: object) -> str:
    """An image of others: its id."""
    id_ = str(uuid4())
    cloud.images[id_] = {
        "id": id_, "name": name, "status": "active", "disk_format": "qcow2", "min_disk": 0,
        "virtual_size": None, "size": 1 << 20, "created_at": cloud.now(), **more,
    }  # fmt: skip
    return id_


def file(
    rack: Rack, cloud: FakeCloud, image: str, *, firmware: str = "bios", size: str = "1GiB",
    flavor: str = "vm",
) -> str:  # fmt: skip
    settings = json.dumps({"name": "mine", **cloud.settings})
    text = FILE.format(settings=settings, image=image, firmware=firmware, size=size, flavor=flavor)
    return rack.file(text)


@pytest.mark.timeout(240)
async def test_a_server_starts_from_an_image_of_the_cloud_which_stays_as_it_is() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_used, rack, cloud)
        assert not cloud.servers


def _used(rack: Rack, cloud: FakeCloud) -> None:
    first = added(cloud, "debian", img_hv_type="kvm")
    before = deepcopy(cloud.images)
    own = file(rack, cloud, "debian")
    planned = rack.run("plan", own).stdout
    assert "runs images for kvm" in planned
    assert "image " not in [line.strip("+ ")[:6] for line in planned.splitlines()]
    rack.run("up", "--yes", own)
    (server,) = cloud.servers.values()
    assert server["image"]["id"] == first
    assert "Nothing to do" in rack.run("plan", own).stdout
    assert rack.json("plan", file(rack, cloud, first))["steps"] == [], "it is the same by its id"
    assert cloud.images == before

    cloud.images[first]["name"] = "debian-old"
    second = added(cloud, "debian", hypervisor_type="qemu")
    before = deepcopy(cloud.images)
    own = file(rack, cloud, "debian")
    assert "-/+ machine v" in rack.run("plan", own).stdout
    rack.run("up", "--yes", own)
    (other,) = cloud.servers.values()
    assert other["id"] != server["id"]
    assert other["image"]["id"] == second
    rack.run("down", "--yes", "theirs")
    assert cloud.images == before


@pytest.mark.timeout(240)
async def test_a_container_starts_from_an_image_of_the_cloud() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_contained, rack, cloud)


def _contained(rack: Rack, cloud: FakeCloud) -> None:
    image = added(cloud, "service", disk_format="raw", img_hv_type="lxc")
    own = file(rack, cloud, "service", flavor="box")
    assert "runs images for lxc; makes containers of an ext4" in rack.run("plan", own).stdout
    rack.run("up", "--yes", own)
    (server,) = cloud.servers.values()
    assert server["image"]["id"] == image
    rack.run("down", "--yes", "theirs")
    assert list(cloud.images) == [image]


@pytest.mark.timeout(240)
async def test_why_a_node_cannot_start_from_an_image_of_the_cloud_is_said() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            await asyncio.to_thread(_refused, rack, cloud)


def _refused(rack: Rack, cloud: FakeCloud) -> None:
    def why(image: str, **more: str) -> str:
        return rack.run("plan", file(rack, cloud, image, **more), status=1).stderr

    assert "Glance has no image 'debian' that its project sees" in why("debian")
    assert "Glance has no image" in why(str(uuid4()))
    assert "Glance has no image" in why("../flavors")
    twins = sorted(added(cloud, "twin") for _ in range(2))
    assert f"several images 'twin'. Name one by its id: glance:ID, of {', '.join(twins)}" in why(
        "twin"
    )
    added(cloud, "half", status="queued")
    assert "image 'half' of Glance is queued, not active" in why("half")
    added(cloud, "box", img_hv_type="lxc")
    assert "is for lxc (img_hv_type), and a node of kind vm begins with one for kvm or qemu" in why(
        "box"
    )
    added(cloud, "foreign", img_hv_type="hyperv")
    assert "is for hyperv (img_hv_type), and a node of kind vm" in why("foreign")
    added(cloud, "modern", hw_firmware_type="uefi")
    assert "boots by uefi (hw_firmware_type). Write `firmware: uefi`" in why("modern")
    added(cloud, "large", min_disk=4)
    assert "needs a root of 4 GiB, and its size is 1 GiB" in why("large")
    assert "has no img_hv_type=lxc, without which Nova makes a VM of it" in why(
        "large", flavor="box"
    )
    assert "is qcow2, and Nova's LXC driver mounts a raw ext4 file system" in why(
        "box", flavor="box"
    )
    text = "cluster: x\nhosts: {here: simulated}\n"
    text += "nodes: [{name: v, kind: vm, disks: [{image: 'glance:x', size: 1GiB}]}]\n"
    elsewhere = rack.run("plan", rack.file(text), status=1).stderr
    assert "image glance:x is of a cloud, and" in elsewhere
