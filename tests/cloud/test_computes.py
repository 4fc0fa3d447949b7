"""Compute hosts of other machine types beside the first one, in one Nova."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from tests.cloud.test_cloud import connection, partitioned

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack
from nospoon.testing.trees import control_groups

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
SAYS = "container-up"
INIT = f"""#!/bin/busybox sh
echo {SAYS} $(/bin/busybox cat /proc/self/uid_map)
while :; do /bin/busybox sleep 60; done
"""


def container_disk(directory: Path) -> Path:
    """A root file system for Nova's LXC driver: ext4, without a table of partitions."""
    root = directory / "root"
    for each in ("bin", "sbin", "dev", "proc", "sys"):
        (root / each).mkdir(parents=True)
    (root / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (root / "bin/busybox").chmod(0o755)
    (root / "sbin/init").write_text(INIT)
    (root / "sbin/init").chmod(0o755)
    image = directory / "root.raw"
    argv = ["mke2fs", "-q", "-t", "ext4", "-d", str(root), str(image), "16M"]
    subprocess.run(argv, check=True, env={"PATH": "/usr/sbin:/sbin"})
    return image


def booted(rack: Rack, member: Connection, kind: str, file: Path) -> Server:
    """A server of an image whose property names the machine type."""
    place = ("--os-cloud", "nospoon-cloud")
    argv = ("image", "load", str(file), "--hypervisor-type", kind, "--name", kind, *place)
    image = rack.json(*argv)
    assert image == rack.json("image", "show", kind, *place)
    assert image["hypervisor_type"] == kind
    flavor = member.compute.find_flavor("tiny", ignore_missing=False)
    network = next(member.network.networks(name="rack"))
    server = member.compute.create_server(
        name=kind, image_id=image["id"], flavor_id=flavor.id, networks=[{"uuid": network.id}]
    )
    server = member.compute.wait_for_server(server, wait=600)
    rack.run("image", "remove", kind, *place)
    assert kind not in [row["name"] for row in rack.json("image", "list", *place)]
    return server


def says(member: Connection, server: Server, text: str) -> bool:
    output: str = member.compute.get_server_console_output(server)["output"]
    return text in output


def hypervisors(admin: Connection) -> dict[str, str]:
    return {each.name: each.hypervisor_type for each in admin.compute.hypervisors(details=True)}


@pytest.mark.timeout(600, func_only=True)
def test_an_images_property_chooses_the_compute_host_and_a_host_joins_and_leaves(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    compute = ("dev", "cloud", "compute")
    cloud.rack.run(*compute, "--join", str(cloud.told["clouds"]), "--virt", "lxc")
    assert cloud.rack.json(*compute, "list") == [{"name": "cloud-lxc", "virt": "lxc"}]
    admin, member = connection(cloud, "nospoon-cloud-admin"), connection(cloud)
    assert hypervisors(admin)["cloud-lxc"] == "LXC"
    disk = tmp_path / "disk.raw"
    disk.write_bytes(partitioned(speaking_disk()))
    container = booted(rack, member, "lxc", container_disk(tmp_path))
    machine = booted(rack, member, "qemu", disk)
    assert admin.compute.get_server(container).compute_host == "cloud-lxc"
    assert admin.compute.get_server(machine).compute_host == "cloud"
    until(partial(says, member, container, f"{SAYS} 0 100000 65536"))
    until(partial(says, member, machine, BOOTED.decode()))
    refused = cloud.rack.run(*compute, "leave", "cloud-lxc", status=5)
    assert "has servers: lxc" in refused.stderr
    for each in (container, machine):
        member.compute.delete_server(each)
        member.compute.wait_for_delete(each, wait=600)
    cloud.rack.run(*compute, "leave", "cloud-lxc")
    assert cloud.rack.json(*compute, "list") == []
    assert "cloud-lxc" not in hypervisors(admin)
    assert "cloud-lxc" not in {each.name for each in admin.placement.resource_providers()}
    assert not control_groups("nospoon-cloud-7600-")
    cloud.rack.run("dev", "cloud", "status")
