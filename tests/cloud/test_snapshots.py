"""Snapshots of servers of a real cloud: what Nova keeps of a root is there after a restore."""

from __future__ import annotations

import subprocess

import pytest
from tests.cloud.test_cloud import connection, partitioned
from tests.cloud.test_rack import DISKS, everything

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [tiny]}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
nodes:
  - {{name: v, kind: vm, cpus: 1, memory: 128MiB, firmware: bios, image: disk.raw,
     nics: [{{network: external}}]}}
"""


@pytest.mark.timeout(400, func_only=True)
def test_a_root_is_what_it_was_when_it_was_kept(cloud: OwnCloud, rack: Rack) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    (rack.directory / "disk.raw").write_bytes(partitioned(speaking_disk()))
    file = rack.file(FILE.format(name=name) + rack.bmc())
    rack.run("up", file, "--yes")

    def boots() -> int:
        return rack.run("node", "console", f"{name}/v", "--log").stdout.count(BOOTED.decode())

    until(lambda: boots() == 1)
    rack.run("snapshot", "create", name, "first")
    (server,) = member.compute.servers()
    assert server.status == "ACTIVE", "it was paused for that"
    (image,) = [each for each in member.image.images() if each.name == f"nospoon-{name}-v-first"]
    theirs = member.compute.create_server_image(server, "theirs", wait=True)
    assert "Nothing to do" in rack.run("plan", file).stdout, "an image of others is theirs"
    rack.power(f"{name}/v", "off")
    enter = ["nsenter", "--mount", f"--target={cloud.first}"]
    wipe = ["qemu-io", "-f", "qcow2", "-c", "write -z 0 1M", f"{DISKS}/{server.id}/disk"]
    subprocess.run([*enter, *wipe], check=True, capture_output=True)
    rack.run("snapshot", "restore", "--yes", name, "first")
    until(lambda: boots() >= 2)
    (server,) = member.compute.servers()
    assert (server.status, server.image.id) == ("ACTIVE", image.id)
    assert "Nothing to do" in rack.run("plan", file).stdout
    rack.run("down", name, "--yes")
    member.image.delete_image(theirs.id)
    assert everything(member) == before
