"""The persistent boot order that a Redfish client sets, on a whole daemon and a real machine."""

from __future__ import annotations

import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from nospoon.testing.rack import Rack
from nospoon.testing.redfish import System

pytestmark = [pytest.mark.libvirt]

NODE = "nodes: [{name: n, firmware: bios, memory: 64MiB, disks: [16MiB]}]"


def virsh(*argv: str) -> str:
    line = ["virsh", "-c", "qemu:///system", *argv]
    return subprocess.run(line, text=True, capture_output=True, check=True).stdout


def first_booted(uuid: str) -> str:
    """What QEMU tells firmware to boot first, as libvirt's alias of the device; "" while there is
    no machine to be asked.
    """
    try:
        return _first_booted(uuid)
    except subprocess.CalledProcessError:
        return ""


def _first_booted(uuid: str) -> str:
    aliases = re.findall(r"<alias name='((?:net|virtio-disk)\d+)'/>", virsh("dumpxml", uuid))

    def place(alias: str) -> int:
        path = {"path": f"/machine/peripheral/{alias}", "property": "bootindex"}
        asked = json.dumps({"execute": "qom-get", "arguments": path})
        return int(json.loads(virsh("qemu-monitor-command", uuid, asked))["return"])

    first: str = min(aliases, key=place)
    return first


def power(rack: Rack, uuid: str, command: str, *, boots: str) -> None:
    """A command is answered after 250 ms at the latest: until another machine runs, which boots
    from this first.
    """
    before, end, again = virsh("domid", uuid), time.monotonic() + 240, 0.0
    while virsh("domid", uuid) == before or not first_booted(uuid).startswith(boots):
        assert time.monotonic() < end, f"it boots from {first_booted(uuid)!r}"
        if time.monotonic() > again and virsh("domid", uuid) == before:
            rack.run("node", "power", uuid, command)  # which may join one that is about to end
            again = time.monotonic() + 20
        time.sleep(0.2)
    while rack.json("node", "show", uuid)["power"] != "on":
        assert time.monotonic() < end, "it does not come up"
        time.sleep(0.2)


def order(node: System) -> Any:
    return node.ask("GET", "")["Boot"]["BootOrder"]


def test_a_client_s_boot_order_is_real_and_lasts_until_the_file_has_another(rack: Rack) -> None:
    name = rack.name()
    path = rack.file(f"cluster: {name}\nnetworks: {{lan: {{}}}}\n{rack.bmc()}{NODE}\n")
    rack.run("up", "--yes", path)
    node = System(rack.bmcs(name)["n"])
    uuid, (disk, network) = node.bmc["uuid"], order(node)
    node.ask("PATCH", "", {"Boot": {"BootOrder": [network, disk]}})
    assert rack.json("node", "show", f"{name}/n")["boot"] == "network, disk (BootOrder)"
    power(rack, uuid, "on", boots="net")
    rack.run("plan", "--detailed-exitcode", path)
    rack.run("daemon", "stop")
    power(rack, uuid, "cycle", boots="net")
    assert order(node) == [network, disk], "a restart of ours forgets nothing"
    node.ask("PATCH", "", {"Boot": {"BootOrder": [disk, network]}})
    power(rack, uuid, "cycle", boots="virtio-disk")
    node.ask("PATCH", "", {"Boot": {"BootOrder": [network, disk]}})
    changed = Path(path).read_text().replace("{name: n,", "{name: n, boot_order: [disk],")
    Path(path).write_text(changed)
    rack.run("up", "--yes", path)
    assert order(node) == [disk]
    assert rack.json("node", "show", f"{name}/n")["boot"] == "as configured"
