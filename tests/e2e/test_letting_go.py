"""Networks, disks and addresses that leave the file while a machine runs with them."""

from __future__ import annotations

import json
import subprocess
from uuid import UUID

import pytest

from nospoon.plan.identity import bridge_name, mac_address, node_uuid
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
    rack.power(f"{name}/a", "on")
    planned = rack.run("plan", file(AFTER)).stdout
    for what in ("network more", "volume a-1"):
        assert f"- (at power-off) {what} on h  (a runs with it until its power-off)" in planned
    said = rack.run("up", "--yes", file(AFTER))
    assert "network more stays: a runs with it until its power-off" in said.stdout + said.stderr
    assert rack.run("plan", "--detailed-exitcode", file(AFTER)).returncode == 0
    (row,) = rack.json("status")
    bridge = bridge_name(UUID(row["id"]), "more")
    assert (bridge in bridges()) is real
    rack.power(f"{name}/a", "off")
    planned = rack.run("plan", file(AFTER)).stdout
    assert "  - network more on h  (not in the file any more)" in planned
    rack.run("up", "--yes", file(AFTER))
    assert rack.run("plan", "--detailed-exitcode", file(AFTER)).returncode == 0
    assert bridge not in bridges()


@pytest.mark.libvirt
def test_an_address_stays_until_its_power_off_and_is_nobody_elses(rack: Rack) -> None:
    name, bmc = rack.name(), rack.bmc()

    def file(**nics: str) -> str:
        made = "firmware: bios, memory: 64MiB, disks: [8MiB]"
        nodes = ", ".join(
            f"{{name: {node}, nics: [{each}], {made}}}" for node, each in nics.items()
        )
        hosts = "hosts: {h: {libvirt: 'qemu:///system'}}"
        nets = "networks: {net: {netboot: builtin}, stor: {netboot: builtin}}"
        text = f"cluster: {name}\n{hosts}\n{bmc}{nets}\nnodes: [{nodes}]\n"
        return rack.file(text, f"{name}.yaml")

    def given(network: str = "net") -> dict[str, str]:
        """MAC -> address."""
        (hosts,) = (rack.directory / "state").glob(f"**/h@{network}/hosts")
        lines = [path.read_text().strip().split(",") for path in hosts.iterdir()]
        return {mac: address for *macs, address, _ in lines for mac in macs}

    before = {"m0": "net, stor", "m1": "stor, net"}
    after = {"m0": "stor", "m1": "net", "m2": "net", "m3": "net"}
    rack.run("up", "--yes", file(**before))
    (row,) = rack.json("status")
    macs = {
        (node, index): mac_address(node_uuid(UUID(row["id"]), node), index)
        for node in ("m0", "m1", "m2", "m3")
        for index in range(2)
    }
    first = given()
    assert first.keys() == {macs["m0", 0], macs["m1", 1]}
    rack.power(f"{name}/m0", "on")
    rack.run("up", "--yes", "-t", "m3", file(m0="stor", m1="net", m3="net"))
    assert {mac: given()[mac] for mac in first} == first, "m3 alone was named"
    rack.run("up", "--yes", file(**after))
    assert rack.run("plan", "--detailed-exitcode", file(**after)).returncode == 0
    assert given()[macs["m0", 0]] == first[macs["m0", 0]], "it runs with it"
    assert given()[macs["m1", 0]] == first[macs["m1", 1]], "a NIC on another network went"
    assert len({*given().values()}) == len(given()) == 4
    rack.run("up", "--yes", file(**before))
    assert given() == first, "taken back"
    rack.run("up", "--yes", file(**after))
    rack.power(f"{name}/m0", "off")
    rack.run("up", "--yes", file(**after))
    assert given().keys() == {macs[node, 0] for node in ("m1", "m2", "m3")}
