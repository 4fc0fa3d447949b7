"""Bare metal, a VM, a container of liblxc and one of Docker Engine in one file, on a managed
network and on one VLAN: systemd, cloud-init, a role, ssh, logins on consoles, who reaches whom, an
upgrade, its rollback, and nothing left.

The VM runs a small Linux that runs its user data, or Debian, which takes minutes where it is
emulated: make test-kinds.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from tests.docker.conftest import docker_engine, engine  # noqa: F401  (a fixture)
from tests.docker.test_machines import asked
from tests.e2e.test_containers import left, vsctl

from nospoon.dev.images import root
from nospoon.probe import build, cpio
from nospoon.testing.alone import alone
from nospoon.testing.container_root import busybox_root, debian_root
from nospoon.testing.rack import CACHE, PATIENCE, Rack, private_rack
from nospoon.testing.seeded import seeded_image
from nospoon.testing.terminal import terminal

pytestmark = [
    pytest.mark.libvirt,
    pytest.mark.lxc,
    pytest.mark.docker,
    pytest.mark.timeout(2400),
]
needs_time = pytest.mark.skipif(
    not os.environ.get("NOSPOON_KINDS"),
    reason="a Debian in an emulated VM takes minutes: make test-kinds",
)
VLAN = {"metal": "10.91.9.1", "vm": "10.91.9.2", "box": "10.91.9.3", "pod": "10.91.9.4"}
DATA = "/var/lib/data"
"""Where the containers have a volume."""
OTHER = "10.91.9.9"
"""Of a container in another VLAN."""
SAYS = f"""
while :; do
  for each in {" ".join(VLAN.values())} {OTHER}; do
    ping -c 1 -w 1 $each >/dev/null 2>&1 && echo "$me reaches $each."
  done
  sleep 1
done
"""
"""Shell of those that have no ssh."""
LINKS = "ip link set lo up; ip link set eth0 up; ip link set eth1 up"
LEASE = "udhcpc -i eth0 -s /etc/udhcpc -q -t 20"
INIT = f"""\
#!/bin/sh
export PATH=/bin
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sys /sys
echo 1 >/proc/sys/kernel/printk
for pass in 1 2 3; do modprobe -abq $(cat /sys/bus/*/devices/*/modalias) 2>/dev/null; done
{LINKS}
ip addr add {VLAN["metal"]}/24 dev eth1
{LEASE}
me=metal
{SAYS}"""
SMALL_DATA = f"""\
#!/bin/sh
{LINKS}
ip addr add {VLAN["vm"]}/24 dev eth1
{LEASE}
echo "vm has $(ip -4 -o addr show dev eth0)"
me=vm
({SAYS}) &
"""
"""What the VM with the small Linux runs."""
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
- {{name: vm, flavor: instance, kind: vm, memory: {memory}, user_data: {{file: {data_of_vm}}},
   disks: [{{image: '{disk}', size: 4GiB}}], nics: [lan, {{network: one, address: {vm}/24}}]}}
- {{name: box, flavor: instance, host: 'here:lxc', disks: &disks
   [{{image: '{image}', size: 1GiB}}, {{size: 32MiB, mount: {data}}}],
   nics: [lan, {{network: one, address: {box}/24}}]}}
- {{name: pod, flavor: instance, host: 'here:docker', disks: *disks,
   nics: [lan, {{network: one, address: {pod}/24}}]}}
- {{name: apart, flavor: instance, host: 'here:lxc', memory: 32MiB,
   disks: [{{image: busybox.tar, size: 16MiB}}], nics: [other]}}
services:
  web: {{nodes: [{instances}], role: web.sh, health: {{port: 8080, timeout: {seconds}s}}}}
"""
PINGS = """
import socket, struct, sys, time
last, other, *wanted = sys.argv[1:]
icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
icmp.settimeout(0.5)
answered, end = set(), time.monotonic() + 20
def ping(hosts, until):
    for host in hosts:
        try:
            icmp.sendto(struct.pack('!BBHHH', 8, 0, 0xffff - 0x0801, 0, 1), (host, 0))
        except OSError:
            pass
    try:
        while True:
            answer, peer = icmp.recvfrom(100)
            if answer[20:22] == bytes(2):
                answered.add(peer[0])
            if until <= answered:
                return
    except OSError:
        pass
while not answered >= set(wanted) and time.monotonic() < end:
    ping({other, *wanted} - answered, set(wanted))
found = answered | set()
answered.clear()
while last not in answered and time.monotonic() < end:
    ping([other, last], {last})
print('\\n'.join((found | answered) & {other, *wanted}))
"""
"""Python: ping (RFC 792), which the image has not, of all at once. `other` is asked again before
`last` has answered. Open vSwitch in user space, on which the VLANs are, passes no TCP of links
whose checksums the kernel leaves to hardware.
"""
ANSWERS = 'exec python3 -c "$@"'
STATE = "cat /proc/1/comm; systemctl is-system-running --wait"
HAS = 'for each; do if [ -e "$each" ]; then echo yes; else echo no; fi; done'
MAIN = "systemctl show -P MainPID web"
KILLED = f"""
before=$({MAIN})
[ "$before" -gt 0 ]
systemctl kill -s KILL web
until after=$({MAIN}); [ "$after" -gt 0 ] && [ "$after" != "$before" ]; do sleep 0.1; done
echo "$before"; echo "$after"
"""
SKIPPED = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"next"
"""With it, a packed root is another one of the same content (RFC 8878, 3.1.2)."""
USER_DATA = """\
#cloud-config
disable_root: false
chpasswd: {expire: false, users: [{name: root, password: spoon, type: text}]}
"""
ROLE = """\
#!/bin/sh -e
echo "by $(id -un)" >>/srv/set-up
cat >/etc/systemd/system/web.service <<END
[Service]
ExecStart=/usr/bin/python3 -m http.server 8080 --directory /srv
Restart=always
RestartSec=0
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable web.service
"""
RAN = "cat /srv/set-up"


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
        renewed.write_bytes((made.directory / "root.tar.zst").read_bytes() + SKIPPED)
        (made.directory / "busybox.tar").write_bytes(busybox_root())
        more = [cpio.file("init", INIT.encode(), mode=0o755)]
        (made.directory / "more").write_bytes(build.compress(cpio.archive(more)))
        (made.directory / "user-data").write_text(USER_DATA)
        (made.directory / "small-data").write_text(SMALL_DATA)
        (made.directory / "web.sh").write_text(ROLE)
        made.use_own_key()
        yield made


