"""Ports: the names that switches, Ironic and guests' taps agree on; bonds of them."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from nospoon.testing.rack import Rack

SMALL = "name: 'n{n}', firmware: bios, memory: 64MiB, disks: [16MiB]"


def test_portgroups_without_ironic_are_shown_and_change_live(shared: Rack) -> None:
    name = shared.name()
    head = f"cluster: {name}\nhosts: {{sim: simulated}}\n{shared.bmc()}networks: {{lan: {{}}}}\n"
    body = (
        "nodes: [{name: n0, nics: [lan, {network: lan, portgroup: b0},"
        " {network: lan, portgroup: b0}], portgroups: {b0: {mode: %s}}}]"
    )
    file = shared.file(head + body % "802.3ad", f"{name}.yaml")
    shared.run("up", "--yes", file)
    ports = shared.json("node", "show", f"{name}/n0")["ports"]
    (row,) = shared.json("status", name)
    (bond,) = row["portgroups"]
    assert bond["ports"] == [port["address"] for port in ports[1:]]
    assert (bond["mode"], bond["standalone_ports_supported"]) == ("802.3ad", True)
    file = shared.file(head + body % "balance-xor", f"{name}.yaml")
    told = shared.run("plan", "--detailed-exitcode", file, status=2).stdout
    assert "balance-xor NICs [1, 2]}  [live]" in told
    shared.run("up", "--yes", file)
    assert shared.json("status", name)[0]["portgroups"][0]["mode"] == "balance-xor"
    assert shared.run("plan", "--detailed-exitcode", file).returncode == 0


def _link(device: str) -> dict[str, Any]:
    argv = ["ip", "-json", "link", "show", "dev", device]
    done = subprocess.run(argv, text=True, capture_output=True, check=True)
    return dict(json.loads(done.stdout)[0])


def _wait_until(rack: Rack, node: str, power: str) -> None:
    """A power command is acknowledged before it is done, as by hardware."""
    deadline = time.monotonic() + 240
    while rack.run("node", "power", node, "status").stdout.strip() != power:
        assert time.monotonic() < deadline


@pytest.mark.libvirt
def test_a_guests_tap_is_the_port_that_was_told_while_it_was_off(shared: Rack) -> None:
    name = shared.name()
    body = f"networks: {{lan: {{mtu: 1400}}}}\nnodes: [{{{SMALL}, nics: [lan, lan]}}]\n"
    shared.run("up", "--yes", shared.file(f"cluster: {name}\n{shared.bmc()}{body}", f"{name}.yaml"))
    before = shared.json("node", "show", f"{name}/n0")["ports"]
    for _ in range(2):
        shared.run("node", "power", f"{name}/n0", "on")
        _wait_until(shared, f"{name}/n0", "on")
        for port in before:
            told = port["local_link_connection"]
            tap = _link(told["port_id"])
            assert (tap["master"], tap["mtu"]) == (told["switch_info"], 1400)
        assert shared.json("node", "show", f"{name}/n0")["ports"] == before
        shared.run("node", "power", f"{name}/n0", "off")
        _wait_until(shared, f"{name}/n0", "off")
