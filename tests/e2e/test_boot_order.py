"""Once is once, as strangers' tools ask for it: the network boots, and then the disk again.

The guest decides when it reboots: the probe's kernel with `nospoon.after=reboot`, and a boot sector
that resets the machine when `r` is typed. What was booted is read from the serial port.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from os import kill
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nospoon.model.cluster import Arch
from nospoon.probe.build import build, command_line
from nospoon.testing import guests
from nospoon.testing.rack import CACHE, Rack
from nospoon.testing.serial import Serial

pytestmark = [pytest.mark.libvirt, pytest.mark.boots, pytest.mark.tools]

DISK = guests.BOOTED
NETWORK = b"nospoon-probe: hello"
FIRMWARE_TRIES_NETWORK = b"Booting from ROM"
REBOOTS = b"nospoon-probe: done"

SUSHY = """
import sys
import sushy
from sushy import auth
url, user, password, reset = sys.argv[1:]
root = sushy.Sushy(url, auth=auth.SessionAuth(user, password))
[system] = root.get_system_collection().get_members()
system.set_system_boot_options(
    target=sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE
)
system.reset_system(sushy.ResetType(reset))
"""
PYGHMI = """
import sys
from pyghmi.ipmi import command
host, port, user, password, boot, power = sys.argv[1:]
bmc = command.Command(bmc=host, userid=user, password=password, port=int(port), keepalive=False)
if boot:
    bmc.set_bootdev(boot, persist=False)
told = bmc.set_power(power, wait=60)
assert "error" not in told, told
print(bmc.get_power()["powerstate"], bmc.get_bootdev()["bootdev"])
"""


def up(rack: Rack, *, firmware: str, disk: bytes) -> tuple[str, dict[str, str], Serial]:
    """A node named `n` with this disk and the probe as its boot profile: cluster, BMC, port."""
    probe = asyncio.run(build(CACHE))
    (rack.directory / "disk.img").write_bytes(disk)
    name = rack.name()
    cmdline = command_line(Arch.X86_64, after="reboot")
    file = rack.file(
        f"""
cluster: {name}
networks: {{provision: {{netboot: builtin}}}}
boot: {{probe: {{kernel: {probe.kernel}, initrd: {probe.initrd}, cmdline: "{cmdline}"}}}}
nodes:
  - name: n
    firmware: {firmware}
    memory: 320MiB
    boot: probe
    disks: [{{image: disk.img, size: 16MiB}}, 16MiB]
{rack.bmc()}""",
        f"{name}.yaml",
    )
    rack.run("up", "--yes", file)
    bmc = rack.bmcs(name)["n"]
    return name, bmc, Serial(rack.directory / "state" / "consoles" / f"{bmc['uuid']}.log")


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., str]:
    """Runs a foreign client in a process of its own; returns what it printed."""

    def run(text: str, *argv: str) -> str:
        script = tmp_path / "client.py"
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, str(script), *argv], text=True, capture_output=True, timeout=90,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return run


def test_ipmitool_boots_once_from_the_network_and_the_guests_reboot_comes_up_from_disk(
    rack: Rack,
) -> None:
    _, bmc, serial = up(rack, firmware="bios", disk=guests.speaking_disk())
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.ipmitool(bmc, "chassis", "power", "on")
    assert serial.hears(NETWORK, DISK) == NETWORK
    serial.hears(REBOOTS)
    assert serial.hears(NETWORK, DISK) == DISK
    assert "Boot Flag Invalid" in rack.ipmitool(bmc, "chassis", "bootparam", "get", "5")

    # the same for a machine that runs, with nobody there when the guest reboots
    rack.ipmitool(bmc, "chassis", "bootdev", "pxe")
    rack.ipmitool(bmc, "chassis", "power", "reset")
    assert serial.hears(NETWORK, DISK) == NETWORK
    kill(rack.daemon_pid(), signal.SIGKILL)
    serial.hears(REBOOTS)
    assert serial.hears(NETWORK, DISK) == DISK
    shown = rack.json("node", "show", "n")
    assert (shown["power"], shown["boot"], shown["fault"]) == ("on", "as the file says", "")


def test_sushy_boots_uefi_once_from_the_network_and_the_guests_reboot_comes_up_from_disk(
    rack: Rack, client: Callable[..., str]
) -> None:
    disk = asyncio.run(guests.speaking_uefi_disk(rack.directory))
    _, bmc, serial = up(rack, firmware="uefi", disk=disk)
    address = urlsplit(bmc["redfish"])
    access = (f"http://{address.netloc}", bmc["username"], bmc["password"])
    client(SUSHY, *access, "On")
    assert serial.hears(NETWORK, DISK) == NETWORK
    serial.hears(REBOOTS)
    assert serial.hears(NETWORK, DISK) == DISK

    client(SUSHY, *access, "ForceRestart")
    assert serial.hears(NETWORK, DISK) == NETWORK
    kill(rack.daemon_pid(), signal.SIGKILL)
    serial.hears(REBOOTS)
    assert serial.hears(NETWORK, DISK) == DISK
    assert rack.json("node", "show", "n")["boot"] == "as the file says"


def test_pyghmi_powers_and_boots_a_machine(rack: Rack, client: Callable[..., str]) -> None:
    _, bmc, serial = up(rack, firmware="bios", disk=guests.speaking_disk())
    host, port = bmc["ipmi"].split(":")
    access = (host, port, bmc["username"], bmc["password"])
    assert client(PYGHMI, *access, "", "on") == "on default"
    assert serial.hears(FIRMWARE_TRIES_NETWORK, DISK) == DISK
    assert client(PYGHMI, *access, "network", "boot").startswith("on")
    assert serial.hears(FIRMWARE_TRIES_NETWORK, DISK) == FIRMWARE_TRIES_NETWORK
    assert client(PYGHMI, *access, "", "off") == "off default"
