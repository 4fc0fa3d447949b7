"""Guests of an isolated network reach what nospoon serves on the host's address, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from tests.security.namespaces import Inside, ip

from nospoon.model.resources.networks import Link
from nospoon.providers.libvirt.host_guard import HostGuard, chain, rules
from nospoon.runtime.process import Finished

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces")
OPEN, SHUT, IRONIC = 8069, 9999, 6385
LISTEN = f"""
import socket, sys
kept = [socket.create_server(("", port)) for port in ({OPEN}, {SHUT}, {IRONIC})]
six = [socket.create_server(("::", port), family=socket.AF_INET6) for port in (1{OPEN}, 1{SHUT})]
print("ready", flush=True)
sys.stdin.read()
"""
ASK = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])).close()
    print("reached")
except OSError:
    print("refused")
"""
HOST, GUEST, INNER = (f"ns{kind}{os.getpid():x}" for kind in "hgc")
BRIDGE = "nsguard0"
LINK = Link(BRIDGE, "172.30.9.1/24", host_ports=(OPEN,), address6="fd00:9::1/64")


@pytest.fixture
def host() -> Iterator[None]:
    """A namespace that is a host with servers, and one that is its guest."""
    for name in (HOST, GUEST):
        ip("netns", "add", name)
    try:
        ip(
            "-n",
            HOST,
            "link",
            "add",
            BRIDGE,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            GUEST,
        )
        for name, device, end in ((HOST, BRIDGE, 1), (GUEST, "eth0", 2)):
            ip("-n", name, "addr", "add", f"172.30.9.{end}/24", "dev", device)
            ip("-n", name, "addr", "add", f"fd00:9::{end}/64", "dev", device, "nodad")
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
        argv = ["ip", "netns", "exec", HOST, sys.executable, "-c", LISTEN]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield
            server.kill()
    finally:
        for name in (HOST, GUEST):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


PUBLISHED = """
sysctl -qw net.ipv4.ip_forward=1
iptables -w -A FORWARD -i {bridge} -j REJECT
for port in {ports}; do
  iptables -w -t nat -A PREROUTING -p tcp --dport 1$port -m addrtype --dst-type LOCAL \\
    -j DNAT --to-destination 172.30.10.2:$port
done
iptables -w -I FORWARD 1 ! -i inner -o inner -d 172.30.10.2 -p tcp -j ACCEPT
"""
"""Ports of a container, as Docker publishes them, at a host whose rules of libvirt refuse what is
forwarded from the bridge.
"""


