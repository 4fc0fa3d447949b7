"""Servers of a real cloud that are VMs: typed at, kept, restored and shelved."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from openstack.connection import Connection
from tests.cloud.test_cloud import connection, partitioned
from tests.cloud.test_rack import DISKS, everything

from nospoon.testing.cloud import OwnCloud
from nospoon.testing.guests import BOOTED, speaking_disk
from nospoon.testing.ironic import until
from nospoon.testing.rack import Rack
from nospoon.testing.terminal import terminal

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:openstack")
FILE = """
cluster: {name}
hosts:
  cloud:
    openstack: {{cloud: nospoon-cloud, flavors: [nowhere, tiny], off: {off}{more}}}
    physnets: {{external: rack}}
networks: {{external: {{physnet: external}}}}
nodes: [{nodes}]
services: {{v: {{environment: {{PAGE: of-a-service}}}}}}
"""
NODE = """
  {name: v, kind: vm, cpus: 1, memory: 128MiB, firmware: bios, image: disk.raw, bmc: ipmi,
   placement: {anti_affinity: flavor}, ssh_keys: KEY me@here, nics: [{network: external}]}"""


@pytest.mark.timeout(400, func_only=True)
def test_a_vm_is_typed_at_and_its_root_is_what_it_was_when_it_was_kept_or_shelved(
    cloud: OwnCloud, rack: Rack, tmp_path: Path
) -> None:
    member, name, bmc = connection(cloud), rack.name(), rack.bmc()
    key = key_of(tmp_path / "key")
    member.compute.create_keypair(name=f"{name} theirs", public_key=key)
    before = everything(member)
    (rack.directory / "disk.raw").write_bytes(partitioned(speaking_disk()))

    def written(off: str, nodes: str = NODE, more: str = "") -> str:
        text = FILE.format(name=name, off=off, nodes=nodes.replace("KEY", key), more=more)
        return rack.file(text + bmc, f"{off}.yaml")

    nowhere = flavor_without_hosts(connection(cloud, "nospoon-cloud-admin"))
    file = written("stop")
    (line,) = [e for e in rack.run("plan", file).stdout.splitlines() if "machine v" in e]
    assert ", flavor nowhere, group anti-affinity-flavor=default, key pair key-" in line
    assert line.endswith("; else with flavor tiny")
    again = rack.run("up", file, "--yes")
    assert "It is created once more with flavor tiny." in again.stdout + again.stderr

    def has_booted() -> bool:
        """Since its last start: Nova begins a log then."""
        output: str = member.compute.get_server_console_output(server)["output"]
        return BOOTED.decode() in output

    def power(command: str) -> None:
        rack.run("node", "power", f"{name}/v", command)
        until(lambda: [each["power"] for each in rack.json("status", name)] == [command])

    (server,) = member.compute.servers(name=f"{name}-v")
    until(has_booted)
    typed_at(rack, name)
    config = Path(f"/proc/{cloud.first}/root{DISKS}/{server.id}/disk.config").read_bytes()
    assert b'\nPAGE="of-a-service"\n' in config, "its guest has that on a CD"
    rack.run("snapshot", "create", name, "first")
    (server,) = member.compute.servers(name=f"{name}-v")
    assert server.status == "ACTIVE", "it was paused for that"
    (image,) = [each for each in member.image.images() if each.name == f"nospoon-{name}-v-first"]
    theirs = member.compute.create_server_image(server, "theirs", wait=True)
    assert "Nothing to do" in rack.run("plan", file).stdout, "an image of others is theirs"
    power("off")
    enter = ["nsenter", "--mount", f"--target={cloud.first}"]
    wipe = ["qemu-io", "-f", "qcow2", "-c", "write -z 0 1M", f"{DISKS}/{server.id}/disk"]
    subprocess.run([*enter, *wipe], check=True, capture_output=True)
    rack.run("snapshot", "restore", "--yes", name, "first")
    until(lambda: member.compute.get_server(server).status == "ACTIVE")
    until(has_booted)
    assert member.compute.get_server(server).image.id == image.id
    assert "Nothing to do" in rack.run("plan", file).stdout
    shelving = written("shelve")
    told = rack.run("plan", shelving).stdout
    assert "a power-off shelves v" in told
    rack.run("up", shelving, "--yes")
    assert member.compute.get_server(server).status == "ACTIVE", "it runs on meanwhile"
    power("off")
    until(lambda: member.compute.get_server(server).status == "SHELVED_OFFLOADED")
    shelving = written(
        "shelve", NODE.replace("{network: external}", "{network: external, model: e1000}")
    )
    assert "~ machine v" in rack.run("plan", shelving).stdout
    rack.run("up", shelving, "--yes")
    until(lambda: member.compute.get_server(server).status == "SHELVED_OFFLOADED")
    power("on")
    assert member.compute.get_server(server).status == "ACTIVE"
    until(has_booted)
    assert "Nothing to do" in rack.run("plan", shelving).stdout
    (pair,) = [each for each in member.compute.keypairs() if each.name == server.key_name]
    assert pair.name.startswith("nospoon_1_")
    assert pair.public_key == key
    (group,) = member.compute.server_groups()
    assert (group.policy, group.member_ids) == ("anti-affinity", [server.id])
    two = ",".join((NODE, NODE.replace("name: v", "name: w")))
    apart = written("shelve", two)
    refused = rack.run("up", apart, "--yes", status=3).stderr
    assert "No valid host was found" in refused, "it has one compute host"
    assert [each.name for each in member.compute.servers()] == [f"{name}-v"]
    soft = written("shelve", two, more=f", server_groups: soft, key_pair: {name} theirs")
    rack.run("up", soft, "--yes")
    servers = {each.id for each in member.compute.servers()}
    assert {each.key_name for each in member.compute.servers()} == {f"{name} theirs"}
    assert everything(member)["key pairs"] == before["key pairs"], "its own is not used any more"
    (group,) = member.compute.server_groups()
    assert (group.policy, {*group.member_ids}) == ("soft-anti-affinity", servers)
    assert len(servers) == 2
    assert "Nothing to do" in rack.run("plan", soft).stdout
    rack.run("down", name, "--yes")
    member.image.delete_image(theirs.id)
    assert everything(member) == before
    member.compute.delete_keypair(f"{name} theirs")
    nowhere()


def flavor_without_hosts(admin: Connection) -> Callable[[], None]:
    """A smaller one than all others, for which Nova finds no host; what is given removes it."""
    made = admin.compute.create_flavor(name="nowhere", vcpus=1, ram=128, disk=1)
    trait = "CUSTOM_NOWHERE"
    admin.placement.put(f"/traits/{trait}", microversion="1.6")
    admin.compute.create_flavor_extra_specs(made, {f"trait:{trait}": "required"})

    def remove() -> None:
        admin.compute.delete_flavor(made)
        admin.placement.delete(f"/traits/{trait}", microversion="1.6")

    return remove


def key_of(path: Path) -> str:
    """The public key of a new one."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def typed_at(rack: Rack, name: str) -> None:
    """By nospoon and by Serial over LAN, through the proxy of the cloud: it resets at `r`."""
    with terminal(["nospoon", "node", "console", f"{name}/v"], env=rack.environment) as screen:
        screen.shows(b"Ctrl-]")
        screen.types(b"r")
        screen.shows(BOOTED)
        screen.types(b"\x1d")
        assert screen.ends() == 0
    bmc = rack.bmcs(name)["v"]
    host, port = bmc["ipmi"].rsplit(":", 1)
    login = ["-H", host, "-p", port, "-U", bmc["username"], "-P", bmc["password"]]
    with terminal(["ipmitool", "-I", "lanplus", *login, "sol", "activate"]) as screen:
        screen.shows(b"SOL Session operational")
        screen.types(b"r")
        screen.shows(BOOTED)
        screen.types(b"\r~.")
        screen.ends()
