"""Nodes as servers of a real cloud, made, powered and booted as a member of an ordinary project."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openstack
import pytest
import sushy
from openstack.connection import Connection

from nospoon.probe.build import build, command_line
from nospoon.testing import guests
from nospoon.testing.cloud import OwnCloud
from nospoon.testing.disks import GREETING, uefi_disk
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.netboot import served
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.redfish import System

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
HOST = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [metal.tiny], boot_address: 172.24.5.1}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}, routed: {{nat: true}}, provision: {{}}}}
nodes:
  - {{name: b, cpus: 1, memory: 512MiB, firmware: bios, disks: [1GiB],
     nics: [{{network: routed}}, {{network: provision}}]}}
  - {{name: u, cpus: 1, memory: 512MiB, firmware: uefi, disks: [1GiB],
     nics: [{{network: external}}, {{network: provision}}]}}
"""
DISKS = "/run/cloud/nova/instances"
"""Where servers' disks are, inside the cloud."""


def connection(cloud: OwnCloud) -> Connection:
    return openstack.connect(
        load_yaml_config=False, load_envvars=False, **cloud.login("nospoon-cloud")
    )


def everything(member: Connection) -> dict[str, list[str]]:
    """What the project has, by kind; ports of Neutron's own DHCP apart."""
    owner = "network:dhcp"
    return {
        "servers": sorted(each.id for each in member.compute.servers()),
        "ports": sorted(p.id for p in member.network.ports() if p.device_owner != owner),
        "networks": sorted(each.id for each in member.network.networks()),
        "subnets": sorted(each.id for each in member.network.subnets()),
        "routers": sorted(each.id for each in member.network.routers()),
        "trunks": sorted(each.id for each in member.network.trunks()),
        "images": sorted(each.id for each in member.image.images()),
        "server groups": sorted(each.id for each in member.compute.server_groups()),
        "key pairs": sorted(each.name for each in member.compute.keypairs()),
        "volumes": volumes(member),
    }


def volumes(member: Connection) -> list[str]:
    """In a cloud without Cinder none."""
    if not member.has_service("block-storage"):
        return []
    return sorted(each.id for each in member.block_storage.volumes())


@contextmanager
def system_of(bmc: dict[str, str]) -> Iterator[sushy.resources.system.system.System]:
    """A node's System, as sushy has it. Its session ends here."""
    place = urlsplit(bmc["redfish"])
    with sushy.auth.SessionOrBasicAuth(username=bmc["username"], password=bmc["password"]) as login:
        root = sushy.Sushy(f"{place.scheme}://{place.netloc}", auth=login, verify=False)
        yield root.get_system(place.path)


