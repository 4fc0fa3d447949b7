"""The way out of a network: from a guest's place on the bridge to a network beyond the host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]


SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], 7000)) as server:
    print("up", flush=True)
    while True:
        guest, (address, _) = server.accept()
        with guest:
            guest.sendall(address.encode())
"""
ASK = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], 7000), timeout=20) as server:
        print(server.recv(100).decode())
except OSError:
    print("unreachable")
"""


def ip(*argv: str) -> str:
    done = subprocess.run(["ip", *argv], text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"ip {argv}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Place:
    """A namespace; `link` is its end outside, whose peer inside is `eth0`."""

    name: str
    link: str

    def plug(self, bridge: str, *, address: str, gateway: str) -> None:
        ip("link", "set", self.link, "master", bridge, "up")
        self.address(address)
        ip("-n", self.name, "route", "add", "default", "via", gateway)

    def address(self, address: str) -> None:
        ip("-n", self.name, "addr", "add", address, "dev", "eth0")

    def python(self, script: str, *argv: str) -> subprocess.Popen[str]:
        start = ["ip", "netns", "exec", self.name, sys.executable, "-c", script, *argv]
        return subprocess.Popen(start, text=True, stdout=subprocess.PIPE)

    def seen_as(self, address: str) -> str:
        """The address from which a server there sees us, "unreachable" if we cannot ask it."""
        asked = self.python(ASK, address)
        answer = asked.communicate(timeout=240)[0].strip()
        assert asked.returncode == 0
        return answer


@pytest.fixture
def places() -> Iterator[list[Place]]:
    """Two namespaces: the guest's, and one beyond the host that knows no way to the guest's."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    word = uuid4().hex[:6]
    made = [Place(f"nst-{word}{end}", f"nst{word}{end}") for end in "ab"]
    for each in made:
        ip("netns", "add", each.name)
        ip("link", "add", each.link, "type", "veth", "peer", "name", "eth0", "netns", each.name)
        ip("-n", each.name, "link", "set", "eth0", "up")
    yield made
    for each in made:
        ip("link", "del", each.link)
        ip("netns", "del", each.name)


@pytest.fixture
def ended() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that end with the test."""
    made: list[subprocess.Popen[str]] = []
    yield made
    for each in made:
        each.kill()
        each.communicate()


def test_guests_get_out_by_nat_only_where_it_is_asked_for(
    shared: Rack, places: list[Place], ended: list[subprocess.Popen[str]]
) -> None:
    guest, beyond = places
    number = uuid4().bytes[0] & 0xFC
    here, there = f"203.0.113.{number | 1}", f"203.0.113.{number | 2}"  # TEST-NET-3, RFC 5737
    ip("addr", "add", f"{here}/30", "dev", beyond.link)
    ip("link", "set", beyond.link, "up")
    beyond.address(f"{there}/30")
    server = beyond.python(SERVE, there)
    ended.append(server)
    assert server.stdout is not None
    assert server.stdout.readline() == "up\n"
    name = shared.name()
    nodes = "nodes: [{count: 1, firmware: bios, memory: 64MiB, disks: [16MiB]}]\n"
    head = f"cluster: {name}\n{shared.bmc()}{nodes}"
    shared.run("up", "--yes", shared.file(head + "networks: {lan: {nat: true}}\n", f"{name}.yaml"))
    (port,) = shared.json("node", "show", f"{name}/node-0")["ports"]
    bridge = port["local_link_connection"]["switch_info"]
    (link,) = json.loads(ip("-json", "-4", "addr", "show", "dev", bridge))
    gateway = link["addr_info"][0]["local"]
    guest.plug(bridge, address=f"{gateway.rpartition('.')[0]}.77/24", gateway=gateway)
    assert guest.seen_as(there) == here
    cidr = f"{gateway.rpartition('.')[0]}.0/24"
    alone = shared.file(head + f"networks: {{lan: {{cidr: {cidr}}}}}\n", f"{name}.yaml")
    assert "nat" in shared.run("plan", alone).stdout
    shared.run("up", "--yes", alone)
    ip("link", "set", guest.link, "master", bridge)
    assert guest.seen_as(there) == "unreachable"
    shared.run("down", "--yes", name)
    rules = subprocess.run(["iptables-save"], text=True, capture_output=True, check=True).stdout
    assert cidr not in rules
