"""A host that reboots: its machines get what their power restore policy says.

The reboot is that of a machine which has lost its power: domains are destroyed while the daemon is
down, and the daemon that starts finds another boot id, which is mounted over the kernel's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from nospoon.runtime.boots import BOOT_ID
from nospoon.testing.container_root import busybox_root
from nospoon.testing.rack import Rack, private_rack
from nospoon.testing.redfish import System

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts over /proc")

NODES = """
flavors: {small: {memory: 64MiB, firmware: bios, disks: [16MiB]}}
nodes:
- {name: stays-off, restore: off}
- {name: comes-back}
- {name: shut-down}
- {name: always-on, restore: on}
"""
CONTAINERS = """
flavors:
  small:
    kind: container
    memory: 32MiB
    disks: [{image: busybox.tar, size: 16MiB}]
    bmc: [ipmi]
nodes:"""
EXPECTED = {"stays-off": "off", "comes-back": "on", "shut-down": "off", "always-on": "on"}


@pytest.fixture
def rack() -> Iterator[Rack]:
    """A private daemon that sees the boot id of a file."""
    with private_rack() as made:
        reboot(made)
        mounts = f'mount --bind {made.directory}/boot_id {BOOT_ID} && exec "$@"'
        made.prefix = ["unshare", "--mount", "sh", "-c", mounts, "sh"]
        yield made


def reboot(rack: Rack) -> None:
    """The next daemon is in another boot."""
    (rack.directory / "boot_id").write_text(f"{uuid4()}\n")


def powers(rack: Rack, name: str) -> dict[str, str]:
    return {row["node"]: row["power"] for row in rack.json("status", name)}


def until(true: Callable[[], bool], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.1)


def before(rack: Rack, hosts: str) -> str:
    """A cluster with nodes that run, and one that was switched off; its name."""
    name = rack.name()
    path = rack.file(f"cluster: {name}\n{hosts}{rack.bmc()}{NODES}")
    rack.run("up", "--yes", path)
    for node in ("stays-off", "comes-back", "shut-down"):
        rack.run("node", "power", f"{name}/{node}", "on")
    until(lambda: sorted(powers(rack, name).values()) == ["off", "on", "on", "on"])
    rack.run("node", "power", f"{name}/shut-down", "off")
    until(lambda: sorted(powers(rack, name).values()) == ["off", "off", "on", "on"])
    return name


def restored(rack: Rack, name: str) -> None:
    """A start of the daemon does once what the policies say, and the next one nothing."""
    until(lambda: powers(rack, name) == EXPECTED)
    logs = {
        node: rack.ipmitool(bmc, "sel", "list").lower() for node, bmc in rack.bmcs(name).items()
    }
    for node, said in logs.items():
        assert said.count("ac lost | asserted") == 1, (node, said)
    rack.run("node", "power", f"{name}/always-on", "off")
    rack.run("daemon", "stop")
    until(lambda: powers(rack, name) == {**EXPECTED, "always-on": "off"})


def test_simulated_machines_get_what_their_policies_say(rack: Rack) -> None:
    name = before(rack, "hosts: {sim: simulated}\n")
    rack.run("daemon", "stop")
    reboot(rack)
    restored(rack, name)


@pytest.mark.libvirt
def test_machines_of_libvirt_get_what_their_policies_say(rack: Rack) -> None:
    name = before(rack, "networks: {lan: {}}\n")
    uuids = [rack.bmcs(name)[node]["uuid"] for node in ("stays-off", "comes-back")]
    rack.run("daemon", "stop")
    for uuid in uuids:
        virsh("destroy", uuid)
    reboot(rack)
    restored(rack, name)


def start_containers_without_the_mount(rack: Rack) -> None:
    """Linux gives no user namespace a /proc of its own where part of the one before is covered."""
    program = str(shutil.which("lxc-start"))
    shutil.copy(program, rack.directory / "lxc-start-itself")
    wrapper = rack.directory / "lxc-start"
    itself = f'exec {rack.directory}/lxc-start-itself "$@"'
    wrapper.write_text(f"#!/bin/sh\numount {BOOT_ID}\n{itself}\n")
    wrapper.chmod(0o755)
    *before, mounts, name = rack.prefix
    rack.prefix = [*before, f"mount --bind {wrapper} {program} && {mounts}", name]


@pytest.mark.libvirt
@pytest.mark.lxc
def test_containers_get_what_their_policies_say(rack: Rack) -> None:
    """One without a BMC as well."""
    name = rack.name()
    rack.directory.chmod(0o711)
    (rack.directory / "busybox.tar").write_bytes(busybox_root())
    start_containers_without_the_mount(rack)
    file = rack.file(
        f"cluster: {name}\nhosts: {{here: {{libvirt: 'qemu:///system', lxc: true}}}}\n"
        f"networks: {{lan: {{}}}}\n{rack.bmc()}"
        f"{CONTAINERS}{NODES.partition('nodes:')[2]}- {{name: no-bmc, bmc: []}}\n"
    )
    rack.run("up", "--yes", file)
    on = {**dict.fromkeys(EXPECTED, "on"), "no-bmc": "on"}
    until(lambda: powers(rack, name) == on)
    for node in ("shut-down", "always-on"):
        rack.run("node", "power", f"{name}/{node}", "off")
    until(lambda: powers(rack, name) == {**on, "shut-down": "off", "always-on": "off"})
    rack.run("daemon", "stop")
    monitors = [*(rack.directory / "pool" / "lxc").glob(f"nospoon-{name}-*/*/pid")]
    assert len(monitors) == 3
    for each in monitors:
        os.kill(int(each.read_text()), signal.SIGKILL)
    reboot(rack)
    until(lambda: powers(rack, name) == {**EXPECTED, "no-bmc": "on"})
    assert rack.run("plan", "--detailed-exitcode", file).returncode == 0
    rack.run("down", "--yes", name)


@pytest.mark.libvirt
def test_networks_run_again_before_machines_are_switched_on(rack: Rack) -> None:
    """A reboot leaves neither bridges nor rules nor DHCP servers."""
    name = rack.name()
    path = rack.file(
        f"cluster: {name}\nnetworks: {{lan: {{netboot: builtin}}}}\n{rack.bmc()}"
        "nodes: [{name: n, memory: 64MiB, firmware: bios, disks: [16MiB]}]\n"
    )
    rack.run("up", "--yes", path)
    rack.run("node", "power", f"{name}/n", "on")
    until(lambda: powers(rack, name) == {"n": "on"})
    uuid = rack.bmcs(name)["n"]["uuid"]
    (file,) = (rack.directory / "state/netboot").glob("*/*/service.json")
    service = json.loads(file.read_text())
    rack.run("daemon", "stop")
    virsh("destroy", uuid)
    virsh("net-destroy", service["shape"]["bridge"])
    os.kill(service["pid"], signal.SIGKILL)
    reboot(rack)
    until(lambda: powers(rack, name) == {"n": "on"})
    rack.run("plan", "--detailed-exitcode", path)


def policies(rack: Rack, name: str) -> tuple[str, str]:
    """As IPMI and Redfish tell the policy."""
    bmc = rack.bmcs(name)["n"]
    status = rack.ipmitool(bmc, "chassis", "status").splitlines()
    ipmi = next(line.split(": ")[1] for line in status if line.startswith("Power Restore Policy"))
    return ipmi, System(bmc).ask("GET", "")["PowerRestorePolicy"]


def test_the_file_and_clients_of_the_bmc_set_one_policy(rack: Rack) -> None:
    name = rack.name()
    text = f"cluster: {name}\nhosts: {{sim: simulated}}\n{rack.bmc()}"
    path = rack.file(f"{text}nodes: [{{name: n, restore: on}}]\n")
    rack.run("up", "--yes", path)
    assert policies(rack, name) == ("always-on", "AlwaysOn")
    rack.ipmitool(rack.bmcs(name)["n"], "chassis", "policy", "always-off")
    assert policies(rack, name) == ("always-off", "AlwaysOff")
    rack.run("plan", "--detailed-exitcode", path)
    rack.run("daemon", "stop")
    assert policies(rack, name) == ("always-off", "AlwaysOff")
    System(rack.bmcs(name)["n"]).ask("PATCH", "", {"PowerRestorePolicy": "AlwaysOn"})
    assert policies(rack, name) == ("always-on", "AlwaysOn")
    path = rack.file(f"{text}nodes: [{{name: n, restore: off}}]\n")
    planned = rack.run("plan", path).stdout
    assert re.search(r"~ bmc +n.*restore.*on -> off.*live", planned, re.DOTALL), planned
    rack.run("up", "--yes", path)
    assert policies(rack, name) == ("always-off", "AlwaysOff")


def virsh(*argv: str) -> None:
    line = ["virsh", "-c", "qemu:///system", *argv]
    subprocess.run(line, capture_output=True, check=True)
