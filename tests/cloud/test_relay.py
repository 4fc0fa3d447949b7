"""Nodes whose network leads to no address of the daemon boot through a relay on it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Network

import pytest
from openstack.connection import Connection
from tests.cloud.test_rack import DISKS, everything, overwrite_disk
from tests.cloud.test_virtual_ips import Guest, connection, inside, plugged

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED
from nospoon.testing.ironic import until
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.relay import relay_machines

pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack"),
    pytest.mark.usefixtures("port_623"),
]
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack:
      cloud: nospoon-cloud
      flavors: [metal.tiny]
      relay: {{network: lab, image: {image}, flavor: {flavor}, floating_ip: public, bmcs: true}}
networks: {{lab: {{nat: true, cidr: 10.78.0.0/24, netboot: builtin}}, pxe: {{}}}}
nodes:
  - {{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: lab}}, {{network: pxe}}]}}
"""
POOL = "10.78.0.128/25"
SCRIPT = "#!ipxe\necho booted by the undercloud\nsleep 3600\n"
LINK = """\
[Match]
OriginalName=*

[Link]
NamePolicy=keep kernel database onboard slot path
TransmitChecksumOffload=false
"""
WITH_CHECKSUMS = f"""printf '{LINK}' >/etc/systemd/network/00-checksums.link"""
"""Open vSwitch's datapath in this cloud fills in no checksums that a guest leaves to its NIC."""
DNSMASQ = (
    "dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--bind-interfaces",
    "--interface=under1", "--dhcp-range=192.0.2.100,192.0.2.150,10m", "--dhcp-boot=boot.ipxe",
    "--enable-tftp", "--tftp-root=/run/under1", "--leasefile-ro", "--user=root",
)  # fmt: skip


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
    """From the network, whose probe reports, then from the disk, as the BMC says. Its address is of
    the relay's DHCP: Neutron has none there.
    """
    member = connection(cloud)
    (subnet,) = member.network.subnets(cidr="10.78.0.0/24")
    assert not subnet.is_dhcp_enabled
    assert "Nothing to do" in rack.run("plan", file).stdout
    (verdict,) = rack.json("verify", file)
    assert (verdict["verdict"], verdict["nics"]) == ("as declared", 2)
    console = rack.run("node", "console", "n", "--log").stdout
    assert "boot image for http://10.78.0.127:8069" in console
    (server,) = (each for each in member.compute.servers() if each.name == f"{name}-n")
    until(lambda: member.compute.get_server(server).status == "SHUTOFF")
    overwrite_disk(cloud, server.id)
    bmc = rack.bmcs(name)["n"]
    rack.ipmitool(bmc, "power", "on")
    until(lambda: BOOTED.decode() in rack.run("node", "console", "n", "--log").stdout)


@contextmanager
def undercloud(cloud: OwnCloud, member: Connection, link: str, network: str) -> Iterator[Guest]:
    """A namespace on a network of the project, in the place of a server."""
    (found,) = (n for n in member.network.networks() if n.name.endswith(f"-{network}"))
    port = member.network.create_port(network_id=found.id, port_security_enabled=False)
    admin = connection(cloud, "nospoon-cloud-admin")
    server = next(iter(member.compute.servers()))
    (other, *_) = member.network.ports(device_id=server.id)
    host = admin.network.get_port(other.id).binding_host_id
    admin.network.update_port(port.id, binding_host_id=host)
    with plugged(cloud, link, port) as guest:
        try:
            yield guest
        finally:
            guest.kill()
    member.network.delete_port(port)


def an_undercloud_boots_it(cloud: OwnCloud, rack: Rack, name: str) -> None:
    """By the node's BMC inside the network of the project, and by a dnsmasq of its own."""
    member, bmc = connection(cloud), rack.bmcs(name)["n"]
    address = bmc["ipmi"].partition(":")[0]
    assert address in {str(each) for each in IPv4Network(POOL)}
    login = ["-U", bmc["username"], "-P", bmc["password"], "-H", address]
    with (
        undercloud(cloud, member, "under0", "lab") as under,
        undercloud(cloud, member, "under1", "pxe") as serving,
    ):

        def ipmitool(*argv: str) -> str:
            return under.run("ipmitool", "-I", "lanplus", "-R", "12", *login, *argv)

        make = "mkdir -p /run/under1 && cat >/run/under1/boot.ipxe"
        enter = [*inside(cloud), "sh", "-c", make]
        subprocess.run(enter, input=SCRIPT.encode(), check=True, capture_output=True)
        with subprocess.Popen(serving.command(*DNSMASQ), stderr=subprocess.DEVNULL):
            ipmitool("power", "off")
            until(lambda: "is off" in ipmitool("power", "status"))
            ipmitool("chassis", "bootdev", "pxe")
            ipmitool("power", "on")
            said = "booted by the undercloud"
            until(lambda: said in rack.run("node", "console", "n", "--log").stdout)
            serving.kill()
    first = rack.run("node", "console", "n", "--log").stdout.partition(said)[0]
    asked = first.rpartition("boot the network")[2]
    assert "tftp://10.78.0.127/boot.ipxe... ok" in asked, "PXE of the relay"
    assert "nothing to boot from the network" in asked, "the next NIC has its turn"


@pytest.mark.timeout(900, func_only=True)
def test_a_node_without_a_way_to_the_daemon_boots_through_a_relay(
    cloud: OwnCloud, rack: Rack
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    image = next(iter(member.image.images()))
    file = rack.file(FILE.format(name=name, image=image.name, flavor="tiny") + rack.bmc(pool=POOL))
    with ExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(1))
        up = threads.submit(rack.run, "up", file, "--yes")
        stack.enter_context(stands_in(cloud, member, name))
        up.result()
        served = [line for line in rack.log().splitlines() if "boot files are served" in line]
        assert {json.loads(line)["address"] for line in served} == {"127.0.0.1"}
        nodes_boot_through_it(cloud, rack, name, file)
        an_undercloud_boots_it(cloud, rack, name)
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
    built = "debian-with-dnsmasq"
    disk = CACHE / f"{built}.qcow2"
    if not disk.exists():
        options = ["--name", built, "--as", "qcow2", "--run", WITH_CHECKSUMS]
        options += ["--include", "dnsmasq-base"]  # this cloud leads to no mirror
        rack.run("image", "build", str(CACHE), *options, seconds=2400)
    before = everything(member)
    with disk.open("rb") as content:  # by its name, it would be left open
        image = member.image.create_image(
            name=built,
            data=content,  # type: ignore[arg-type]  # files are taken, whatever its types say
            disk_format="qcow2", container_format="bare",
            hw_firmware_type="uefi", hw_machine_type="q35", hw_cdrom_bus="scsi",
            hw_scsi_model="virtio-scsi", validate_checksum=False,
        )  # fmt: skip
    file = rack.file(FILE.format(name=name, image=built, flavor="small") + rack.bmc(pool=POOL))
    rack.run("up", file, "--yes", seconds=2400)
    nodes_boot_through_it(cloud, rack, name, file)
    (server,) = (each for each in member.compute.servers() if each.name == f"{name}-relay")
    member.compute.reboot_server(server.id, "HARD")
    until(lambda: "no tunnel leads to it" in rack.run("plan", file).stdout)
    until(lambda: "Nothing to do" in rack.run("plan", file).stdout, seconds=900)
    rack.run("down", name, "--yes")
    member.image.delete_image(image.id)
    assert everything(member) == before