@pytest.mark.timeout(900, func_only=True)
def test_nodes_are_servers_that_boot_what_their_bmcs_say(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member, name = connection(cloud), rack.name()
    before = everything(member)
    file = rack.file(HOST.format(name=name) + rack.bmc())
    plan = rack.run("plan", file).stdout
    assert "flavor metal.tiny" in plan
    assert "asks at http://172.24.5.1:" in plan
    rack.run("up", file, "--yes")
    assert "Nothing to do" in rack.run("plan", file).stdout
    servers = {each.name: each for each in member.compute.servers(name=f"{name}-")}
    assert {each.status for each in servers.values()} == {"SHUTOFF"}
    server = servers[f"{name}-b"]
    (port,) = [p for p in member.network.ports(device_id=server.id) if not p.fixed_ips]
    assert not port.is_port_security_enabled

    verdicts = rack.json("verify", file)
    assert [(each["verdict"], each["nics"]) for each in verdicts] == [("as declared", 2)] * 2
    bmc = rack.bmcs(name)["b"]
    guid = rack.ipmitool(bmc, "mc", "guid").lower().replace("-", "")
    assert server.id.replace("-", "") in guid

    overwrite_disk(cloud, server.id)
    uefi = servers[f"{name}-u"].id
    overwrite_disk(cloud, uefi, uefi_disk(tmp_path / "uefi.raw").read_bytes())
    rack.ipmitool(bmc, "power", "on")
    with system_of(rack.bmcs(name)["u"]) as system:
        system.reset_system(sushy.ResetType.ON)
    until(lambda: BOOTED.decode() in rack.run("node", "console", "b", "--log").stdout)
    until(lambda: GREETING.decode() in rack.run("node", "console", "u", "--log").stdout)
    until(lambda: "is on" in rack.ipmitool(bmc, "power", "status"))
    member.compute.stop_server(server.id)  # somebody else does
    until(lambda: "is off" in rack.ipmitool(bmc, "power", "status"))
    rack.power(f"{name}/u", "off")
    boots_a_medium(rack, name, tmp_path)
    console = rack.run("node", "console", "b", "--log").stdout
    assert console.count("nospoon: boot image for") >= 3, "of three boots"
    assert "something of this console is missing" not in console

    rack.run("down", name, "--yes")
    assert everything(member) == before


def boots_a_medium(rack: Rack, name: str, place: Path) -> None:
    """Both nodes boot the Linux of an ISO that was inserted over Redfish, once."""
    probe = asyncio.run(build(CACHE))
    cmdline = command_line(probe.arch, after="shell")
    disc = asyncio.run(guests.linux_cd(place, probe.kernel, probe.initrd, cmdline=cmdline))
    bmcs = rack.bmcs(name)
    systems = {node: System(bmc) for node, bmc in bmcs.items()}
    before = {node: hellos(rack, node) for node in bmcs}
    with served(disc.parent, "127.0.0.1") as url:
        for system in systems.values():
            media = "/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia"
            system.ask("POST", media, {"Image": f"{url}/{disc.name}"})
        for node, system in systems.items():
            until(lambda: system.ask("GET", "/VirtualMedia/Cd")["Inserted"])  # noqa: B023
            once = {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}
            system.ask("PATCH", "", {"Boot": once})
            rack.ipmitool(bmcs[node], "power", "on")
    for node, system in systems.items():
        until(partial(more_hellos, rack, node, before[node]))
        assert "nospoon: boot cdrom" in rack.run("node", "console", node, "--log").stdout
        boot = system.ask("GET", "")["Boot"]
        assert boot["BootSourceOverrideEnabled"] == "Disabled", "it was for one boot"


def hellos(rack: Rack, node: str) -> int:
    return rack.run("node", "console", node, "--log").stdout.count("nospoon-probe: hello")


def more_hellos(rack: Rack, node: str, before: int) -> bool:
    return hellos(rack, node) > before


def overwrite_disk(cloud: OwnCloud, server: str, content: bytes = speaking_disk()) -> None:
    """As a deployment does: the disk of a server that is off begins with this."""
    state = Path(cloud.told["clouds"]).parent / "nova"
    (state / "written.raw").write_bytes(content)
    enter = ["nsenter", "--mount", f"--target={cloud.first}"]
    convert = ["qemu-img", "convert", "-n", "-f", "raw", "-O", "qcow2"]
    files = ["/run/cloud/nova/written.raw", f"{DISKS}/{server}/disk.eph0"]
    subprocess.run([*enter, *convert, *files], check=True, capture_output=True)
    (state / "written.raw").unlink()


def test_what_a_cloud_cannot_do_is_refused_with_numbers(cloud: OwnCloud, rack: Rack) -> None:
    del cloud
    text = HOST.format(name=rack.name()) + rack.bmc()
    refusals: dict[str, Any] = {
        "cpus: 1,": ("cpus: 64,", "no flavor has 64 CPUs"),
        "172.24.5.1": (
            "172.24.5.1, external_network: none",
            "does not see `external_network` none",
        ),
        "external: rack": ("external: nowhere", "has no network nowhere that its project sees"),
        "provision: {}": (
            "provision: {provider: racks, vlan: 101}",
            "its project may not see physical networks",
        ),
        "flavors: [metal.tiny]": ("flavors: [none]", "has no flavor none"),
        "{name: b,": ("{count: 99,", "the quota of its project leaves"),
        "nics: [{network: external}, ": ("nics: [", "leads nowhere"),
    }
    for old, (new, said) in refusals.items():
        assert old in text
        refused = rack.run("plan", rack.file(text.replace(old, new)), status=1)
        assert said in refused.stderr, refused.stderr
