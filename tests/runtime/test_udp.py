"""UDP sockets, in network namespaces of the test's own."""

from __future__ import annotations

import subprocess
import sys

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
in_there="nsenter --net=/proc/$there/ns/net"
$in_there ip link set link1 up && $in_there ip addr add fe80::2/64 dev link1 nodad
"$0" -c "$1" & serves=$!
trap 'kill $there $serves' EXIT
$in_there "$0" -c "$2"
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
import socket, time
line = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
line.settimeout(1)
line.connect(("fe80::1", 9623, 0, socket.if_nametoindex("link1")))
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        line.send(b"ping")
        print(line.recv(100).decode())
        break
    except TimeoutError:
        continue
    except OSError:  # nobody serves yet
        time.sleep(0.05)
"""


def test_who_asks_from_an_address_of_a_link_is_answered_there() -> None:
    line = ["unshare", "--net", "sh", "-c", NAMESPACES, sys.executable, SERVES, ASKS]
    told = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert told.stdout == "PING\n", told.stderr
