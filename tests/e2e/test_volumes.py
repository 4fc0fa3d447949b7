"""Volumes that are made over Redfish, on a whole daemon and real machines."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from urllib.error import HTTPError

import pytest

from nospoon.testing.rack import Rack
from nospoon.testing.redfish import System

pytestmark = [pytest.mark.libvirt]

NODE = "nodes: [{name: n, firmware: bios, memory: 64MiB, disks: [16MiB]}]"


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    """A reset is answered after 250 ms at the latest, and goes on."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.2)


def reset(bmc: dict[str, str], kind: str) -> bool:
    """Whether the BMC took the command; it does not while another is under way."""
    try:
        System(bmc).ask("POST", "/Actions/ComputerSystem.Reset", {"ResetType": kind})
    except HTTPError as error:
        if error.code != 503:
            raise
        return False
    return True


def disks(bmc: dict[str, str]) -> str:
    """What libvirt says of the machine's block devices."""
    argv = ["virsh", "-c", "qemu:///system", "domblklist", bmc["uuid"]]
    return subprocess.run(argv, text=True, capture_output=True, check=True).stdout


def test_a_volume_survives_a_restart_and_is_no_drift_and_nothing_is_left(rack: Rack) -> None:
    name = rack.name()
    text = f"cluster: {name}\nnetworks: {{lan: {{}}}}\n{rack.bmc()}{NODE}\n"
    path = rack.file(text)
    rack.run("up", "--yes", path)
    bmc = rack.bmcs(name)["n"]
    made = System(bmc).ask("POST", "/Storage/0/Volumes", {"CapacityBytes": 8 << 20})
    rack.run("daemon", "stop")
    rack.power(f"{name}/n", "on")
    file = f"n.{made['Id']}.volume"
    assert file in disks(bmc)
    rack.run("plan", "--detailed-exitcode", path)
    assert list((rack.directory / "pool").rglob(file))

    System(bmc).ask("DELETE", f"/Storage/0/Volumes/{made['Id']}")
    assert reset(bmc, "ForceRestart")
    wait_until(lambda: ".volume" not in disks(bmc))
    wait_until(lambda: not list((rack.directory / "pool").rglob("*.volume")))

    System(bmc).ask("POST", "/Storage/0/Volumes", {"CapacityBytes": 8 << 20})
    wait_until(lambda: reset(bmc, "PowerCycle"))
    wait_until(lambda: ".volume" in disks(bmc))
    rack.down()
    assert not list((rack.directory / "pool").rglob("*"))
