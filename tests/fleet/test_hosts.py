"""A cluster over three hosts that are reached over ssh: placed, booted, read, and gone again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial

import pytest
from tests.fleet.conftest import FarHost, Farm

from nospoon.testing import guests
from nospoon.testing.ironic import until
from nospoon.testing.terminal import terminal

pytestmark = [pytest.mark.libvirt, pytest.mark.timeout(300)]

STRANGER = "02:00:00:00:00:99"
NODES = """
networks: {provision: {netboot: builtin}}
nodes: [{name: "n{n}", count: 3, firmware: bios, memory: 256MiB, disks: [64MiB]}]
"""


@pytest.mark.boots
def test_nodes_on_three_hosts_boot_the_probe_and_leave_nothing(farm: Farm) -> None:
    rack, name = farm.rack, farm.rack.name()
    rack.run("up", "--yes", farm.file(name, NODES))
    rows = rack.json("status", name)
    assert {row["host"] for row in rows} == set(farm.hosts)
    assert {row["verdict"] for row in rack.json("verify", name)} == {"as declared"}
    assert "nospoon-probe" in rack.run("node", "console", "n0", "--log").stdout
    rack.run("down", "--yes", "--purge", name)
    for host in farm.hosts.values():
        assert host.run("find", "/var/lib/nospoon", "-type", "f") == ""
        assert host.run("virsh", "list", "--all", "--name").split() == []
        assert "nospoon" not in host.run("virsh", "net-list", "--all", "--name")
        assert host.run("ip", "-o", "link").count("\n") == 1


def test_hosts_are_checked_and_what_is_missing_is_told_with_its_fix(farm: Farm) -> None:
    name = farm.rack.name()
    rows = farm.rack.json("host", "check", farm.file(name, NODES))
    assert {(row["host"], row["verdict"]) for row in rows if row["what"] == "dnsmasq"} == {
        (host, "ok") for host in farm.hosts
    }
    assert {row["detail"] for row in rows if row["what"] == "CPUs"} == {str(os.cpu_count())}
    lacking = (
        "  lost: {ssh: nowhere.invalid, libvirt: 'qemu+ssh://nowhere.invalid/system'}\n"
        "  bare: {ssh: rack-a, libvirt: 'qemu+ssh://rack-a/system', physnets: {public: br-none}}\n"
    )
    file = farm.rack.file(f"cluster: {name}\nhosts:\n{lacking}nodes: [{{count: 1}}]\n")
    table = farm.rack.run("host", "check", file, status=1).stdout
    assert "there is no interface or bridge br-none" in table
    assert "ssh to nowhere.invalid failed" in table


SERVERS = """
import socket, sys
held = []
for port in map(int, sys.argv[1:]):
    held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    if port == 69:  # so that it may come beside one that has it
        held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held[-1].bind(("0.0.0.0", port))
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def servers_of_others(host: FarHost, *ports: int) -> Iterator[int]:
    """UDP servers of all interfaces there; the pid of their program."""
    argv = [*host.enter, "python3", "-c", SERVERS, *map(str, ports)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as servers:
        assert servers.stdout is not None
        assert servers.stdout.readline() == b"ready\n"
        yield servers.pid
        servers.terminate()


def test_a_plan_finds_servers_of_network_boot_on_hosts_over_ssh(farm: Farm) -> None:
    """`up` would meet them last. What nospoon serves there itself is not in the way."""
    rack, name, (host, *_) = farm.rack, farm.rack.name(), farm.hosts.values()
    networks = "networks: {provision: {netboot: builtin}}\n"

    def file(count: int) -> str:
        nodes = f"nodes: [{{count: {count}, host: {host.name}, memory: 256MiB}}]\n"
        return farm.file(name, networks + nodes)

    with servers_of_others(host, 67, 69) as pid:
        refused = rack.run("plan", file(1), status=1).stderr
    for what in ("DHCP on UDP port 67", "TFTP on UDP port 69"):
        assert f"host {host.name}: cannot serve {what}, which python" in refused
    assert f"(pid {pid}) has there. Stop python" in refused
    assert "netboot: none" in refused
    rack.run("up", "--yes", file(1))
    with servers_of_others(host, 69):
        rack.run("up", "--yes", file(2))
    rack.run("down", "--yes", "--purge", name)


def test_a_host_that_leads_to_another_machine_is_refused(farm: Farm) -> None:
    rack, name = farm.rack, farm.rack.name()

    def file(ssh: str) -> str:
        host = f"hosts: {{far: {{ssh: {ssh}, libvirt: 'qemu+ssh://{ssh}/system'}}}}\n"
        nodes = "networks: {lan: {}}\nnodes: [{firmware: bios, memory: 64MiB, disks: [16MiB]}]\n"
        return rack.file(f"cluster: {name}\n{rack.bmc()}{host}{nodes}", f"{name}.yaml")

    rack.run("up", "--yes", file("rack-a"))
    refused = rack.run("plan", file("rack-b"), status=1).stderr
    assert "by ssh rack-a, and there is still what is the cluster's" in refused


def test_a_lease_of_one_that_left_keeps_nobody_from_the_address(farm: Farm) -> None:
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-a"]
    each = "host: rack-a, firmware: bios, memory: 64MiB, disks: [16MiB]"

    def file(*names: str) -> str:
        nodes = ", ".join(f"{{name: {node}, {each}}}" for node in names)
        return farm.file(name, f"networks: {{lan: {{netboot: builtin}}}}\nnodes: [{nodes}]\n")

    rack.run("up", "--yes", file("n0", "n1"))
    place = host.run("find", "/var/lib/nospoon", "-name", "dnsmasq.conf").strip()
    place = place.removesuffix("/dnsmasq.conf")
    lines = host.run("sh", "-c", f"cat {place}/hosts/*").split()
    ours = {node: mac for mac, _, node in (line.split(",") for line in lines)}
    leases = {mac: f"4102444800 {mac} 10.0.0.9 * *" for mac in (*ours.values(), STRANGER)}
    host.run("sh", "-c", f"printf '%s\\n' '{chr(10).join(leases.values())}' >>{place}/leases")
    one = file("n0")
    rack.run("up", "--yes", one)
    there = host.run("cat", f"{place}/leases")
    assert {mac for mac, lease in leases.items() if lease in there} == {ours["n0"], STRANGER}
    assert rack.run("plan", "--detailed-exitcode", one).returncode == 0, "it is served still"


def test_who_looks_at_a_host_by_another_name_puts_nothing_back(farm: Farm) -> None:
    """`ssh: rack-c` of the file is ssh://rack-c of a URI: a second copy of what is served there."""
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-c"]
    look = ("orphans", "--host", "c=qemu+ssh://rack-c/system")

    (rack.directory / "kernel").write_bytes(b"a kernel")

    def up(count: int, cmdline: str) -> str:
        small = "host: rack-c, firmware: bios, memory: 64MiB, disks: [16MiB], boot: p"
        profile = f"boot: {{p: {{kernel: kernel, cmdline: {cmdline}}}}}\n"
        lan = "networks: {lan: {netboot: builtin}}\n"
        file = farm.file(name, f"{profile}{lan}nodes: [{{count: {count}, {small}}}]\n")
        rack.run("up", "--yes", file)
        return file

    def served(what: str = "hosts") -> list[str]:
        found = host.run("find", "/var/lib/nospoon/netboot", "-path", f"*/{what}/*", "-type", "f")
        return sorted(host.run("cat", *found.split()).split()) if found.strip() else []

    up(1, "one")
    rack.run(*look)
    up(1, "two")
    file = up(2, "two")
    both, scripts = served(), served("tftp/ipxe")
    assert len(both) == 2
    assert ("one" in scripts, scripts.count("two")) == (False, 2)
    rack.run("daemon", "stop")
    rack.run(*look)
    rack.run("node", "boot", f"{name}/node-1", "network")
    assert (served(), served("tftp/ipxe")) == (both, scripts)
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
    rack.run("down", "--yes", name)
    rack.run("daemon", "stop")
    assert rack.json(*look) == []
    until(lambda: served() == [])


def test_a_host_that_is_away_and_returns_loses_nothing(farm: Farm) -> None:
    rack, name = farm.rack, farm.rack.name()
    rack.run("up", "--yes", farm.file(name, NODES))
    bmcs = rack.bmcs(name)
    farm.hosts["rack-b"].stop()
    try:
        rows = {row["node"]: row for row in rack.json("status", name)}
        (away,) = (node for node, row in rows.items() if row["host"] == "rack-b")
        near = next(node for node in bmcs if node != away)
        assert {row["state"] for row in rows.values() if row["host"] != "rack-b"} == {"present"}
        assert rows[away]["state"] == "unknown"
        assert "host rack-b is unreachable" in rack.run("status", name).stderr
        listed = {row["host"]: row["away"] for row in rack.json("host", "list")}
        assert [host for host, away in listed.items() if away] == ["rack-b"]
        assert "is off" in rack.ipmitool(bmcs[near], "power", "status")
        with pytest.raises(AssertionError, match="power"):
            rack.ipmitool(bmcs[away], "power", "on")
        assert_others_are_changed(farm, name, away=away, near=near)
    finally:
        farm.hosts["rack-b"].start()
    deadline = time.monotonic() + 240
    while "unknown" in {row["state"] for row in rack.json("status", name)}:
        assert time.monotonic() < deadline
    until(lambda: answers(farm, bmcs[away]), 240)  # its BMC listens to the host by itself
    assert "is off" in rack.ipmitool(bmcs[away], "power", "status")
    rack.run("up", "--yes", farm.file(name, NODES.replace("64MiB", "128MiB")))
    assert {(row["state"], row["drift"]) for row in rack.json("status", name)} == {("present", "")}


@pytest.mark.timeout(1800)
def test_an_open_console_goes_on_when_its_host_returns(farm: Farm) -> None:
    rack, name, host = farm.rack, farm.rack.name(), farm.hosts["rack-b"]
    (rack.directory / "speaking.img").write_bytes(guests.speaking_disk())
    node = "{name: n0, host: rack-b, firmware: bios, memory: 64MiB, disks: [{image: speaking.img}]}"
    rack.run("up", "--yes", farm.file(name, f"networks: {{lan: {{}}}}\nnodes: [{node}]\n"))

    def is_away() -> bool:
        (row,) = rack.json("status", name)
        return bool(row["state"] == "unknown")

    def boots(command: str) -> bool:
        """Whether the console tells it; it is opened some time after its host came."""
        with contextlib.suppress(AssertionError):
            rack.run("node", "power", f"{name}/n0", command)
            screen.shows(guests.BOOTED, seconds=30)
            return True
        return False

    argv = ["nospoon", "node", "console", f"{name}/n0"]
    with terminal(argv, env=rack.environment) as screen:
        screen.shows(b"Ctrl-]")
        rack.run("node", "power", f"{name}/n0", "on")
        until(partial(boots, "reset"))
        with host.cut_off():
            until(is_away)
        until(partial(boots, "reset"))
        host.kill("libvirtd")
        until(is_away)
        host.start()
        until(partial(boots, "cycle"))
        screen.types(b"r")  # the guest resets itself
        screen.shows(guests.BOOTED)


def answers(farm: Farm, bmc: dict[str, str]) -> bool:
    try:
        farm.rack.ipmitool(bmc, "power", "status")
    except AssertionError:
        return False
    return True


def assert_others_are_changed(farm: Farm, name: str, *, away: str, near: str) -> None:
    """An `up` of all, and of the one that is away, says why it cannot be; of another it goes on."""
    rack, file = farm.rack, farm.file(name, NODES.replace("64MiB", "128MiB"))
    for limits in ((), ("-t", away)):
        refused = rack.run("up", "--yes", *limits, file, status=1).stderr
        assert "host rack-b is unreachable" in refused
    assert "--target NODE" in rack.run("plan", file, status=1).stderr
    rack.run("up", "--yes", "-t", near, file)
    drift = {row["node"]: row["drift"] for row in rack.json("status", name)}
    assert (drift[near], drift[away]) == ("", "")
    (other,) = drift.keys() - {near, away}
    assert "size" in drift[other], "it was not named"
