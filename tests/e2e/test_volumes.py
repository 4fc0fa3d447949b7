"""Volumes that are made over Redfish, on a whole daemon and real machines."""

from __future__ import annotations

import json
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from nospoon.testing.rack import Rack

pytestmark = [pytest.mark.libvirt]

NODE = "nodes: [{name: n, firmware: bios, memory: 64MiB, disks: [16MiB]}]"


def redfish(bmc: dict[str, str], method: str, path: str, body: Any = None) -> Any:
    """The answer's JSON, None without one; `path` below the node's System."""
    pair = f"{bmc['username']}:{bmc['password']}"
    headers = {
        "Authorization": "Basic " + b64encode(pair.encode()).decode(),
        "Content-Type": "application/json",
    }
    data = json.dumps(body).encode() if body is not None else None
    request = Request(bmc["redfish"] + path, data, headers, method=method)
    with urlopen(request, timeout=30) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def wait_until(done: Callable[[], bool], seconds: float = 30) -> None:
    """A reset is answered after 250 ms at the latest, and goes on."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.2)


def reset(bmc: dict[str, str], kind: str) -> bool:
    """Whether the BMC took the command; it does not while another is under way."""
    try:
        redfish(bmc, "POST", "/Actions/ComputerSystem.Reset", {"ResetType": kind})
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
    made = redfish(bmc, "POST", "/Storage/0/Volumes", {"CapacityBytes": 8 << 20})
    rack.run("daemon", "stop")
    rack.run("node", "power", f"{name}/n", "on")
    file = f"n.{made['Id']}.volume"
    assert file in disks(bmc)
    rack.run("plan", "--detailed-exitcode", path)
    assert list((rack.directory / "pool").rglob(file))

    redfish(bmc, "DELETE", f"/Storage/0/Volumes/{made['Id']}")
    assert reset(bmc, "ForceRestart")
    wait_until(lambda: ".volume" not in disks(bmc))
    assert not list((rack.directory / "pool").rglob("*.volume"))

    redfish(bmc, "POST", "/Storage/0/Volumes", {"CapacityBytes": 8 << 20})
    wait_until(lambda: reset(bmc, "PowerCycle"))
    wait_until(lambda: ".volume" in disks(bmc))
    rack.down()
    assert not list((rack.directory / "pool").rglob("*"))
