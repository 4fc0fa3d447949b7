"""Containers on a host that is reached over ssh."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.docker.conftest import Service
from tests.docker.test_machines import asked
from tests.fleet.conftest import Farm

from nospoon.testing.container_root import SAYS, busybox_root
from nospoon.testing.ironic import until

pytestmark = [pytest.mark.libvirt, pytest.mark.lxc, pytest.mark.timeout(300)]

OWN_SYS = """
mkdir -p "$1"
mount --rbind /sys/fs/cgroup "$1"
mount -t sysfs sysfs /sys
mount --rbind "$1" /sys/fs/cgroup
"""
"""liblxc asks /sys which link is a bridge: what is mounted there is of the machine's namespace."""


@pytest.mark.docker
def test_a_container_of_podmans_runs_on_a_host_over_ssh_and_leaves_nothing(farm: Farm) -> None:
    rack, name, far = farm.rack, farm.rack.name(), farm.hosts["rack-b"]
    (rack.directory / "root.tar").write_bytes(busybox_root())
    far.run("sh", "-ec", OWN_SYS, "sh", str(far.place / "cgroups"))
    with closing(Service(enter=far.enter)) as engine:
        text = (
            f"cluster: {name}\n"
            "hosts: {far: {ssh: rack-b, libvirt: 'qemu+ssh://rack-b/system',"
            f" docker: {{socket: {engine.socket}}}}}}}\n"
            "networks: {lan: {netboot: builtin}}\n"
            "nodes: [{name: box, kind: container, memory: 32MiB, nics: lan,"
            " disks: [{image: root.tar, size: 16MiB}]}]\n"
        )
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
        until(lambda: rack.json("node", "show", f"{name}/box")["power"] == "on")
        node = rack.json("node", "show", f"{name}/box")
        assert node["host"] == "far:docker"
        bridge = node["nics"][0].split()[2]
        port = node["ports"][0]["local_link_connection"]["port_id"]
        assert f"master {bridge}" in far.run("ip", "link", "show", "dev", port)

        until(lambda: SAYS in rack.run("node", "console", "--log", f"{name}/box").stdout)
        rack.power(f"{name}/box", "reset")
        rack.power(f"{name}/box", "off")
        until(lambda: rack.json("node", "show", f"{name}/box")["power"] == "off")
        rack.run("down", "--yes", "--purge", name)
        assert asked(engine.socket, "ps", "-aq") == ""
    assert far.run("find", "/var/lib/nospoon", "-type", "f") == ""
    assert far.run("ip", "-o", "link").count("\n") == 1


def test_a_container_runs_on_a_host_over_ssh_and_leaves_nothing(farm: Farm) -> None:
    rack, name = farm.rack, farm.rack.name()
    (rack.directory / "root.tar").write_bytes(busybox_root())
    text = (
        f"cluster: {name}\n"
        "hosts: {far: {ssh: rack-a, libvirt: 'qemu+ssh://rack-a/system', lxc: true}}\n"
        "networks: {lan: {netboot: builtin}}\n"
        "nodes: [{name: box, kind: container, memory: 32MiB, nics: lan,"
        " disks: [{image: root.tar, size: 16MiB}]}]\n"
    )
    far = farm.hosts["rack-a"]
    far.run("sh", "-ec", OWN_SYS, "sh", str(far.place / "cgroups"))
    rack.run("up", "--yes", rack.file(text, f"{name}.yaml"))
    until(lambda: rack.json("node", "show", f"{name}/box")["power"] == "on")
    node = rack.json("node", "show", f"{name}/box")
    assert node["host"] == "far:lxc"
    bridge = node["nics"][0].split()[2]
    port = node["ports"][0]["local_link_connection"]["port_id"]
    assert f"master {bridge}" in far.run("ip", "link", "show", "dev", port)

    until(lambda: SAYS in rack.run("node", "console", "--log", f"{name}/box").stdout)
    rack.power(f"{name}/box", "reset")
    rack.power(f"{name}/box", "off")
    until(lambda: rack.json("node", "show", f"{name}/box")["power"] == "off")
    rack.run("down", "--yes", "--purge", name)
    assert far.run("find", "/var/lib/nospoon", "-type", "f") == ""
    assert far.run("ip", "-o", "link").count("\n") == 1
