"""A real OpenStack, used as a member of an ordinary project uses one."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
from functools import partial
from pathlib import Path

import openstack
import pytest
from openstack.connection import Connection
from openstack.exceptions import ForbiddenException

from nospoon.testing.cloud import END, INSIDE, LINK, UP, OwnCloud, interfaces
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")

ADOPTED = """
cluster: {name}
hosts: {{cloud: {{openstack: {{cloud: nospoon-cloud, boot_address: 172.24.5.1}}}}}}
nodes: [{{adopt: {id}}}]
"""


def connection(cloud: OwnCloud, name: str = "nospoon-cloud") -> Connection:
    """openstacksdk's, as its user has it."""
    return openstack.connect(load_yaml_config=False, load_envvars=False, **cloud.login(name))


def partitioned(disk: bytes) -> bytes:
    """With one partition in its table: Glance takes nothing else for a disk (415)."""
    entry = bytes.fromhex("80 000200 83 000000 01000000 FF070000")
    return disk[:446] + entry + disk[446 + len(entry) :]


@pytest.mark.timeout(600, func_only=True)
def test_a_member_boots_a_server_again_and_again_and_adopts_it(cloud: OwnCloud, rack: Rack) -> None:
    member = connection(cloud)
    image = member.image.create_image(
        name="speaking",
        disk_format="raw",
        container_format="bare",
        data=partitioned(speaking_disk()),
    )
    network = member.network.create_network(name="provisioning")
    assert network.mtu == 1500
    member.network.create_subnet(
        network_id=network.id, ip_version=4, cidr="192.0.2.0/24", enable_dhcp=False
    )
    port = member.network.create_port(
        network_id=network.id,
        mac_address="02:00:00:00:00:01",
        port_security_enabled=False,
        fixed_ips=[],
    )
    assert (port.is_port_security_enabled, port.ip_allocation) == (False, "none")
    flavor = member.compute.find_flavor("tiny", ignore_missing=False)
    server = member.compute.create_server(
        name="node-0", image_id=image.id, flavor_id=flavor.id, networks=[{"port": port.id}]
    )
    server = member.compute.wait_for_server(server, wait=600)

    def says(text: str) -> bool:
        output = member.compute.get_server_console_output(server)["output"]
        return text in output

    until(lambda: says(BOOTED.decode()))
    assert member.network.get_port(port).status == "ACTIVE"
    assert is_up(cloud, port.id)
    member.compute.stop_server(server)
    member.compute.wait_for_server(server, status="SHUTOFF", wait=600)
    member.compute.start_server(server)
    member.compute.wait_for_server(server, wait=600)
    until(lambda: says(BOOTED.decode()))
    assert is_up(cloud, port.id)
    adopted(rack, member, server.id)
    member.compute.delete_server(server)
    member.compute.wait_for_delete(server, wait=600)
    member.network.delete_port(port)
    member.network.delete_network(network)
    member.image.delete_image(image.id)


def is_up(cloud: OwnCloud, port: str) -> bool:
    """Whether the tap of a port of Neutron is up."""
    enter = ["nsenter", "--mount", "--net", f"--target={cloud.first}", "--"]
    show = [*enter, "ip", "-o", "link", "show", f"tap{port[:11]}", "up"]
    return bool(subprocess.run(show, check=True, capture_output=True).stdout)


def adopted(rack: Rack, member: Connection, id_: str) -> None:
    """The running server is a node for a while, and then again what it was."""
    before = member.compute.get_server(id_).metadata
    text = ADOPTED.format(name=rack.name(), id=id_) + rack.bmc()
    file = rack.file(text)
    assert "(claim) machine node-0 on cloud" in rack.run("plan", file).stdout
    rack.run("up", "--yes", file)
    assert "Nothing to do" in rack.run("plan", file).stdout
    assert set(member.compute.get_server(id_).metadata) == {*before, "nospoon_claim"}
    (bmc,) = (row for row in rack.json("bmc", "list", "--show-secrets"))
    assert id_.replace("-", "") in rack.ipmitool(bmc, "mc", "guid").lower().replace("-", "")
    until(lambda: BOOTED.decode() in rack.run("node", "console", "node-0", "--log").stdout)
    for command, status in {"off": "SHUTOFF", "on": "ACTIVE"}.items():
        rack.ipmitool(bmc, "power", command)
        until(partial(_is, member, id_, status))
        until(partial(_tells, rack, bmc, f"is {command}"))
    rack.down()
    now = member.compute.get_server(id_)
    assert (now.metadata, now.status) == (before, "ACTIVE")


def _tells(rack: Rack, bmc: dict[str, str], power: str) -> bool:
    return power in rack.ipmitool(bmc, "power", "status")


def _is(member: Connection, id_: str, status: str) -> bool:
    return bool(member.compute.get_server(id_).status == status)


ASKING = """
cluster: {name}
hosts:
  cloud: {{openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: {address}}}}}
networks: {{lan: {{nat: true}}}}
nodes: [{{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [lan]}}]
"""


@pytest.mark.timeout(600, func_only=True)
def test_a_node_that_runs_is_made_again_of_the_image_for_another_address(
    cloud: OwnCloud, rack: Rack
) -> None:
    """Glance has the new image before the first one goes, which Nova has in use until then."""
    member, bmc, name = connection(cloud), rack.bmc(), rack.name()

    def images() -> list[str]:
        return [each.id for each in member.image.images() if name in each.name]

    def says(text: str, times: int = 1) -> bool:
        return rack.run("node", "console", "n", "--log").stdout.count(text) >= times

    before = ""
    for address in ("172.24.5.1", "127.0.0.9"):
        file = rack.file(ASKING.format(name=name, address=address) + bmc)
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        (image,) = images()
        assert image != before
        (server,) = (each for each in member.compute.servers() if name in each.name)
        assert server.image.id == image
        rack.run("node", "power", "n", "on")
        begins = f"nospoon: boot image for http://{address}:"
        until(partial(says, begins))
        before = image
    rack.run("node", "power", "n", "reset")
    until(partial(says, begins, 2))
    rack.down()
    assert images() == []