@pytest.fixture
def container(host: None) -> Iterator[None]:  # noqa: ARG001  (made before)
    """A namespace behind the host, with the same servers."""
    ip("netns", "add", INNER)
    try:
        ip("-n", HOST, "link", "add", "inner", "type", "veth", "peer", "eth0", "netns", INNER)
        for name, device, end in ((HOST, "inner", 1), (INNER, "eth0", 2)):
            ip("-n", name, "addr", "add", f"172.30.10.{end}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
        for name, gateway in ((INNER, "172.30.10.1"), (GUEST, "172.30.9.1")):
            ip("-n", name, "route", "add", "default", "via", gateway)
        text = PUBLISHED.format(bridge=BRIDGE, ports=f"{OPEN} {SHUT}")
        subprocess.run(["ip", "netns", "exec", HOST, "sh", "-ec", text], check=True)
        argv = ["ip", "netns", "exec", INNER, sys.executable, "-c", LISTEN]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            yield
            server.kill()
    finally:
        subprocess.run(["ip", "netns", "del", INNER], check=False, capture_output=True)


def asked(address: str, port: int, seconds: float = 20) -> str:
    words = (ASK, address, str(port), str(seconds))
    argv = ["ip", "netns", "exec", GUEST, sys.executable, "-c", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.usefixtures("host")
async def test_guests_reach_what_is_opened_and_no_more() -> None:
    guard = HostGuard(Inside(HOST), "nospoon test")
    assert asked("172.30.9.1", SHUT) == "reached"
    assert await guard.lacking([LINK]) == {BRIDGE}
    for _ in range(2):  # harmless when repeated
        await guard.make(LINK)
    assert await guard.lacking([LINK]) == frozenset()
    assert [asked("172.30.9.1", each) for each in (OPEN, SHUT, IRONIC)] == [
        "reached",
        "refused",
        "refused",
    ]
    assert asked("fd00:9::1", 10000 + SHUT) == "refused"
    await guard.make(replace(LINK, host_ports=(OPEN, IRONIC)))
    assert asked("172.30.9.1", IRONIC) == "reached"
    assert asked("172.30.9.1", SHUT) == "refused"
    await guard.remove(BRIDGE)
    await guard.remove(BRIDGE)
    assert asked("172.30.9.1", SHUT) == "reached"
    left = await Inside(HOST).run(["iptables-save"])
    assert chain(BRIDGE) not in left.stdout


SERVE = """
import select, socket, sys
kept = []
for place in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in place else socket.AF_INET
    kept.append(socket.socket(family, socket.SOCK_DGRAM))
    kept[-1].bind((place, 69))
print("ready", flush=True)
while True:
    for each in select.select(kept, [], [])[0]:
        each.sendto(b"a file", each.recvfrom(600)[1])
"""
FETCH = """
import socket, sys
line = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(float(sys.argv[2]))
try:
    line.connect((sys.argv[1], 69))
    line.send(b"ask")
    print(line.recv(600).decode())
except OSError:
    print("refused")
"""


def fetched(address: str, seconds: float = 20) -> str:
    argv = ["ip", "netns", "exec", GUEST, sys.executable, "-c", FETCH, address, str(seconds)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


OTHERS = ("172.30.10.1", "fd00:10::1")


@pytest.fixture
def servers(host: None) -> Iterator[None]:  # noqa: ARG001  (made before)
    """Servers of TFTP at two addresses of the host on the network, and at two others of it."""
    for each in OTHERS:
        ip("-n", HOST, "addr", "add", each, "dev", "lo")
    for gateway in ("172.30.9.1", "fd00:9::1"):
        ip("-n", GUEST, "route", "add", "default", "via", gateway)
    argv = ["ip", "netns", "exec", HOST, sys.executable, "-c", SERVE]
    places = ("172.30.9.1", "fd00:9::1", *OTHERS)
    with subprocess.Popen([*argv, *places], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield
        server.kill()


@pytest.mark.usefixtures("servers")
async def test_guests_reach_no_server_of_tftp_at_another_address_of_the_host() -> None:
    """Such as that of the administrator's Ironic, for the machines of another network."""
    assert [fetched(each) for each in OTHERS] == ["a file", "a file"]
    await HostGuard(Inside(HOST), "nospoon test").make(LINK)
    assert [fetched(each, 2) for each in OTHERS] == ["refused", "refused"]
    assert [fetched(each) for each in ("172.30.9.1", "fd00:9::1")] == ["a file", "a file"]


@pytest.mark.usefixtures("container")
async def test_guests_behind_nat_reach_what_containers_publish_at_no_address_of_the_host() -> None:
    guard = HostGuard(Inside(HOST), "nospoon test")
    await guard.make(replace(LINK, nat=True))
    assert asked("172.30.10.2", SHUT) == "reached"
    assert asked("172.30.9.1", 10000 + SHUT, 2) == "refused"


@pytest.mark.usefixtures("container")
async def test_guests_do_not_reach_what_containers_publish_on_the_host() -> None:
    guard = HostGuard(Inside(HOST), "nospoon test")
    assert asked("172.30.9.1", 10000 + SHUT) == "reached"
    assert asked("172.30.10.2", SHUT) == "reached"
    for _ in range(2):
        await guard.make(replace(LINK, host_ports=(10000 + OPEN,)))
    assert asked("172.30.9.1", 10000 + SHUT, 2) == "refused"
    assert asked("172.30.10.2", SHUT, 2) == "refused"
    assert asked("172.30.10.1", 10000 + OPEN, 2) == "refused"
    assert asked("172.30.9.1", 10000 + OPEN) == "reached"
    await guard.remove(BRIDGE)
    assert asked("172.30.9.1", 10000 + SHUT) == "reached"
    left = await Inside(HOST).run(["iptables-save"])
    assert chain(BRIDGE) not in left.stdout


FORGE = """
import socket, struct, sys
gateway, here, there, other = map(socket.inet_aton, sys.argv[1:])
guest = socket.inet_aton("172.30.9.2")

def sum_of(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF)

def packet(source, to, protocol, payload):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0)
    head += source + to
    return head[:10] + sum_of(head) + head[12:] + payload

def datagram(port, text):
    return struct.pack("!HHHH", port, 69, 8 + len(text), 0) + text

def error(kind, code, what):
    answer = packet(here, there, 17, struct.pack("!HHHH", 69, 4444, 8, 0))
    told = struct.pack("!BBH4s", kind, code, 0, what) + answer
    return told[:2] + sum_of(told) + told[4:]

redirect, too_long = error(5, 1, other), error(3, 4, struct.pack("!HH", 0, 600))
line = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
to = (socket.inet_ntoa(here), 0)
for source in (gateway, guest):
    line.sendto(packet(source, here, 1, redirect), to)
    line.sendto(packet(source, here, 1, too_long), to)
    line.sendto(packet(source, here, 17, datagram(7777, source)), to)
"""
"""What a guest sends: as the router of its host's own network, and as itself, that packets to an
address go by another router and have 600 bytes at most, and a datagram to the port of TFTP.
"""
HEAR = """
import socket
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(("172.30.9.1", 69))
print("ready", flush=True)
while True:
    print(heard.recvfrom(100)[1][0], flush=True)
"""
ROUTED = """
sysctl -qw net.ipv4.ip_forward=0
for each in all lan {bridge}; do
  echo 0 >/proc/sys/net/ipv4/conf/$each/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/$each/accept_redirects
done
"""


@pytest.fixture
def routed(host: None) -> Iterator[IO[str]]:  # noqa: ARG001  (made before)
    """The host has a network of its own, with two routers, as Linux has it without settings."""
    ip("-n", HOST, "link", "add", "lan", "type", "bridge")
    ip("-n", HOST, "addr", "add", "192.0.2.2/24", "dev", "lan")
    ip("-n", HOST, "link", "set", "lan", "up")
    ip("-n", HOST, "route", "add", "default", "via", "192.0.2.1")
    neighbor = ("192.0.2.99", "lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", "lan")
    ip("-n", HOST, "neigh", "add", *neighbor)
    script = ROUTED.format(bridge=BRIDGE)
    subprocess.run(["ip", "netns", "exec", HOST, "sh", "-ec", script], check=True)
    argv = ["ip", "netns", "exec", HOST, sys.executable, "-c", HEAR]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield server.stdout
        server.kill()


def forge(there: str) -> None:
    """About packets to that address."""
    words = ("192.0.2.1", "172.30.9.1", there, "192.0.2.99")
    argv = ["ip", "netns", "exec", GUEST, sys.executable, "-c", FORGE, *words]
    subprocess.run(argv, check=True)


def way_to(there: str) -> tuple[str, bool]:
    """The router, and whether packets are to be short."""
    argv = ["ip", "-n", HOST, "route", "get", there]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return said.split()[2], "mtu 600" in said


@pytest.mark.parametrize("host_ports", [None, (OPEN,)])
async def test_a_guest_is_answered_as_itself_alone_and_redirects_nothing(
    routed: IO[str], host_ports: tuple[int, ...] | None
) -> None:
    """It made its host send what goes elsewhere by another machine of the host's own network, and
    answer whom it liked there.
    """
    guard = HostGuard(Inside(HOST), "nospoon test")
    forge("198.51.100.1")
    assert [routed.readline() for _ in range(2)] == ["192.0.2.1\n", "172.30.9.2\n"]
    assert way_to("198.51.100.1") == ("192.0.2.99", True)
    for _ in range(2):  # harmless when repeated
        await guard.make(replace(LINK, host_ports=host_ports))
    forge("198.51.100.2")
    assert routed.readline() == "172.30.9.2\n"
    assert way_to("198.51.100.2") == ("192.0.2.1", host_ports is None)
    await guard.remove(BRIDGE)
    forge("198.51.100.3")
    assert routed.readline() == "192.0.2.1\n"
    left = await Inside(HOST).run(["sh", "-c", "iptables-save; ip6tables-save"])
    assert BRIDGE not in left.stdout


SEEN = "-d 172.30.10.9 -m conntrack --ctstate UNTRACKED"
SEND = """
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("172.30.10.9", 7))
"""


async def unfollowed() -> int:
    """Packets so far, of one more that a guest sends to no address of the host."""
    await Inside(GUEST).run([sys.executable, "-c", SEND])
    assert asked("172.30.9.1", OPEN) == "reached"
    said = await Inside(HOST).run(["iptables", "-t", "mangle", "-L", "PREROUTING", "-nvx"])
    (line,) = (line for line in said.stdout.splitlines() if "172.30.10.9" in line)
    return int(line.split()[0])


@pytest.mark.usefixtures("host")
async def test_of_an_isolated_network_the_host_follows_no_connections_but_its_own() -> None:
    """A guest that said both sides of made-up ones filled the host's table, for five days."""
    guard = HostGuard(Inside(HOST), "nospoon test")
    ip("-n", GUEST, "route", "add", "default", "via", "172.30.9.1")
    await Inside(HOST).run(["sh", "-c", f"iptables -t mangle -A PREROUTING {SEEN}"])
    assert await unfollowed() == 0
    for host_ports in (None, (OPEN,), (OPEN,)):  # harmless when repeated
        await guard.make(replace(LINK, host_ports=host_ports))
    assert await unfollowed() == 1
    await guard.make(replace(LINK, nat=True))
    assert await unfollowed() == 1
    await guard.make(LINK)
    await guard.remove(BRIDGE)
    assert await unfollowed() == 1
    left = await Inside(HOST).run(["sh", "-c", "iptables-save; ip6tables-save"])
    assert BRIDGE not in left.stdout


class WithoutMangle(Inside):
    """Its kernel has no such table, and may load none."""

    def __init__(self, directory: Path) -> None:
        super().__init__(HOST)
        self._path = f"{directory}:{os.environ['PATH']}"
        for name in ("iptables", "ip6tables"):
            real, restore = shutil.which(name), shutil.which(f"{name}-restore")
            for tool, text in (
                (name, f'case " $* " in *" mangle "*) exit 3 ;; esac; exec {real} "$@"'),
                (f"{name}-restore", f"sed '/^.mangle/,$d' | {restore} \"$@\"; exit 1"),
            ):
                (directory / tool).write_text(f"#!/bin/sh\n{text}\n")
                (directory / tool).chmod(0o755)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        return await super().run(["env", f"PATH={self._path}", *argv], stdin=stdin, check=check)


@pytest.mark.usefixtures("host")
async def test_a_host_that_lacks_a_table_has_the_rules_of_the_other(tmp_path: Path) -> None:
    guard = HostGuard(WithoutMangle(tmp_path), "nospoon test")
    await guard.make(LINK)
    assert asked("172.30.9.1", SHUT) == "refused"
    assert asked("172.30.9.1", OPEN) == "reached"


def test_the_rules_take_away_and_allow_nothing() -> None:
    for version in (4, 6):
        text = rules(LINK, version)
        assert "ACCEPT" not in text
        assert "-j REJECT\nCOMMIT\n*mangle\n" in text
        assert text.rstrip().endswith("-j DROP\nCOMMIT")
    assert f"-d 172.30.9.1 -p tcp --dport {OPEN} -j RETURN" in rules(LINK, 4)
    assert f"-d fd00:9::1 -p tcp --dport {OPEN} -j RETURN" in rules(LINK, 6)
    assert "-d 172.30.9.1 -p udp --dport 67 " in rules(LINK, 4)
    assert "-d 255.255.255.255 -p udp --dport 67 " in rules(LINK, 4)
    assert "-d ff02::1:2 -p udp --dport 547 " in rules(LINK, 6)
    assert "--dport 547" not in rules(replace(LINK, address6=""), 6)
    assert "--dport 8069" not in rules(replace(LINK, address6=""), 6)
    assert len(chain("n" * 15)) <= 28