def debian_disk(rack: Rack) -> Path:
    """Made once a machine: it takes minutes."""
    parts = (*root.PACKAGES, *root.KERNEL, *root.HOOKS, root.SETTINGS)
    name = f"vm-root-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}"
    with alone(name):
        if not (CACHE / f"{name}.qcow2").exists():
            rack.run("image", "build", str(CACHE), "--name", name, "--as", "qcow2", seconds=1800)
    return CACHE / f"{name}.qcow2"


def until(condition: Callable[[], bool], what: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.3)


@dataclass(frozen=True)
class Node:
    """One that is reached by ssh. In an emulated VM a login takes seconds: a script does a lot."""

    rack: Rack
    cluster: str
    name: str

    def ran(self, script: str, *argv: str) -> subprocess.CompletedProcess[str]:
        where = ("node", "exec", f"{self.cluster}/{self.name}", "-l", "root", "--")
        return self.rack.attempt(*where, "sh", "-ec", script, "sh", *argv, seconds=300)

    def said(self, script: str, *argv: str) -> list[str]:
        """Its lines."""
        done = self.ran(script, *argv)
        assert done.returncode == 0, (self.name, done)
        return done.stdout.splitlines()

    def is_initialised(self) -> bool:
        return self.ran("cloud-init status --wait").returncode == 0

    def answers(self, others: Iterable[str], *, last: str) -> set[str]:
        """Of these addresses and `OTHER`."""
        return {*self.said(ANSWERS, PINGS, last, OTHER, *others)}

    def address(self) -> str:
        """Its address on the managed network."""
        (line,) = self.said("ip -4 -o addr show dev eth0")
        return line.split()[3].split("/")[0]


def console(rack: Rack, node: str) -> Callable[[], str]:
    """Its log, read where it is: a command for each look would have as much of the processor as an
    emulated guest.
    """
    uuid = rack.json("node", "show", node)["uuid"]
    log = rack.directory / "state" / "consoles" / f"{uuid}.log"
    return lambda: log.read_text(errors="replace") if log.exists() else ""


def expect_systemd(node: Node) -> None:
    until(node.is_initialised, f"cloud-init of {node.name}", 900)
    assert node.said(STATE) == ["systemd", "running"], node.name
    assert node.said(RAN) == ["by root"], "its role, once"


def expect_each_other(nodes: Sequence[Node], silent: Sequence[str]) -> None:
    """On both networks, and no other VLAN. `silent`: nodes without a shell: their consoles say whom
    they reach, again and again, and each reaches all that have answered to it.
    """
    rack, cluster = nodes[0].rack, nodes[0].cluster
    consoles = {each: console(rack, f"{cluster}/{each}") for each in silent}

    def answers(node: str) -> Counter[str]:
        """How often each address answered to it."""
        return Counter(re.findall(rf"^{node} reaches (.*)\.\r?$", consoles[node](), re.MULTILINE))

    for each in silent:
        until(lambda each=each: answers(each).keys() >= {*VLAN.values()}, f"answers to {each}")  # type: ignore[misc]
    leased = set(
        re.findall(r"vm has .* inet ([0-9.]+)/", consoles["vm"]()) if "vm" in silent else ()
    )
    with ThreadPoolExecutor() as pool:
        leased |= {*pool.map(Node.address, nodes)}
        assert len(leased) == len(nodes) + ("vm" in silent)
        addresses = {*VLAN.values(), *leased}
        for seen in pool.map(lambda each: each.answers(addresses, last=VLAN["metal"]), nodes):
            assert seen == addresses
    for each in silent:  # it asks for the other VLAN's between two answers of one
        twice = answers(each)[VLAN["metal"]] + 2
        until(lambda each=each, twice=twice: answers(each)[VLAN["metal"]] >= twice, "more answers")  # type: ignore[misc]
        assert OTHER not in answers(each)


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
    """Of a service that is killed."""
    before, after = node.said(KILLED)
    assert before != after