OF_TYPES = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud-admin, flavors: [metal.tiny], boot_address: 172.24.5.1}}
networks:
  lan: {{nat: true}}
  any: {{segment: vxlan}}
  leaf: {{segment: vxlan, segment_id: {vni}}}
nodes: [{{name: n, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB], nics: [lan, any, leaf]}}]
"""


@pytest.mark.timeout(600, func_only=True)
def test_networks_are_made_of_the_segments_that_an_administrator_names(
    cloud: OwnCloud, rack: Rack
) -> None:
    admin, bmc, name = connection(cloud, "nospoon-cloud-admin"), rack.bmc(), rack.name()
    before = {each.id for each in admin.network.networks()}
    for vni in (40001, 40002):
        file = rack.file(OF_TYPES.format(name=name, vni=vni) + bmc)
        rack.run("up", file, "--yes")
        assert "Nothing to do" in rack.run("plan", file).stdout
        new = [each for each in admin.network.networks() if each.id not in before]
        assert {each.provider_network_type for each in new} == {"vxlan"}
        assert sum(each.provider_segmentation_id == vni for each in new) == 1
        assert len(new) == 3
    rack.down()
    assert {each.id for each in admin.network.networks()} == before


def test_an_ordinary_project_has_only_the_rights_of_a_member(cloud: OwnCloud) -> None:
    member = connection(cloud)
    with pytest.raises(ForbiddenException):
        member.network.create_network(
            name="vlan", provider_network_type="vlan", provider_physical_network="racks"
        )
    admin = connection(cloud, "nospoon-cloud-admin")
    vlan = admin.network.create_network(
        name="vlan", provider_network_type="vlan", provider_physical_network="racks"
    )
    assert vlan.provider_segmentation_id
    admin.network.delete_network(vlan)


def test_the_host_sees_the_provider_network_and_nothing_else_of_the_cloud(cloud: OwnCloud) -> None:
    assert {LINK, END} <= interfaces()
    assert not INSIDE & interfaces()
    listed = subprocess.run(
        ["ip", "-br", "address", "show", LINK], check=True, capture_output=True, text=True
    ).stdout
    assert listed.split()[2:] == ["172.24.5.1/24"]
    assert stat.S_IMODE(Path(cloud.told["clouds"]).stat().st_mode) == 0o600


def test_what_is_in_the_provider_network_reaches_this_machine_by_tcp(cloud: OwnCloud) -> None:
    member = connection(cloud)
    network = next(member.network.networks(name="public"))
    port = member.network.create_port(network_id=network.id)
    place = f"qdhcp-{network.id}"
    enter = ["nsenter", "--all", f"--target={cloud.first}"]

    def is_served() -> bool:
        listed = ["ip", "netns", "exec", place, "ip", "-br", "address"]
        done = subprocess.run([*enter, *listed], capture_output=True, text=True, check=False)
        return "172.24.5." in done.stdout

    until(is_served)
    with socket.create_server(("172.24.5.1", 0)) as listener:
        listener.settimeout(60)
        script = f"""
import socket
with socket.create_connection(("172.24.5.1", {listener.getsockname()[1]}), timeout=60) as sent:
    sent.sendall(b"x" * 100_000)
"""
        argv = [*enter, "ip", "netns", "exec", place, "python3", "-c", script]
        with subprocess.Popen(argv) as client:
            heard, _ = listener.accept()
            with heard:
                heard.settimeout(60)
                assert sum(map(len, iter(lambda: heard.recv(65536), b""))) == 100_000
        assert client.returncode == 0
    member.network.delete_port(port)


def test_up_finds_it_running(cloud: OwnCloud) -> None:
    assert cloud.rack.json(*UP) == cloud.told
    assert cloud.rack.json("dev", "cloud", "status") == cloud.told


def test_services_that_were_killed_are_shown_and_up_starts_them_again(cloud: OwnCloud) -> None:
    for program in ("mariadbd", "nova-scheduler", "libvirtd"):
        for pid in cloud.pids(program):
            os.kill(pid, signal.SIGKILL)

    def is_seen() -> bool:
        done = cloud.rack.run("dev", "cloud", "status", status=1)
        return all(
            f"{name} ended with status -9" in done.stderr
            for name in ("mariadb", "nova-scheduler", "libvirtd")
        )

    until(is_seen)
    assert cloud.rack.json(*UP) == cloud.told
    cloud.rack.run("dev", "cloud", "status")
    assert list(connection(cloud).compute.servers()) == []


def test_a_cloud_whose_namespaces_ended_is_started_again_with_its_contents(
    cloud: OwnCloud,
) -> None:
    network = connection(cloud).network.create_network(name="kept")
    os.kill(cloud.first, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{cloud.told['pid']}").exists())
    gone = cloud.rack.run("dev", "cloud", "status", status=1)
    assert "no cloud runs" in gone.stderr
    told = cloud.rack.json(*UP)
    assert {**told, "pid": cloud.told["pid"]} == cloud.told
    cloud.told = told
    assert connection(cloud).network.find_network("kept")
    connection(cloud).network.delete_network(network)
