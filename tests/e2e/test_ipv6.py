"""Networks of IPv6: machines find addresses, reach one another, and get out where they may."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.e2e.test_nat import SERVE, Place, ended, ip, places  # noqa: F401

from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]

ASK = """
import socket, sys, time
for _ in range(20):
    try:
        with socket.create_connection((sys.argv[1], 7000), timeout=1) as server:
            print(server.recv(100).decode())
        break
    except OSError:
        time.sleep(0.1)
else:
    print("unreachable")
"""
SERVE6 = SERVE.replace("7000)", "7000), family=socket.AF_INET6").replace(
    "address, _", "address, *_"
)


def prefix() -> str:
    """Three groups of a unique local network (RFC 4193), none with a zero in front (RFC 5952)."""
    word = uuid4().hex
    return f"fd{word[:2]}:1{word[2:5]}:1{word[5:8]}"


def address_of(place: Place, network: str) -> str:
    """What a machine there made of the router's advertisement."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        (link,) = json.loads(ip("-n", place.name, "-json", "-6", "addr", "show", "dev", "eth0"))
        for each in link["addr_info"]:
            if each["local"].startswith(network) and not each.get("tentative"):
                return str(each["local"])
        time.sleep(0.2)
    raise AssertionError(f"{place.name} found no address in {network}")


def seen_as(place: Place, address: str) -> str:
    asked = place.python(ASK, address)
    return asked.communicate(timeout=240)[0].strip()


@pytest.fixture
def third() -> Iterator[Place]:
    """Another guest's namespace."""
    word = uuid4().hex[:6]
    made = Place(f"nst-{word}c", f"nst{word}c")
    ip("netns", "add", made.name)
    ip("link", "add", made.link, "type", "veth", "peer", "name", "eth0", "netns", made.name)
    ip("-n", made.name, "link", "set", "eth0", "up")
    yield made
    ip("link", "del", made.link)
    ip("netns", "del", made.name)


def test_guests_find_addresses_reach_one_another_and_get_out_where_they_may(
    shared: Rack,
    places: list[Place],  # noqa: F811
    third: Place,
    ended: list[subprocess.Popen[str]],  # noqa: F811
) -> None:
    guest, beyond = places
    group = prefix()
    here, there = f"{group}:b::1", f"{group}:b::2"
    ip("addr", "add", f"{here}/64", "dev", beyond.link, "nodad")
    ip("link", "set", beyond.link, "up")
    ip("-n", beyond.name, "addr", "add", f"{there}/64", "dev", "eth0", "nodad")
    name = shared.name()
    nodes = "nodes: [{count: 1, memory: 320MiB, disks: [16MiB]}]\n"
    head = f"cluster: {name}\n{shared.bmc()}{nodes}"

    def up(more: str) -> None:
        network = f"{{cidr: [198.51.100.192/26, '{group}:a::/64'], netboot: builtin{more}}}"
        file = shared.file(f"{head}networks: {{lan: {network}}}\n", f"{name}.yaml")
        shared.run("up", "--yes", file)
        assert shared.run("plan", "--detailed-exitcode", file).returncode == 0

    up(", nat: true")
    (port,) = shared.json("node", "show", f"{name}/node-0")["ports"]
    bridge = port["local_link_connection"]["switch_info"]
    for each in (guest, third):
        ip("link", "set", each.link, "master", bridge, "up")
    found = {each.name: address_of(each, f"{group}:a:") for each in (guest, third)}
    for place, address in ((beyond, there), (third, found[third.name])):
        server = place.python(SERVE6, address)
        ended.append(server)
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
    assert seen_as(guest, found[third.name]) == found[guest.name], "the same network"
    assert seen_as(guest, there) == here, "out, from the host's address"
    up("")
    for each in (guest, third):
        ip("link", "set", each.link, "master", bridge)
    assert seen_as(guest, found[third.name]) == found[guest.name]
    assert seen_as(guest, there) == "unreachable"
    shared.run("down", "--yes", name)
    rules = subprocess.run(["ip6tables-save"], text=True, capture_output=True, check=True).stdout
    assert f"{group}:a:" not in rules


@pytest.mark.boots
def test_uefi_boots_over_ipv6_alone_and_the_probe_tells_its_address(shared: Rack) -> None:
    name, group = shared.name(), prefix()
    network = f"networks: {{lan: {{cidr: '{group}:a::/64', netboot: builtin}}}}\n"
    nodes = "nodes: [{name: n, memory: 320MiB, disks: [16MiB]}]\n"
    file = shared.file(f"cluster: {name}\n{shared.bmc()}{network}{nodes}", f"{name}.yaml")
    shared.run("up", "--yes", file)
    (row,) = shared.json("verify", name)
    assert row["verdict"] == "as declared"
    assert row["ipv6"].startswith(f"{group}:a:")
