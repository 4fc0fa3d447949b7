"""What tests of BMCs share."""

from __future__ import annotations

import socket
import subprocess
import sys

from nospoon.testing.bench import free_port
from nospoon.testing.own_network import own_network

ASK = """
import socket
from nospoon.testing import bench
bench.FREE_PORTS = range({port}, {port} + 1)
print(bench.free_port(socket.SOCK_DGRAM))
"""


def test_no_other_process_gets_a_port_that_this_one_got() -> None:
    """As workers of pytest-xdist do, before either has bound its own."""
    port = free_port(socket.SOCK_DGRAM)
    ask = [sys.executable, "-c", ASK.format(port=port)]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert "no port is free" in done.stderr
    assert done.stdout == ""


def test_a_port_that_is_taken_here_is_free_in_a_network_of_ones_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind(("", 0))
        with own_network(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.bind(here.getsockname())
