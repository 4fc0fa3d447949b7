"""Guests of an isolated network reach what nospoon serves on the host's address, and no more."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from nospoon.model.resources import Link
from nospoon.providers.libvirt.host_guard import HostGuard, chain, rules
from nospoon.runtime import process
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
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20).close()
    print("reached")
except OSError:
    print("refused")
"""
HOST, GUEST = f"nsh{os.getpid():x}", f"nsg{os.getpid():x}"
BRIDGE = "nsguard0"
LINK = Link(BRIDGE, "172.30.9.1/24", host_ports=(OPEN,), address6="fd00:9::1/64")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Inside:
    """Runs commands in the host's namespace."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes | None = None, check: bool = True
    ) -> Finished:
        return await process.run(["ip", "netns", "exec", HOST, *argv], check=check, stdin=stdin)


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


def asked(address: str, port: int) -> str:
    argv = ["ip", "netns", "exec", GUEST, sys.executable, "-c", ASK, address, str(port)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.usefixtures("host")
async def test_guests_reach_what_is_opened_and_no_more() -> None:
    guard = HostGuard(Inside(), "nospoon test")
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
    left = await Inside().run(["iptables-save"])
    assert chain(BRIDGE) not in left.stdout


def test_the_rules_take_away_and_allow_nothing() -> None:
    for version in (4, 6):
        text = rules(LINK, version)
        assert "ACCEPT" not in text
        assert text.rstrip().endswith("-j REJECT\nCOMMIT")
    assert f"-d 172.30.9.1 -p tcp --dport {OPEN} -j RETURN" in rules(LINK, 4)
    assert f"-d fd00:9::1 -p tcp --dport {OPEN} -j RETURN" in rules(LINK, 6)
    assert "--dport 67 " in rules(LINK, 4)
    assert "--dport 8069" not in rules(replace(LINK, address6=""), 6)
    assert len(chain("n" * 15)) <= 28