def expect_restart_by_user(node: Node) -> None:
    """By the user that cloud-init makes, in an image of `nospoon image build`."""
    before = node.said(MAIN)
    given = ("--cluster", node.cluster, "--node", node.name, "-l", "debian")
    node.rack.run("service", "restart", "web", *given)
    assert node.said(MAIN) not in (["0"], before)


def expect_use(node: Node) -> None:
    if node.name == "vm":  # where each login delays its emulated boot
        log = console(node.rack, f"{node.cluster}/vm")
        until(lambda: "finished at" in log(), "a boot", 900)
    expect_systemd(node)
    expect_login(node)
    expect_restart(node)


def give_address(rack: Rack, name: str) -> None:
    """To the container in the other VLAN, which has no cloud-init."""
    (apart,) = (rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/*-apart")
    attach = ["lxc-attach", "-P", str(apart.parent), "-n", apart.name, "--clear-env", "--"]
    for argv in (["addr", "add", f"{OTHER}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
        subprocess.run([*attach, "/bin/busybox", "ip", *argv], check=True, timeout=60)


def expect_kept(nodes: Sequence[Node], *, root: bool) -> None:
    """What is on their volumes, and on their roots or not; and they are where they were."""
    for node in nodes:
        until(node.is_initialised, f"cloud-init of {node.name} again")
        on_root, on_volume = node.said(HAS, "/kept", f"{DATA}/kept")
        assert (on_root, on_volume) == ("yes" if root else "no", "yes")
        assert node.said(RAN) == ["by root"], "once on each root"
        assert node.answers([VLAN["vm"]], last=VLAN["metal"]) == {VLAN["vm"]}


@docker_engine
@pytest.mark.parametrize("has_debian", [False, pytest.param(True, marks=needs_time)])
def test_four_kinds_stand_on_one_vlan_and_on_a_managed_network(
    rack: Rack,
    switch: str,
    engine: Path,  # noqa: F811
    *,
    has_debian: bool,
) -> None:
    name, probe = rack.name(), asyncio.run(build.build(CACHE))
    instances = ["vm", "box", "pod"] if has_debian else ["box", "pod"]
    if has_debian:
        vm = {"memory": "768MiB", "disk": debian_disk(rack), "data_of_vm": "user-data"}
    else:
        shutil.copy(asyncio.run(seeded_image(CACHE)), rack.directory / "small.img")
        vm = {"memory": "320MiB", "disk": "small.img", "data_of_vm": "small-data"}
    key, bmc = (rack.directory / "key.pub").read_text().strip(), rack.bmc()

    def up(image: str) -> None:
        text = FILE.format(
            name=name, bmc=bmc, engine=engine, switch=switch, kernel=probe.kernel,
            initrd=probe.initrd, key=key, image=image, data=DATA, instances=", ".join(instances),
            seconds=round((900 if has_debian else 240) * PATIENCE),
            **VLAN, **vm,
        )  # fmt: skip
        rack.run("up", "--yes", rack.file(text, f"{name}.yaml"), seconds=900)

    up("root.tar.zst")
    rack.run("node", "power", f"{name}/metal", "on")
    give_address(rack, name)
    nodes = [Node(rack, name, each) for each in instances]
    containers = nodes[-2:]
    with ThreadPoolExecutor() as pool:
        [*pool.map(expect_use, nodes)]
    expect_each_other(nodes, ["metal"] if has_debian else ["metal", "vm"])
    if has_debian:
        expect_restart_by_user(nodes[0])
    for node in nodes:
        node.said("touch /kept")
    for node in containers:
        node.said('touch "$1/kept"', DATA)
    up("renewed.tar.zst")
    expect_kept(containers, root=False)
    up("root.tar.zst")
    expect_kept(containers, root=True)
    assert all(node.said(HAS, "/kept") == ["yes"] for node in nodes)

    rack.run("down", "--yes", "--purge", name)
    assert left(rack, name) == []
    assert vsctl("list-ports", switch) == ""
    assert asked(engine, "ps", "-aq") == asked(engine, "images", "-q") == ""
