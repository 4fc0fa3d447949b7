"""UDP sockets, in network namespaces of the test's own."""

from __future__ import annotations

import subprocess
import sys

import pytest

NAMESPACES = """
set -e
unshare --net sleep 60 & there=$!
trap 'kill $there' EXIT
until [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add other0 type veth peer name other1
ip link set other1 up && ip link set other0 up
ip link add link0 type veth peer name link1
ip link set link1 netns $there
ip link set link0 up && ip addr add fe80::1/64 dev link0 nodad
ip addr add fe80::3/64 dev link0 nodad && ip addr add 2001:db8::1/64 dev link0 nodad
ip addr add 192.0.2.1/24 brd + dev link0 && ip addr add 192.0.2.3/24 brd + dev link0
in_there="nsenter --net=/proc/$there/ns/net"
$in_there ip link set link1 up && $in_there ip addr add fe80::2/64 dev link1 nodad
$in_there ip addr add 192.0.2.2/24 brd + dev link1
$in_there ip addr add 2001:db8::2/64 dev link1 nodad
"$0" -c "$1" & serves=$!
trap 'kill $there $serves' EXIT
$in_there "$0" -c "$2" "$3" "$4"
"""
SERVES = """
import asyncio
from nospoon.runtime.udp import UdpSocket

async def main():
    served = UdpSocket("::", 9623, lambda data, peer: served.send(data.upper(), peer))
    await asyncio.sleep(60)

asyncio.run(main())
"""
ASKS = """
import socket, sys, time
asked, source = sys.argv[1:]
family = socket.AF_INET6 if ":" in asked else socket.AF_INET
line = socket.socket(family, socket.SOCK_DGRAM)
line.settimeout(1)
line.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
place = (asked, 9623)
if family == socket.AF_INET6:
    place += (0, socket.if_nametoindex("link1"))
if source:
    line.bind((source, 0))
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        line.sendto(b"ping", place)
        answer, sender = line.recvfrom(100)
        print(answer.decode(), sender[0].partition("%")[0])
        break
    except TimeoutError:
        continue
    except OSError:  # nobody serves yet
        time.sleep(0.05)
"""


def answered(asked: str, source: str = "") -> str:
    """What came back, and from where."""
    line = ["unshare", "--net", "sh", "-c", NAMESPACES, sys.executable, SERVES, ASKS, asked, source]
    said = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


@pytest.mark.parametrize("asked", ["fe80::1", "fe80::3", "2001:db8::1", "192.0.2.1", "192.0.2.3"])
def test_a_socket_of_all_addresses_answers_from_the_one_that_was_asked(asked: str) -> None:
    assert answered(asked) == f"PING {asked}"


def test_an_address_of_a_link_is_found_from_an_address_of_everywhere() -> None:
    assert answered("fe80::3", source="2001:db8::2") == "PING fe80::3"


@pytest.mark.parametrize("asked", ["ff02::1", "192.0.2.255"])
def test_who_asks_all_of_a_network_is_answered_from_an_address_of_its_own(asked: str) -> None:
    word, _, source = answered(asked).partition(" ")
    assert word == "PING"
    assert source != asked
