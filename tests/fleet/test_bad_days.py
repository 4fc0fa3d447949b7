"""Bad days of a fleet: what breaks in the middle, the next `up` or `down` brings to its end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.fleet.conftest import FarHost, Farm

from nospoon.testing.libvirtd import wait_until

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(300)]

MANY = """
networks: {provision: {netboot: builtin}}
nodes: [{name: "n{n}", count: 6, firmware: bios, memory: 64MiB, disks: [16MiB, 16MiB]}]
"""


@contextmanager
def under_way(farm: Farm, *command: str) -> Iterator[subprocess.Popen[str]]:
    """The command, when it has told of its first calls: the daemon may be several ahead of it."""
    run = subprocess.Popen(
        ["nospoon", *command], env=farm.rack.environment, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True, cwd=farm.rack.directory,
    )  # fmt: skip
    try:
        assert run.stderr is not None
        next(line for line in run.stderr if line.startswith("[3/"))
        yield run
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()


def ended(run: subprocess.Popen[str]) -> tuple[int, str]:
    said = run.communicate(timeout=240)[1]
    return run.returncode, said


def domains(host: FarHost) -> list[str]:
    return host.run("virsh", "list", "--all", "--name").split()


def assert_whole(farm: Farm, name: str, file: str) -> None:
    """All nodes are there, once, and nothing else is."""
    rack = farm.rack
    assert {(row["state"], row["drift"]) for row in rack.json("status", name)} == {("present", "")}
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
    assert sum(len(domains(host)) for host in farm.hosts.values()) == 6
    assert rack.json("orphans", file) == []


def assert_bare(farm: Farm) -> None:
    for host in farm.hosts.values():
        assert domains(host) == []
        assert host.run("virsh", "pool-list", "--all", "--name").split() == []
        assert host.run("find", "/var/lib/nospoon/pools", "-type", "f") == ""


def test_a_libvirtd_killed_in_the_middle_of_up_is_gone_on_with(farm: Farm) -> None:
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-b"]
    file = farm.file(name, MANY)
    with under_way(farm, "up", "--yes", file) as up:
        host.kill("libvirtd")
        status, said = ended(up)
    host.run("rm", "-f", "/run/libvirt/libvirt-sock")
    host.start()
    assert status == 3, said
    assert "rack-b" in said
    rack.run("up", "--yes", file)
    assert_whole(farm, name, file)
    rack.run("down", "--yes", name)
    assert_bare(farm)


def test_a_network_that_is_cut_while_things_are_removed_leaves_nothing_in_the_end(
    farm: Farm,
) -> None:
    rack, name = farm.rack, farm.rack.name()
    file = farm.file(name, MANY)
    rack.run("up", "--yes", file)
    with under_way(farm, "down", "--yes", name) as down, farm.hosts["rack-b"].cut_off():
        status, said = ended(down)
    assert status == 3, said
    assert "rack-b" in said
    assert {row["cluster"] for row in rack.json("node", "list")} == {name}, "it is not forgotten"
    rack.run("down", "--yes", name)
    assert_bare(farm)
    assert rack.json("orphans", file) == []


def test_after_a_reboot_of_a_host_up_brings_its_networks_back_and_replaces_no_node(
    farm: Farm,
) -> None:
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-b"]
    file = farm.file(name, MANY)
    rack.run("up", "--yes", file)
    (node, *_) = [r["node"] for r in rack.json("status", name) if r["host"] == "rack-b"]
    rack.run("node", "power", f"{name}/{node}", "on")
    bmcs, before = rack.bmcs(name), domains(host)
    wait_until(lambda: "running" in host.run("virsh", "list", "--state-running"))
    host.reboot()
    assert domains(host) == before
    steps = rack.json("plan", file)["steps"]
    kinds = {(each["kind"], each["action"]) for each in steps}
    assert {("network", "change"), ("netboot", "change")} <= kinds
    assert kinds <= {("network", "change"), ("netboot", "change"), ("pool", "change")}
    assert {each["host"] for each in steps} == {"rack-b"}, "of the others nothing"
    rack.run("up", "--yes", file)
    assert_whole(farm, name, file)
    assert "is off" in rack.ipmitool(bmcs[node], "power", "status")
    rack.ipmitool(bmcs[node], "power", "on")
    wait_until(lambda: "running" in host.run("virsh", "list", "--state-running"))


def test_a_disk_that_is_full_is_told_and_up_goes_on_when_there_is_room(farm: Farm) -> None:
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-b"]
    text = f"""
cluster: {name}
{rack.bmc()}
hosts:
  rack-b: {{ssh: rack-b, libvirt: 'qemu+ssh://rack-b/system', overcommit: {{disk: 1000}}}}
{MANY}
"""
    file = rack.file(text, f"{name}.yaml")
    host.run("mount", "-o", "remount,size=1m", "/var/lib/nospoon")
    try:
        partly = rack.run("up", "--yes", file, status=3)
        assert "No space left" in partly.stderr
    finally:
        host.run("mount", "-o", "remount,size=50%", "/var/lib/nospoon")
    rack.run("up", "--yes", file)
    assert_whole(farm, name, file)
