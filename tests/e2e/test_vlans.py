"""VLANs on Open vSwitch: what its own tools say of the ports of running guests."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]


def vsctl(*argv: str) -> str:
    argv = ("ovs-vsctl", "--timeout=60", *argv)
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout.strip()


@pytest.fixture
def bridge() -> Iterator[str]:
    """One on the userspace datapath, which needs no kernel module."""
    if (
        shutil.which("ovs-vsctl") is None
        or subprocess.run(
            ["ovs-vsctl", "--timeout=60", "show"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs a running Open vSwitch")
    name = f"nst{uuid4().hex[:8]}"
    vsctl("add-br", name, "--", "set", "bridge", name, "datapath_type=netdev")
    yield name
    vsctl("del-br", name)


def running(rack: Rack, bridge: str) -> tuple[str, list[str]]:
    """A cluster with a node that runs: its file, and the ports of its NICs, which are an access
    port, a trunk with a native VLAN, one without, and one of all VLANs.
    """
    name = rack.name()
    text = (
        f"cluster: {name}\n{rack.bmc()}"
        f"networks: {{lan: {{bridge: {bridge}, switch: ovs, vlan: 100}},"
        f" plain: {{bridge: {bridge}, switch: ovs}}}}\n"
        "nodes: [{name: n0, firmware: bios, memory: 64MiB, disks: [16MiB],"
        " nics: [lan, {network: lan, trunk: [102, 101]}, {network: plain, trunk: [101]}, plain]}]\n"
    )
    file = rack.file(text, f"{name}.yaml")
    rack.run("up", "--yes", file)
    rack.power(f"{name}/n0", "on")
    ports = rack.json("node", "show", f"{name}/n0")["ports"]
    return file, [port["local_link_connection"]["port_id"] for port in ports]


def plugged(ports: list[str]) -> list[list[str]]:
    """What Open vSwitch has of each port: its bridge, its VLANs and whose it is."""
    vlans = ("tag", "trunks", "vlan_mode")
    return [
        [
            vsctl("port-to-br", port),
            vsctl("get", "port", port, *vlans),
            vsctl("get", "interface", port, "external_ids"),
        ]
        for port in ports
    ]


def test_a_nic_is_in_its_vlan_and_a_trunk_in_all_of_its(shared: Rack, bridge: str) -> None:
    file, ports = running(shared, bridge)
    access, trunk, plain, _ = ports
    assert set(ports) == set(vsctl("list-ports", bridge).split())
    assert vsctl("get", "port", access, "tag", "trunks").split("\n") == ["100", "[]"]
    assert vsctl("get", "port", trunk, "tag", "vlan_mode").split("\n") == ["100", "native-untagged"]
    assert set(vsctl("get", "port", trunk, "trunks").strip("[]").split(", ")) >= {"101", "102"}
    assert vsctl("get", "port", plain, "tag", "trunks").split("\n") == ["[]", "[0, 101]"]
    assert shared.run("plan", "--detailed-exitcode", file).returncode == 0
    shared.run("down", "--yes", shared.names[-1])
    assert vsctl("list-ports", bridge) == ""


def test_ports_that_somebody_took_out_or_gave_other_vlans_are_drift_and_mended(
    shared: Rack, bridge: str
) -> None:
    file, ports = running(shared, bridge)
    access, trunk, plain, simple = ports
    before = plugged(ports)
    anew = ("add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev")
    for argv, lost in (
        (("del-br", bridge, "--", *anew), 4),
        (("del-port", bridge, simple), 1),
        (("set", "port", simple, "tag=7"), 1),
        (("del-port", bridge, trunk), 1),
        (("set", "port", access, "tag=7"), 1),
        (("set", "port", plain, "trunks=101"), 1),
        (("clear", "port", trunk, "vlan_mode"), 1),
    ):
        vsctl(*argv)
        (step,) = shared.json("plan", file)["steps"]
        (change,) = step["changes"]
        assert (change["field"], change["desired"], step["at_power_off"]) == (
            "unlinked",
            "none",
            False,
        )
        assert change["observed"].count(":") == 5 * lost
        shared.run("up", "--yes", file)
        assert plugged(ports) == before
        assert shared.run("plan", "--detailed-exitcode", file).returncode == 0
    shared.run("down", "--yes", shared.names[-1])
    assert vsctl("list-ports", bridge) == ""


def test_a_host_is_checked_for_open_vswitch_and_the_firewall(shared: Rack, bridge: str) -> None:
    host = f"hosts: {{here: {{libvirt: 'qemu:///system', physnets: {{public: {bridge}}}}}}}\n"
    networks = "networks: {lan: {}, public: {physnet: public, switch: ovs, vlan: 7}}\n"
    file = shared.file(f"cluster: checked\n{host}{networks}nodes: [{{count: 1}}]\n", "checked.yaml")
    rows = {each["what"]: each for each in shared.json("host", "check", file)}
    assert {rows[what]["verdict"] for what in ("ovs-vsctl", "iptables", "physnet public")} == {"ok"}
    assert rows["physnet public"]["detail"] == f"bridge {bridge} of Open vSwitch"
    assert "network public" not in rows, "no node is on it"


@pytest.mark.parametrize(
    ("public", "verdict", "told"),
    [
        ("physnet: public, switch: ovs", "ok", "plugged into nst"),
        ("physnet: public", "missing", "Write `switch: ovs`"),
        ("bridge: nst-nowhere", "missing", "has no bridge nst-nowhere"),
    ],
)
def test_a_host_is_checked_for_the_bridges_that_nodes_are_on(
    shared: Rack, bridge: str, public: str, verdict: str, told: str
) -> None:
    name = shared.name()
    host = f"hosts: {{here: {{libvirt: 'qemu:///system', physnets: {{public: {bridge}}}}}}}\n"
    networks = f"networks: {{public: {{{public}}}}}\n"
    text = f"cluster: {name}\n{host}{networks}nodes: [{{nics: [public]}}]\n"
    argv = ("host", "check", shared.file(text, f"{name}.yaml"), "-f", "json")
    rows = json.loads(shared.run(*argv, status=0 if verdict == "ok" else 1).stdout)
    (row,) = [each for each in rows if each["what"] == "network public"]
    assert row["verdict"] == verdict
    assert told in row["detail"]
