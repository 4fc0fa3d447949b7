"""Nodes whose network leads to no address of the daemon boot through a relay on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from openstack.connection import Connection
from tests.cloud.test_rack import DISKS, connection, everything, overwrite_disk
from tests.cloud.test_virtual_ips import plugged

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.relay import relay_machines

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack:
      cloud: nospoon-cloud
      flavors: [metal.tiny]
      relay: {{network: lab, image: {image}, flavor: {flavor}, floating_ip: public}}
networks: {{lab: {{nat: true, cidr: 10.78.0.0/24}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [{{network: lab}}]}}
"""


def user_data(cloud: OwnCloud, server: str) -> str:
    """What is on the config drive of a server, as its guest would read it."""
    drive = f"{DISKS}/{server}/disk.config"
    argv = ["xorriso", "-osirrox", "on", "-indev", drive, "-extract",
            "/openstack/latest/user_data", "/tmp/user_data"]  # fmt: skip
    box = f"mount -t tmpfs none /tmp && {' '.join(argv)} >/dev/null 2>&1 && cat /tmp/user_data"
    enter = ["nsenter", "--mount", f"--target={cloud.first}", "unshare", "--mount"]
    done = subprocess.run([*enter, "sh", "-c", box], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def stands_in(cloud: OwnCloud, member: Connection, name: str) -> Iterator[None]:
    """Whatever guest the relay's server has, a namespace is in its place: plugged into its port, it
    runs what is on the server's config drive.
    """

    def there() -> list[str]:
        return [each.id for each in member.compute.servers() if each.status == "ACTIVE"
                and each.name == f"{name}-relay"]  # fmt: skip

    until(lambda: bool(there()))
    (server,) = there()
    (port,) = member.network.ports(device_id=server)
    with plugged(cloud, "relay0", port) as guest:
        guest.run("ip", "link", "set", "lo", "up")
        guest.run("ip", "route", "add", "default", "via", "10.78.0.1")
        enter = ["nsenter", "--mount", "--net", f"--target={cloud.first}", "--"]
        with relay_machines(*enter, "ip", "netns", "exec", "relay0") as machines:
            machines.boot("relay", user_data(cloud, server))
            yield


def nodes_boot_through_it(cloud: OwnCloud, rack: Rack, name: str, file: str) -> None:
    """From the network, whose probe reports, then from the disk, as the BMC says."""
    member = connection(cloud)
    assert "Nothing to do" in rack.run("plan", file).stdout
    (verdict,) = rack.json("verify", file)
    assert (verdict["verdict"], verdict["nics"]) == ("as declared", 1)
    console = rack.run("node", "console", "n", "--log").stdout
    assert "boot image for http://10.78.0.254:8069" in console
    (server,) = (each for each in member.compute.servers() if each.name == f"{name}-n")
    until(lambda: member.compute.get_server(server).status == "SHUTOFF")
    overwrite_disk(cloud, server.id)
    bmc = rack.bmcs(name)["n"]
    rack.ipmitool(bmc, "power", "on")
    until(lambda: BOOTED.decode() in rack.run("node", "console", "n", "--log").stdout)


@pytest.mark.timeout(600, func_only=True)
def test_a_node_without_a_way_to_the_daemon_boots_through_a_relay(
    cloud: OwnCloud, rack: Rack
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    image = next(iter(member.image.images()))
    file = rack.file(FILE.format(name=name, image=image.name, flavor="tiny") + rack.bmc())
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        up = threads.submit(rack.run, "up", file, "--yes")
        stack.enter_context(stands_in(cloud, member, name))
        up.result()
        listening = subprocess.run(
            ["ss", "-Hltn", "src", "172.24.5.1"], check=True, capture_output=True, text=True
        )
        assert listening.stdout == "", "no address of the daemon is one that guests reach"
        nodes_boot_through_it(cloud, rack, name, file)
        rack.run("down", name, "--yes")
    assert everything(member) == before
    assert list(member.network.ips()) == []


@pytest.mark.skipif(
    not os.environ.get("NOSPOON_OPENSTACK_FULL"),
    reason="a Debian in an emulated VM takes minutes: make test-openstack-full",
)
@pytest.mark.timeout(5400, func_only=True)
def test_a_server_of_a_cloud_image_becomes_a_relay_by_its_user_data(
    cloud: OwnCloud, rack: Rack
) -> None:
    """Systemd, cloud-init and OpenSSH of Debian, as in the images that it publishes. Its kernel for
    clouds has no driver for a CD on SATA, where Nova has config drives, and this cloud has no
    metadata service.
    """
    member, name = connection(cloud), rack.name()
    built = "debian-for-relays"
    disk = CACHE / f"{built}.qcow2"
    if not disk.exists():
        rack.run("image", "build", str(CACHE), "--name", built, "--as", "qcow2", seconds=2400)
    before = everything(member)
    image = member.image.create_image(
        name=built, filename=str(disk), disk_format="qcow2", container_format="bare",
        hw_firmware_type="uefi", hw_machine_type="q35", hw_cdrom_bus="scsi",
        hw_scsi_model="virtio-scsi", validate_checksum=False,
    )  # fmt: skip
    file = rack.file(FILE.format(name=name, image=built, flavor="small") + rack.bmc())
    rack.run("up", file, "--yes", seconds=2400)
    nodes_boot_through_it(cloud, rack, name, file)
    (server,) = (each for each in member.compute.servers() if each.name == f"{name}-relay")
    member.compute.reboot_server(server.id, "HARD")
    until(lambda: "no tunnel leads to it" in rack.run("plan", file).stdout)
    until(lambda: "Nothing to do" in rack.run("plan", file).stdout, seconds=900)
    rack.run("down", name, "--yes")
    member.image.delete_image(image.id)
    assert everything(member) == before
