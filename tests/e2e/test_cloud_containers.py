"""Containers of a cluster file in a cloud whose Nova has a compute host for them."""

from __future__ import annotations

import asyncio
import json

import pytest

from nospoon.runtime import process
from nospoon.testing.cloud_connection import fake_cloud
from nospoon.testing.container_root import busybox_root
from nospoon.testing.fake_cloud import FakeCloud
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack, private_rack

FILE = """
cluster: boxes
hosts:
  cloud:
    openstack: {{cloud: {settings}}}
    physnets: {{external: external}}
networks: {{external: {{physnet: external}}}}
nodes:
- {{name: c, kind: container, cpus: 1, memory: 512MiB, bmc: redfish, nics: [{{network: external}}],
   disks: [{{image: {image}, size: 1GiB}}]{more}}}
"""


def file(rack: Rack, cloud: FakeCloud, *, image: str = "root.ext4", more: str = "") -> str:
    settings = json.dumps({"name": "mine", **cloud.settings})
    return rack.file(FILE.format(settings=settings, image=image, more=more) + rack.bmc())


@pytest.mark.timeout(240)
async def test_a_container_of_a_cloud_is_made_switched_replaced_and_removed() -> None:
    async with fake_cloud() as cloud:
        cloud.networks["n0"]["project_id"] = "0" * 32
        with private_rack() as rack:
            for name, size in (("root.ext4", "4M"), ("next.ext4", "8M")):
                await process.run(["mke2fs", "-q", "-t", "ext4", str(rack.directory / name), size])
            (rack.directory / "root.tar").write_bytes(busybox_root())
            await asyncio.to_thread(_used, rack, cloud)
        assert not cloud.servers
        assert not cloud.images


def _used(rack: Rack, cloud: FakeCloud) -> None:
    packed = rack.run("plan", file(rack, cloud, image="root.tar"), status=1).stderr
    assert "`nospoon image build --as ext4` makes one" in packed
    data = ', user_data: "#cloud-config"'
    notes = rack.json("plan", file(rack, cloud, more=data))["notes"]
    assert any("whether it has a compute host for containers (c)" in each for each in notes)
    assert any("c: user data comes from the cloud's metadata service" in each for each in notes)
    own = file(rack, cloud)
    rack.run("up", "--yes", own)
    assert [each["img_hv_type"] for each in cloud.images.values()] == ["lxc"]
    (first,) = cloud.servers.values()
    assert first["status"] == "ACTIVE"
    assert "Nothing to do" in rack.run("plan", own).stdout
    shown = rack.json("node", "show", "boxes/c")
    assert (shown["kind"], shown["firmware"]) == ("container", "")
    rack.run("node", "power", "boxes/c", "off")
    until(lambda: first["status"] == "SHUTOFF")
    rack.run("node", "power", "boxes/c", "on")
    until(lambda: first["status"] == "ACTIVE")
    media = rack.run("node", "boot", "boxes/c", "network", status=2).stderr
    assert "root" in media
    kept = rack.run("snapshot", "create", "boxes", "first", status=5).stderr
    assert "Nova pauses no container" in kept
    rack.run("up", "--yes", file(rack, cloud, image="next.ext4"))
    (second,) = cloud.servers.values()
    assert second["id"] != first["id"], "another image is another server"
    assert len(cloud.images) == 1
    rack.run("down", "--yes", "boxes")
