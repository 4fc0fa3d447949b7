"""The DevStack plugin: sourced phase by phase as stack.sh, unstack.sh and clean.sh do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.contrib.conftest import CONTRIB, NOSPOON, OFFLINE

from nospoon.testing.own_network import own_network
from nospoon.testing.rack import Rack, private_rack

STUBS = """
# What DevStack has for its plugins, and says of what it is asked to do outside of this test.
function echo_summary { echo "summary: $*"; }
function is_ubuntu { true; }
function install_package { echo "packages: $*"; }
function die { echo "died: ${*:2}"; exit 1; }
function sudo { "$@"; }
function ovs-vsctl { echo "ovs-vsctl: $*"; }
"""
STACK = ("stack pre-install", "stack install", "stack post-config", "stack extra")


@pytest.fixture
def rack() -> Iterator[Rack]:
    """Where IPMI's own port is free on all addresses."""
    with own_network(), private_rack() as made:
        yield made


class DevStack:
    """A machine with the repository in $DEST, where `enable_plugin` clones it."""

    def __init__(self, rack: Rack, **localrc: str) -> None:
        self.rack = rack
        self.data = rack.directory / "data"
        (rack.directory / "dest").mkdir(exist_ok=True)
        checkout = rack.directory / "dest/nospoon"
        checkout.unlink(missing_ok=True)
        checkout.symlink_to(CONTRIB.parent)
        given = {"DEST": str(rack.directory / "dest"), "DATA_DIR": str(self.data), **localrc}
        lines = [f"{name}='{value}'" for name, value in given.items()]
        self.before = "\n".join([*lines, STUBS, f"source {checkout}/devstack/settings"])
        self.plugin = f"{checkout}/devstack/plugin.sh"

    def run(self, *phases: str, status: int = 0) -> str:
        sources = [f"source {self.plugin} {phase}" for phase in phases]
        script = "\n".join(["set -o errexit", self.before, *sources])
        done = subprocess.run(
            ["bash", "-c", script], env={**self.rack.environment, **OFFLINE}, text=True,
            capture_output=True, check=False, timeout=200,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout


def enrolled(devstack: DevStack) -> list[list[str]]:
    """The fields of each line of hardware_info, as awk in Ironic's enroll_nodes splits them."""
    path = devstack.data / "nospoon/hardware_info"
    assert path.stat().st_mode & 0o777 == 0o600
    return [line.split() for line in path.read_text().splitlines()]


def bmc_of(rack: Rack) -> str:
    """A pool that is this rack's alone, as its ports are."""
    ours = yaml.safe_load(rack.bmc())["bmc"]
    block = (ours["redfish_port"] - 10_000) // 500
    told = {"pool": f"127.98.{block}.0/28", "redfish_port": ours["redfish_port"], "tls": "true"}
    return "{" + ", ".join(f"{name}: {value}" for name, value in told.items()) + "}"


@pytest.mark.parametrize(
    ("driver", "command"), [("ipmi", ""), ("redfish", NOSPOON)], ids=["ipmi", "redfish"]
)
def test_ironic_gets_its_hardware_and_unstack_leaves_nothing(
    rack: Rack, wheel: Path, driver: str, command: str
) -> None:
    name = rack.name()
    devstack = DevStack(
        rack, NOSPOON_CLUSTER=name, NOSPOON_HOSTS="{sim: simulated}", NOSPOON_BMC=bmc_of(rack),
        NOSPOON_PACKAGE=str(wheel), NOSPOON_COMMAND=command, IRONIC_VM_COUNT="2",
        IRONIC_DEPLOY_DRIVER=driver, DEVSTACK_PLUGINS="nospoon,ironic",
    )  # fmt: skip
    said = devstack.run(*STACK)
    assert ("qemu-system-x86" in said.partition("packages:")[2]) is not bool(command)
    assert "ovs-vsctl: --may-exist add-br brbm" in said
    bmcs = rack.bmcs(name)
    lines = enrolled(devstack)
    assert list(bmcs) == ["node-0", "node-1"]
    for bmc, (address, mac, username, password, *more) in zip(bmcs.values(), lines, strict=True):
        assert (username, password) == (bmc["username"], bmc["password"])
        assert mac in rack.run("node", "show", f"{name}/{bmc['node']}").stdout
        if driver == "ipmi":
            assert (f"{address}:623", more) == (bmc["ipmi"], [])
        else:
            assert f"https://{address}{more[0]}" == bmc["redfish"]
    if driver == "ipmi":
        assert "off" in rack.ipmitool(bmcs["node-0"], "chassis", "power", "status")
    said = devstack.run("unstack", "clean")
    assert "ovs-vsctl: --if-exists del-br brbm" in said
    assert "no cluster" in rack.run("status", name, status=2).stderr
    assert not (devstack.data / "nospoon").exists()


def test_a_file_of_ones_own_is_taken_and_what_ironic_could_not_enrol_is_refused(
    rack: Rack,
) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}"
    nodes = "nodes: [{name: a, nics: [lan, lan]}]\nnetworks: {lan: {}}\n"
    ours = {"NOSPOON_CLUSTER": name, "NOSPOON_COMMAND": NOSPOON}
    devstack = DevStack(rack, **ours, NOSPOON_FILE=rack.file(text + nodes, "own.yaml"))
    devstack.run("stack install", "stack extra", status=1)
    assert "packages" not in devstack.run("stack install")
    pooled = f"cluster: {name}\nhosts: {{sim: simulated}}\nbmc: {bmc_of(rack)}\n"
    devstack = DevStack(rack, **ours, NOSPOON_FILE=rack.file(pooled + nodes, "own.yaml"))
    devstack.run("stack extra")
    ((_, macs, *_),) = enrolled(devstack)
    assert len(macs.split(";")) == 2
    devstack.run("unstack")
    assert not (devstack.data / "nospoon/hardware_info").exists()


def test_a_plugin_that_stands_behind_ironic_is_refused(rack: Rack) -> None:
    devstack = DevStack(rack, DEVSTACK_PLUGINS="ironic,nospoon")
    assert "must stand before" in devstack.run("stack pre-install", status=1)
