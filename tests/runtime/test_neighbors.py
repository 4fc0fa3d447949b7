"""How this machine reaches an address, in a network namespace of the test's own."""

from __future__ import annotations

import subprocess
import sys

NETWORK = """
set -e
ip link set lo up
ip link add near0 type veth peer name near1
ip link set near0 up && ip link set near1 up
ip addr add 10.9.0.1/24 dev near0 && ip addr add fd00:9::1/64 dev near0 nodad
ip neigh add 10.9.0.2 lladdr 52:54:00:00:00:02 dev near0 nud permanent
ip neigh add 10.9.0.3 lladdr 52:54:00:00:00:03 dev near0 nud stale
ip neigh add fd00:9::2 lladdr 52:54:00:00:00:02 dev near0 nud permanent
ip neigh add fe80::2 lladdr 52:54:00:00:00:02 dev near0 nud permanent
ip route add 10.10.0.0/16 via 10.9.0.2
ip route add fd00:10::/32 via fd00:9::2
ip link add dumb0 type veth peer name dumb1
ip link set dumb1 up && ip link set dumb0 arp off up && ip addr add 10.11.0.1/24 dev dumb0
"$0" -c "$1"
"""
ASKS = """
from nospoon.runtime.neighbors import neighbor

for each in (
    "127.0.0.1", "::1", "10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.4", "10.10.0.1", "10.11.0.2",
    "fd00:9::1", "fd00:9::2", "fd00:9::3", "fe80::2%near0", "fd00:10::1",
):
    found = neighbor(each)
    print(each, found.way.name, found.interface, found.mac)
try:
    neighbor("192.0.2.1")
except OSError as error:
    print(error.strerror)
"""
KNOWN = """\
127.0.0.1 HERE
::1 HERE
10.9.0.1 HERE
10.9.0.2 LINK near0 52:54:00:00:00:02
10.9.0.3 LINK near0 52:54:00:00:00:03
10.9.0.4 LINK near0
10.10.0.1 ROUTED
10.11.0.2 ROUTED
fd00:9::1 HERE
fd00:9::2 LINK near0 52:54:00:00:00:02
fd00:9::3 LINK near0
fe80::2%near0 LINK near0 52:54:00:00:00:02
fd00:10::1 ROUTED
the kernel does not know that address
"""


def test_neighbors_are_told_from_who_is_behind_a_router() -> None:
    line = ["unshare", "--net", "sh", "-c", NETWORK, sys.executable, ASKS]
    told = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    found = [each.rstrip() for each in told.stdout.splitlines()]
    assert found == KNOWN.splitlines(), told.stderr
