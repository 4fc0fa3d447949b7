"""Bare metal, a VM, a container of liblxc and one of Docker Engine in one file, on a managed
network and on one VLAN: systemd, cloud-init, ssh, logins on consoles, who reaches whom, an upgrade,
its rollback, and nothing left.

The VM runs Debian, which takes minutes where it is emulated: make test-kinds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.docker.conftest import docker_engine, engine  # noqa: F401  (a fixture)
from tests.docker.test_machines import asked
from tests.e2e.test_containers import left, vsctl

from nospoon.dev.images import root
from nospoon.probe import build, cpio
from nospoon.testing.container_root import busybox_root, debian_root
from nospoon.testing.rack import CACHE, Rack, private_rack
from nospoon.testing.terminal import terminal

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.lxc,
    pytest.mark.docker,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not os.environ.get("NOSPOON_KINDS"),
        reason="a Debian in an emulated VM takes minutes: make test-kinds",
    ),
]
VLAN = {"metal": "10.91.9.1", "vm": "10.91.9.2", "box": "10.91.9.3", "pod": "10.91.9.4"}
DATA = "/var/lib/data"
"""Where the containers have a volume."""
OTHER = "10.91.9.9"
"""Of a container in another VLAN."""
INIT = f"""\
#!/bin/sh
export PATH=/bin
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
echo 1 >/proc/sys/kernel/printk
for pass in 1 2 3; do modprobe -abq $(cat /sys/bus/*/devices/*/modalias) 2>/dev/null; done
ip link set lo up
ip link set eth0 up
ip link set eth1 up
ip addr add {VLAN["metal"]}/24 dev eth1
udhcpc -i eth0 -s /etc/udhcpc -q -t 20
while :; do
  for each in {" ".join(VLAN.values())} {OTHER}; do
    ping -c 1 -w 1 $each >/dev/null 2>&1 && echo "metal reaches $each."
  done
  sleep 1
done
"""
FILE = """\
cluster: {name}
{bmc}hosts:
  here: {{libvirt: 'qemu:///system', lxc: true, docker: {{socket: {engine}}}}}
networks:
  lan: {{netboot: builtin}}
  one: {{bridge: {switch}, switch: ovs, vlan: 100}}
  other: {{bridge: {switch}, switch: ovs, vlan: 200}}
boot:
  pings: {{kernel: {kernel}, initrd: [{initrd}, more], cmdline: "console=ttyS0,115200 quiet"}}
flavors:
  metal: {{firmware: bios, memory: 256MiB, disks: [16MiB]}}
  instance:
    kind: container
    memory: 512MiB
    ssh_keys: ['{key}']
    user_data: {{file: user-data}}
nodes:
- {{name: metal, flavor: metal, boot: pings, boot_order: [network], nics: [lan, one]}}
- {{name: vm, flavor: instance, kind: vm, memory: 768MiB, disks: [{{image: '{disk}', size: 4GiB}}],
   nics: [lan, {{network: one, address: {vm}/24}}]}}
- {{name: box, flavor: instance, host: 'here:lxc', disks: &disks
   [{{image: '{image}', size: 1GiB}}, {{size: 32MiB, mount: {data}}}],
   nics: [lan, {{network: one, address: {box}/24}}]}}
- {{name: pod, flavor: instance, host: 'here:docker', disks: *disks,
   nics: [lan, {{network: one, address: {pod}/24}}]}}
- {{name: apart, flavor: instance, host: 'here:lxc', memory: 32MiB,
   disks: [{{image: busybox.tar, size: 16MiB}}], nics: [other]}}
services:
  sleeper: {{nodes: [vm, box, pod], unit: sleeper}}
"""
REACHES = """
import socket, struct, sys, time
host, end = sys.argv[1], time.monotonic() + 10
icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
icmp.settimeout(1)
while time.monotonic() < end:
    try:
        icmp.sendto(struct.pack('!BBHHH', 8, 0, 0xffff - 0x0801, 0, 1), (host, 0))
        answer, peer = icmp.recvfrom(100)
        if peer[0] == host and answer[20:22] == bytes(2):
            sys.exit(0)
    except OSError:
        time.sleep(0.2)
