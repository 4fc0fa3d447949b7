"""A network and a disk that leave the file while a machine runs with them."""

from __future__ import annotations

import json
import subprocess
from uuid import UUID

import pytest

from nospoon.plan.identity import bridge_name
from nospoon.testing.rack import Rack

BOTH = "networks: {lan: {}, more: {}}\n"
ONE = "networks: {lan: {}}\n"
NODES = "nodes: [{name: a, firmware: bios, memory: 64MiB, NICS, DISKS}]\n"
BEFORE = BOTH + NODES.replace("NICS", "nics: [lan, more]").replace("DISKS", "disks: [16MiB, 8MiB]")
AFTER = ONE + NODES.replace("NICS", "nics: [lan]").replace("DISKS", "disks: [16MiB]")


def bridges() -> set[str]:
    argv = ["ip", "-json", "link", "show", "type", "bridge"]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return {each["ifname"] for each in json.loads(told or "[]") if each}


@pytest.mark.parametrize(
    "host",
    ["{h: simulated}", pytest.param("{h: {libvirt: 'qemu:///system'}}", marks=pytest.mark.libvirt)],
)
def test_they_stay_until_its_power_off_and_go_with_the_next_up(rack: Rack, host: str) -> None:
    name, bmc = rack.name(), rack.bmc()
    real = "libvirt" in host

    def file(text: str) -> str:
        return rack.file(f"cluster: {name}\nhosts: {host}\n{bmc}{text}", f"{name}.yaml")

    rack.run("up", "--yes", file(BEFORE))
    steps = rack.json("plan", file(AFTER))["steps"]
    assert {(each["kind"], each["name"]) for each in steps if each["action"] == "delete"} >= {
        ("network", "more"), ("volume", "a-1"),
    }, "nothing holds them while it is off"  # fmt: skip
    rack.run("node", "power", f"{name}/a", "on")
    planned = rack.run("plan", file(AFTER)).stdout
    for what in ("network more", "volume a-1"):
        assert f"- (at power-off) {what} on h  (a runs with it until its power-off)" in planned
    said = rack.run("up", "--yes", file(AFTER))
    assert "network more stays: a runs with it until its power-off" in said.stdout + said.stderr
    assert rack.run("plan", "--detailed-exitcode", file(AFTER)).returncode == 0
    (row,) = rack.json("status")
    bridge = bridge_name(UUID(row["id"]), "more")
    assert (bridge in bridges()) is real
    rack.run("node", "power", f"{name}/a", "off")
    planned = rack.run("plan", file(AFTER)).stdout
    assert "  - network more on h  (not in the file any more)" in planned
    rack.run("up", "--yes", file(AFTER))
    assert rack.run("plan", "--detailed-exitcode", file(AFTER)).returncode == 0
    assert bridge not in bridges()
