"""sushy, which is what Ironic's redfish driver uses, and agreement with IPMI."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.runtime import process
from nospoon.testing.bench import bench

pytestmark = pytest.mark.tools

SUSHY = """
import json, sys
import sushy
from sushy import auth
url, user, password, uuid, kind = sys.argv[1:]
method = {"basic": auth.BasicAuth, "session": auth.SessionAuth}[kind](user, password)
root = sushy.Sushy(url, auth=method)
[system] = root.get_system_collection().get_members()
assert system.uuid == uuid
told = {"before": system.power_state.value, "memory": system.memory_summary.size_gib}
system.set_system_boot_options(
    target=sushy.BootSource.PXE,
    enabled=sushy.BootSourceOverrideEnabled.ONCE,
    mode=sushy.BootSourceOverrideMode.UEFI,
)
system.refresh()
told["boot"] = [system.boot.target.value, system.boot.enabled.value, system.boot.mode.value]
system.reset_system(sushy.ResetType.ON)
system.refresh()
told["after"] = system.power_state.value
told["macs"] = {mac: state.value for mac, state in system.ethernet_interfaces.summary.items()}
told["manager"] = system.managers[0].identity
told["chassis"] = system.chassis[0].chassis_type.value
system.set_system_boot_options(
    target=sushy.BootSource.HDD, enabled=sushy.BootSourceOverrideEnabled.CONTINUOUS
)
system.reset_system(sushy.ResetType.FORCE_OFF)
print(json.dumps(told))
"""


@pytest.mark.parametrize("kind", ["basic", "session"])
async def test_sushy_sets_boot_and_powers(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(2, firmware=Firmware.UEFI) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        argv = [sys.executable, str(script), url, "admin", b.first.password, str(bmc.uuid), kind]
        told = json.loads((await process.run(argv)).stdout)
        assert told == {
            "before": "Off",
            "memory": 1,  # of 1.5: sushy counts in whole GiB
            "boot": ["Pxe", "Once", "UEFI"],
            "after": "On",
            "macs": {b.first.machine.nics[0].mac: "Enabled"},
            "manager": str(bmc.uuid),
            "chassis": "StandAlone",
        }
        (_, on, plan), (_, off, _) = b.machines.told
        assert (on, off) == (PowerCommand.ON, PowerCommand.OFF)
        assert plan.now[0] is BootDevice.NETWORK
        served = b.service.status(bmc.uuid)
        assert served is not None
        wanted = BootOverride(BootDevice.DISK, OverrideEnabled.CONTINUOUS, BootMode.UEFI)
        assert served.override == wanted


async def test_what_one_protocol_sets_the_other_tells(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(SUSHY)
    async with bench(1, firmware=Firmware.UEFI) as b:
        bmc = b.first.bmc
        url = f"http://{bmc.address}:{bmc.redfish_port}"
        await process.run(
            [sys.executable, str(script), url, "admin", b.first.password, str(bmc.uuid), "basic"]
        )
        ipmitool = ["ipmitool", "-I", "lanplus", "-H", bmc.address, "-p", str(bmc.ipmi_port)]
        ipmitool += ["-U", "admin", "-P", b.first.password]
        flags = await process.run([*ipmitool, "chassis", "bootparam", "get", "5"])
        assert "all future boots" in flags.stdout
        assert "Hard-Drive" in flags.stdout
        assert "BIOS EFI boot" in flags.stdout
        power = await process.run([*ipmitool, "power", "status"])
        assert "off" in power.stdout


REGISTRIES = """
import json, sys
import sushy
from sushy import auth
url, user, password = sys.argv[1:]
asked = []
class Internet:
    def get(self, path="", **more):
        asked.append(path)
root = sushy.Sushy(url, auth=auth.BasicAuth(user, password), public_connector=Internet())
known = {name: sorted(each.messages or ()) for name, each in root.registries.items()
         if hasattr(each, "messages")}
print(json.dumps([known, asked]))
"""


async def test_sushy_knows_the_messages_without_the_internet(tmp_path: Path) -> None:
    script = tmp_path / "client.py"
    script.write_text(REGISTRIES)
    async with bench(1) as b:
        url = f"http://{b.first.bmc.address}:{b.first.bmc.redfish_port}"
        argv = [sys.executable, str(script), url, "admin", b.first.password]
        known, asked = json.loads((await process.run(argv)).stdout)
    assert asked == []
    assert "PropertyUnknown" in known["Base.1.18"]
    assert "ResourcePoweredOn" in known["ResourceEvent.1.3"]
    assert "TaskCompletedOK" in known["TaskEvent.1.0"]