sys.exit(1)
"""
"""Python: ping (RFC 792), which the image has not. Open vSwitch in user space, on which the VLANs
are, passes no TCP of links whose checksums the kernel leaves to hardware.
"""
USER_DATA = """\
#cloud-config
disable_root: false
chpasswd: {expire: false, users: [{name: root, password: spoon, type: text}]}
write_files:
- path: /etc/systemd/system/sleeper.service
  content: |
    [Service]
    ExecStart=/bin/sleep infinity
    Restart=always
    RestartSec=0
runcmd: [[systemctl, start, sleeper]]
"""


@pytest.fixture
def switch() -> Iterator[str]:
    name = f"nst{uuid4().hex[:8]}"
    vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
    yield name
    vsctl("del-br", name)


@pytest.fixture
def rack() -> Iterator[Rack]:
    with private_rack() as made:
        shutil.copy(asyncio.run(debian_root(CACHE)), made.directory / "root.tar.zst")
        renewed = made.directory / "renewed.tar.zst"
        skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"next"  # RFC 8878, 3.1.2
        renewed.write_bytes((made.directory / "root.tar.zst").read_bytes() + skipped)
        (made.directory / "busybox.tar").write_bytes(busybox_root())
        more = [cpio.file("init", INIT.encode(), mode=0o755)]
        (made.directory / "more").write_bytes(build.compress(cpio.archive(more)))
        (made.directory / "user-data").write_text(USER_DATA)
        made.use_own_key()
        yield made


def debian_disk(rack: Rack) -> Path:
    """Made once a machine: it takes three minutes."""
    parts = (*root.PACKAGES, *root.KERNEL, *root.HOOKS, root.SETTINGS)
    name = f"vm-root-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    if not (CACHE / f"{name}.qcow2").exists():
        rack.run("image", "build", str(CACHE), "--name", name, "--as", "qcow2", seconds=1800)
    return CACHE / f"{name}.qcow2"


def until(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(1)


@dataclass(frozen=True)
class Node:
    """One that is reached by ssh."""

    rack: Rack
    cluster: str
    name: str

    def ran(self, *argv: str) -> subprocess.CompletedProcess[str]:
        line = ["nospoon", "node", "exec", f"{self.cluster}/{self.name}", "-l", "root", "--"]
        return subprocess.run(
            [*line, *argv], env=self.rack.environment, text=True, capture_output=True, check=False,
            timeout=300,
        )  # fmt: skip

    def said(self, *argv: str) -> str:
        return self.ran(*argv).stdout.strip()

    def is_initialised(self) -> bool:
        return "done" in self.said("cloud-init", "status")

    def reaches(self, address: str) -> bool:
        return self.ran("python3", "-c", REACHES, address).returncode == 0

    def has(self, path: str) -> bool:
        return self.ran("test", "-e", path).returncode == 0

    def address(self) -> str:
        """Its address on the managed network."""
        return self.said("ip", "-4", "-o", "addr", "show", "dev", "eth0").split()[3].split("/")[0]

    def sleeper(self) -> int:
        """The process of its service, 0 for none."""
        return int(self.said("systemctl", "show", "-P", "MainPID", "sleeper") or 0)


def expect_systemd(node: Node) -> None:
    until(node.is_initialised, f"cloud-init of {node.name}", 900)
    assert node.said("cat", "/proc/1/comm") == "systemd"
    assert node.said("systemctl", "is-system-running", "--wait") == "running", node.name


def expect_each_other(nodes: Sequence[Node], console: Callable[[], str]) -> None:
    """On both networks, and no other VLAN. Bare metal has no shell: its console says whom it
    reaches, again and again, and it reaches all that have answered to it.
    """
    until(lambda: all(f"metal reaches {each}." in console() for each in VLAN.values()), "by metal")
    for address in VLAN.values():
        for node in nodes:
            assert node.reaches(address), (node.name, address)
    for address in (node.address() for node in nodes):
        for node in nodes:
            assert node.reaches(address), (node.name, address)
    for node in nodes:
        assert not node.reaches(OTHER), node.name
        assert node.reaches(VLAN["metal"]), node.name
    assert f"metal reaches {OTHER}." not in console()


def expect_login(node: Node) -> None:
    """On its console, which is left as it was found."""
    argv = ["nospoon", "node", "console", f"{node.cluster}/{node.name}"]
    with terminal(argv, env=node.rack.environment) as screen:
        screen.shows(b"Ctrl-]")
        screen.types(b"\r")
        screen.shows(f"{node.name} login:".encode())
        screen.types(b"root\r")
        screen.shows(b"Password:")
        screen.types(b"spoon\r")
        screen.shows(b"# ")
        screen.types(b"echo I am $(id -un) of $(cat /proc/1/comm)\r")
        screen.shows(b"I am root of systemd")
        screen.types(b"exit\r")
        screen.shows(f"{node.name} login:".encode())
        screen.types(b"\x1d")
        assert screen.ends() == 0


def expect_restart(node: Node) -> None:
    before = node.sleeper()
    assert before > 0
    assert node.ran("systemctl", "kill", "-s", "KILL", "sleeper").returncode == 0
    until(lambda: node.sleeper() not in (0, before), f"another sleeper on {node.name}")


def expect_restart_by_user(node: Node) -> None:
    """By the user that cloud-init makes, in an image of `nospoon image build`."""
    before = node.sleeper()
    given = ("--cluster", node.cluster, "--node", node.name, "-l", "debian")
    node.rack.run("service", "restart", "sleeper", *given)
    assert node.sleeper() not in (0, before)


def give_address(rack: Rack, name: str) -> None:
    """To the container in the other VLAN, which has no cloud-init."""
    (apart,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/*-apart")
    attach = ["lxc-attach", "-P", str(apart.parent), "-n", apart.name, "--clear-env", "--"]
    for argv in (["addr", "add", f"{OTHER}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
        subprocess.run([*attach, "/bin/busybox", "ip", *argv], check=True, timeout=60)


@docker_engine
def test_four_kinds_stand_on_one_vlan_and_on_a_managed_network(
    rack: Rack,
    switch: str,
    engine: Path,  # noqa: F811
) -> None:
    name, disk, probe = rack.name(), debian_disk(rack), asyncio.run(build.build(CACHE))
    key, bmc = (rack.directory / "key.pub").read_text().strip(), rack.bmc()

    def up(image: str) -> None:
        text = FILE.format(
            name=name, bmc=bmc, engine=engine, switch=switch, kernel=probe.kernel,
            initrd=probe.initrd, key=key, disk=disk, image=image, data=DATA, **VLAN,
        )  # fmt: skip
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"), seconds=900)

    def console() -> str:
        return rack.run("node", "console", "--log", f"{name}/metal").stdout

    up("root.tar.zst")
    rack.run("node", "power", f"{name}/metal", "on")
    give_address(rack, name)
    nodes = [Node(rack, name, each) for each in ("vm", "box", "pod")]
    for node in nodes:
        expect_systemd(node)
    for node in nodes:
        expect_login(node)
    expect_each_other(nodes, console)
    for node in nodes:
        expect_restart(node)

    vm, *containers = nodes
    expect_restart_by_user(vm)
    assert all(node.ran("touch", "/kept").returncode == 0 for node in nodes)
    assert all(node.ran("touch", f"{DATA}/kept").returncode == 0 for node in containers)
    up("renewed.tar.zst")
    for node in containers:
        until(node.is_initialised, f"cloud-init of {node.name} again")
        assert not node.has("/kept")
        assert node.has(f"{DATA}/kept")
        assert node.reaches(VLAN["vm"])
    up("root.tar.zst")
    for node in containers:
        until(node.is_initialised, f"{node.name} as it was")
        assert node.has("/kept")
        assert node.has(f"{DATA}/kept")
        assert node.reaches(VLAN["vm"])
    assert vm.has("/kept")

    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []
    assert vsctl("list-ports", switch) == ""
    assert asked(engine, "ps", "-aq") == asked(engine, "images", "-q") == ""
