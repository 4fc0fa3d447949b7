"""Frames that a bridge does not forward reach its host no more than others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest
from tests.security.namespaces import Inside, ip

from nospoon.model.resources.networks import Link
from nospoon.providers.libvirt import reserved_frames
from nospoon.providers.libvirt.host_guard import HostGuard

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")
HOST, GUEST = (f"ns{kind}{os.getpid():x}" for kind in "rq")
BRIDGE, TAP = "nsreserved0", "nstap0"
LINK = Link(BRIDGE, "172.30.9.1/24", host_ports=())
HEAR = """
import select, socket
heard = []
for place in (("192.0.2.2", 623), ("172.30.9.1", 69)):
    heard.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    heard[-1].bind(place)
print("ready", flush=True)
while True:
    # what came before the last datagram is there when that is
    print(select.select(heard, [], [])[0][0].recv(100).decode(), flush=True)
"""
SEND = """
import socket, struct, sys
line = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
line.bind(("eth0", 0))
own, bridge = line.getsockname()[4], bytes.fromhex(sys.argv[1].replace(":", ""))

def sum_of(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)

def datagram(to, port, text):
    told = struct.pack("!HHHH", 7777, port, 8 + len(text), 0) + text
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(told), 1, 0, 64, 17, 0)
    head += socket.inet_aton("172.30.9.2") + socket.inet_aton(to)
    return b"\\x08\\x00" + head[:10] + sum_of(head) + head[12:] + told

def asked(number):
    arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + own + bytes([172, 30, 9, 200 + number])
    return b"\\x08\\x06" + arp + bytes(6) + socket.inet_aton("172.30.9.1")

def router():
    here, all_ = (socket.inet_pton(socket.AF_INET6, each) for each in ("fe80::1", "ff02::1"))
    told = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
    signed = here + all_ + struct.pack("!II", len(told), 58) + told
    told = told[:2] + sum_of(signed) + told[4:]
    return b"\\x86\\xdd" + struct.pack("!IHBB", 6 << 28, len(told), 58, 255) + here + all_ + told

for number in range(16):
    to = bytes.fromhex("0180c20000") + bytes([number])
    for each in (datagram("192.0.2.2", 623, b"%02x" % number), asked(number), router()):
        line.send(to + own + each)
line.send(bridge + own + datagram("172.30.9.1", 69, b"last"))
"""
"""What a guest sends to each of the addresses: to another address of its host than the bridge's, a
question of ARP from a made-up one, and that it is a router of IPv6. TFTP is last, which it may ask.
"""


@pytest.fixture
def host() -> Iterator[IO[str]]:
    """A host with a bridge and another network, and its guest; what it hears."""
    for name in (HOST, GUEST):
        ip("netns", "add", name)
    try:
        ip("-n", HOST, "link", "set", "lo", "up")
        ip("-n", HOST, "addr", "add", "192.0.2.2/32", "dev", "lo")
        ip("-n", HOST, "link", "add", BRIDGE, "type", "bridge")
        ip("-n", HOST, "addr", "add", "172.30.9.1/24", "dev", BRIDGE)
        veth = ("type", "veth", "peer", "name", "eth0", "netns", GUEST)
        ip("-n", HOST, "link", "add", TAP, *veth)
        ip("-n", HOST, "link", "set", TAP, "master", BRIDGE, "up")
        off = "echo 1 >/proc/sys/net/ipv6/conf/$0/disable_ipv6"  # as libvirt makes bridges
        subprocess.run(["ip", "netns", "exec", HOST, "sh", "-ec", off, BRIDGE], check=True)
        ip("-n", HOST, "link", "set", BRIDGE, "up")
        ip("-n", GUEST, "addr", "add", "172.30.9.2/24", "dev", "eth0")
        ip("-n", GUEST, "link", "set", "eth0", "up")
        argv = ["ip", "netns", "exec", HOST, sys.executable, "-c", HEAR]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield server.stdout
            server.kill()
    finally:
        for name in (HOST, GUEST):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


async def heard(host: IO[str]) -> list[str]:
    """What the host hears of all that the guest sends."""
    shown = await Inside(HOST).run(["cat", f"/sys/class/net/{BRIDGE}/address"])
    await Inside(GUEST).run([sys.executable, "-c", SEND, shown.stdout.strip()])
    lines = [host.readline().strip()]
    while lines[-1] != "last":
        lines.append(host.readline().strip())
    return lines


async def shown(*what: str) -> str:
    return (await Inside(HOST).run(["ip", *what])).stdout


async def test_frames_that_a_bridge_keeps_to_itself_reach_no_port_of_it(host: IO[str]) -> None:
    """By its tap a guest spoke to any port of UDP of its host, and became its router of IPv6."""
    await HostGuard(Inside(HOST), "nospoon test").make(LINK)
    assert await heard(host) != ["last"], "as Linux has bridges"
    assert "172.30.9.202" in await shown("neigh", "show", "dev", TAP)
    await Inside(HOST).run(["ip", "neigh", "flush", "all"])
    for _ in range(2):  # harmless when repeated
        await reserved_frames.keep_off_ports(Inside(HOST), BRIDGE)
    assert await heard(host) == ["last"]
    assert "172.30.9.2" not in await shown("neigh", "show", "dev", TAP)
    for _ in range(2):
        await reserved_frames.forget(Inside(HOST), BRIDGE)
    left = await Inside(HOST).run(["ebtables", "-t", "filter", "-L"])
    assert BRIDGE not in left.stdout


async def test_a_guest_is_no_router_of_its_host(host: IO[str]) -> None:
    await reserved_frames.keep_off_ports(Inside(HOST), BRIDGE)
    await HostGuard(Inside(HOST), "nospoon test").make(LINK)
    assert await heard(host) == ["last"]
    assert await shown("-6", "route", "show", "default") == ""


@pytest.mark.usefixtures("host")
async def test_bridges_of_earlier_versions_are_known_where_they_are() -> None:
    """The daemon may see the /sys of a hypervisor that is in another network namespace."""
    both = [BRIDGE, "nsreserved1"]
    assert await reserved_frames.open_bridges(Inside(HOST), both) == {BRIDGE}
    assert await reserved_frames.open_bridges(Inside(GUEST), both) == frozenset()
    await reserved_frames.keep_off_ports(Inside(HOST), BRIDGE)
    assert await reserved_frames.open_bridges(Inside(HOST), both) == frozenset()
