"""Compute hosts of other machine types beside the first one, in one Nova."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest
from openstack.compute.v2.server import Server
from openstack.connection import Connection
from tests.cloud.test_cloud import connection, partitioned
from tests.cloud.test_rack import everything

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack
from nospoon.testing.terminal import terminal
from nospoon.testing.trees import control_groups

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
SAYS = "container-up"
INIT = f"""#!/bin/busybox sh
/bin/busybox date >>/started
echo {SAYS} $(/bin/busybox cat /proc/self/uid_map)
echo started $(/bin/busybox wc -l </started) times
while :; do /bin/busybox sleep 60; done
"""

FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: {cloud}, flavors: [tiny]}}
    physnets: {{lan: rack}}
networks: {{lan: {{physnet: lan}}}}
nodes:
  - {{name: c, kind: container, cpus: 1, memory: 128MiB, bmc: redfish, nics: [{{network: lan}}],
     disks: [{{image: "store:service", size: 1GiB}}]}}
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


@pytest.mark.timeout(600, func_only=True)
def test_a_container_of_a_cluster_file_is_a_server_where_the_cloud_runs_containers(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    compute = ("dev", "cloud", "compute")
    member, name = connection(cloud), rack.name()
    before = everything(member)
    loaded = ("image", "load", str(container_disk(tmp_path)), "--hypervisor-type", "lxc", "--name")
    rack.run(*loaded, "service")
    bmc = rack.bmc()
    known = rack.file(FILE.format(name=name, cloud="nospoon-cloud-admin") + bmc)
    refused = rack.run("plan", known, status=1)
    assert "no compute host of the cloud runs containers: qemu alone" in refused.stderr
    file = rack.file(FILE.format(name=name, cloud="nospoon-cloud") + bmc)
    assert "Nova shows to administrators alone" in rack.run("plan", file).stdout
    failed = rack.run("up", file, "--yes", status=3)
    assert "No valid host was found" in failed.stderr
    assert "A container needs a compute host with `virt_type = lxc`" in failed.stderr
    cloud.rack.run(*compute, "--join", str(cloud.told["clouds"]), "--virt", "lxc")
    rack.run("up", file, "--yes")
    (server,) = member.compute.servers(name=f"{name}-c")
    admin = connection(cloud, "nospoon-cloud-admin")
    assert admin.compute.get_server(server).compute_host == "cloud-lxc"
    expect_a_node(rack, f"{name}/c")
    assert "Nothing to do" in rack.run("plan", file).stdout
    place = ("--os-cloud", "nospoon-cloud")
    theirs = rack.json(*loaded, "theirs", *place)
    text = Path(file).read_text().replace("store:service", "glance:theirs")
    rack.run("up", rack.file(text), "--yes")
    (server,) = member.compute.servers(name=f"{name}-c")
    assert server.image.id == theirs["id"]
    assert admin.compute.get_server(server).compute_host == "cloud-lxc"
    rack.run("down", name, "--yes")
    assert rack.json("image", "show", "theirs", *place) == theirs
    rack.run("image", "remove", "theirs", *place)
    assert everything(member) == before
    cloud.rack.run(*compute, "leave", "cloud-lxc")


def expect_a_node(rack: Rack, node: str) -> None:
    """What Nova offers of one: its log, its power, and what it was on its root."""

    def has_said(text: str) -> bool:
        return text in rack.run("node", "console", "--log", node).stdout

    until(lambda: has_said(f"{SAYS} 0 100000 65536"))
    until(lambda: has_said("started 1 times"))
    with terminal(["nospoon", "node", "console", node], env=rack.environment) as screen:
        screen.shows(b"cannot be typed at: Nova's POST")
        screen.types(b"\x1d")
        screen.ends()
    for argv in (("exec", node, "--", "true"), ("ssh", node), ("logs", node)):
        assert "in a cloud, a `floating_ip`" in rack.run("node", *argv, status=2).stderr
    refused = rack.run("snapshot", "create", node.partition("/")[0], "first", status=5)
    assert "Nova pauses no container" in refused.stderr
    rack.power(node, "off")
    rack.power(node, "on")
    until(lambda: has_said("started 2 times"))
    rack.power(node, "cycle")
    until(lambda: has_said("started 3 times"))
    rack.power(node, "reset")
    until(lambda: has_said("started 4 times"))
