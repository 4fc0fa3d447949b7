"""Who is not a host of a network across hosts is not on it, whatever it sends to one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.security.namespaces import Inside, ip

from nospoon.model.resources.networks import Tunnel
from nospoon.providers.libvirt import tunnel_guard
from nospoon.providers.libvirt.tunnels import Tunnels, device_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")
HOST, PEER, OTHER, GUEST = (f"ns{kind}{os.getpid():x}" for kind in "tpoe")
BRIDGE, VNI = "nstunnel0", 0x123456
REACH = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))
except ConnectionRefusedError:
    print("reached")
except OSError:
    print("not there")
"""


FAMILIES = pytest.mark.parametrize("net", ["172.30.12.", "fd00:12::"])
"""Of the addresses of hosts, without their last digit: HOST is 1, PEER 2, and OTHER 3."""


def length(net: str) -> str:
    return "64" if ":" in net else "24"


@pytest.fixture
def hosts() -> Iterator[None]:
    """Three on one wire. One has a bridge with an address."""
    for name in (HOST, PEER, OTHER):
        ip("netns", "add", name)
    try:
        ip("-n", HOST, "link", "add", "wire", "type", "bridge")
        ip("-n", HOST, "link", "set", "wire", "up")
        for number, name in ((2, PEER), (3, OTHER)):
            ends = ("eth0", "netns", name)
            ip("-n", HOST, "link", "add", f"to{number}", "type", "veth", "peer", "name", *ends)
            ip("-n", HOST, "link", "set", f"to{number}", "master", "wire", "up")
            ip("-n", name, "link", "set", "eth0", "up")
        for number, name, device in ((1, HOST, "wire"), (2, PEER, "eth0"), (3, OTHER, "eth0")):
            for net in ("172.30.12.", "fd00:12::"):
                address = f"{net}{number}/{length(net)}"
                ip("-n", name, "addr", "add", address, "dev", device, "nodad")
        ip("-n", HOST, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", HOST, "addr", "add", "172.30.13.1/24", "dev", BRIDGE)
        ip("-n", HOST, "link", "set", BRIDGE, "up")
        yield
    finally:
        for name in (HOST, PEER, OTHER):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def join(name: str, net: str, number: int, *, vni: int = VNI) -> None:
    """A host, or another machine, has an end of a tunnel to HOST."""
    where = ("local", f"{net}{number}", "remote", f"{net}1", "dstport", "4789", "id", str(vni))
    ip("-n", name, "link", "add", "vx", "type", "vxlan", *where)
    ip("-n", name, "addr", "add", f"172.30.13.{number}/24", "dev", "vx")
    ip("-n", name, "link", "set", "vx", "up")


def reached(name: str, seconds: float = 20) -> str:
    words = (REACH, "172.30.13.1", str(seconds))
    argv = ["ip", "netns", "exec", name, sys.executable, "-c", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@FAMILIES
@pytest.mark.usefixtures("hosts")
async def test_a_tunnel_takes_frames_of_its_peers_alone(net: str) -> None:
    """Anyone who reached a host, as guests of networks with NAT do, could be on the network."""
    tunnels = Tunnels(Inside(HOST), "nospoon test")
    tunnel = Tunnel(VNI, f"{net}1", (f"{net}2",))
    for _ in range(2):  # harmless when repeated
        await tunnels.make(BRIDGE, 1400, tunnel)
    join(PEER, net, 2)
    join(OTHER, net, 3)
    assert reached(PEER) == "reached"
    assert reached(OTHER, 2) == "not there"
    await tunnels.make(BRIDGE, 1400, Tunnel(VNI, f"{net}1", (f"{net}2", f"{net}3")))
    assert reached(OTHER) == "reached", "it is a peer now"
    await tunnels.remove(BRIDGE)
    left = await Inside(HOST).run(["sh", "-c", "iptables-save; ip6tables-save"])
    assert tunnel_guard.chain(BRIDGE) not in left.stdout


SEND = f"""
import socket, struct, sys
frame = b"\\xff" * 6 + b"\\2\\0\\0\\0\\0\\7" + b"\\x88\\xb5" + bytes(46)
line = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
if sys.argv[1] == "extended":
    padding = bytes([0, 0, 1, 4, 0, 0, 0, 0])
    line.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_DSTOPTS, padding)
line.sendto(struct.pack("!II", 0x08000000, {VNI} << 8) + frame, ("fd00:12::1", 4789))
"""
"""A frame in a tunnel, behind options of IPv6 or not."""


@pytest.mark.usefixtures("hosts")
async def test_no_frame_comes_behind_an_extension_of_ipv6() -> None:
    await Tunnels(Inside(HOST), "nospoon test").make(
        BRIDGE, 1400, Tunnel(VNI, "fd00:12::1", ("fd00:12::2",))
    )
    counts = []
    for name, how in ((OTHER, "extended"), (OTHER, "plain"), (PEER, "plain")):
        send(name, how)
        counts.append(received())
    assert counts == [0, 0, 1]


def send(name: str, how: str) -> None:
    argv = ["ip", "netns", "exec", name, sys.executable, "-c", SEND, how]
    subprocess.run(argv, check=True)


def received() -> int:
    """Frames that came by the tunnel."""
    argv = ["ip", "-n", HOST, "-s", "-json", "link", "show", "dev", device_of(BRIDGE)]
    shown = subprocess.run(argv, check=True, capture_output=True).stdout
    return int(json.loads(shown)[0]["stats64"]["rx"]["packets"])


BEHIND = """
sysctl -qw net.ipv4.ip_forward=1
iptables -w -t nat -A POSTROUTING -s 172.30.14.0/24 -j MASQUERADE
"""
HEAR = """
import socket
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("", 4789))
print("ready", flush=True)
while True:
    said, (source, _) = heard.recvfrom(100)
    if len(said) == 8:  # with a frame in it, it is the host's own, such as of IPv6 on its bridge
        print(source, int.from_bytes(said[4:7], "big"), flush=True)
"""
SAY = """
import socket, struct, sys
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for vni in map(int, sys.argv[1:]):
    line.sendto(struct.pack("!II", 0x08000000, vni << 8), ("172.30.12.2", 4789))
"""


@pytest.fixture
def guest(hosts: None) -> Iterator[None]:  # noqa: ARG001  (made before)
    """Behind the host, by NAT."""
    ip("netns", "add", GUEST)
    try:
        ip("-n", HOST, "link", "add", "inner", "type", "veth", "peer", "eth0", "netns", GUEST)
        for name, device, end in ((HOST, "inner", 1), (GUEST, "eth0", 2)):
            ip("-n", name, "addr", "add", f"172.30.14.{end}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
        ip("-n", GUEST, "route", "add", "default", "via", "172.30.14.1")
        subprocess.run(["ip", "netns", "exec", HOST, "sh", "-ec", BEHIND], check=True)
        yield
    finally:
        subprocess.run(["ip", "netns", "del", GUEST], check=False, capture_output=True)


def say(*identifiers: int) -> None:
    argv = ["ip", "netns", "exec", GUEST, sys.executable, "-c", SAY, *map(str, identifiers)]
    subprocess.run(argv, check=True)


@pytest.mark.usefixtures("guest")
async def test_a_guest_behind_nat_sends_no_frames_in_the_name_of_its_host() -> None:
    argv = ["ip", "netns", "exec", PEER, sys.executable, "-c", HEAR]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as peer:  # noqa: ASYNC220
        assert peer.stdout is not None
        assert peer.stdout.readline() == "ready\n"
        say(VNI)
        assert peer.stdout.readline() == f"172.30.12.1 {VNI}\n"
        tunnels = Tunnels(Inside(HOST), "nospoon test")
        await tunnels.make(BRIDGE, 1400, Tunnel(VNI, "172.30.12.1", ("172.30.12.2",)))
        say(VNI, VNI + 1)
        assert peer.stdout.readline() == f"172.30.12.1 {VNI + 1}\n"
        peer.kill()
    await tunnels.remove(BRIDGE)
    left = await Inside(HOST).run(["iptables-save"])
    assert tunnel_guard.chain(BRIDGE) not in left.stdout


@FAMILIES
@pytest.mark.usefixtures("hosts")
async def test_tunnels_of_others_at_the_same_port_go_on(net: str) -> None:
    tunnels = Tunnels(Inside(HOST), "nospoon test")
    where = ("local", f"{net}1", "remote", f"{net}3", "dstport", "4789", "id", str(VNI + 1))
    ip("-n", HOST, "link", "add", "foreign", "type", "vxlan", *where)
    ip("-n", HOST, "link", "set", "foreign", "master", BRIDGE, "up")
    join(OTHER, net, 3, vni=VNI + 1)
    await tunnels.make(BRIDGE, 1400, Tunnel(VNI, f"{net}1", (f"{net}2",)))
    assert reached(OTHER) == "reached"
    assert len(tunnel_guard.chain("n" * 15)) <= 28
