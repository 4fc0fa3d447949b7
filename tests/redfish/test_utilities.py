"""DMTF's scripts (redfish-utilities) each do what they are for; some have tests of their own."""

from __future__ import annotations

import pytest

from nospoon.model.boot import BootDevice
from nospoon.model.machine import PowerCommand
from nospoon.testing import dmtf_tools
from nospoon.testing.bench import bench
from nospoon.testing.redfish import client, system_of

pytestmark = [pytest.mark.tools]

SHOWN = {
    "rf_sys_inventory.py": "Processor: CPU0",
    "rf_sensor_list.py": "CPU Temp",
    "rf_power_reset.py --info": "Current power state: Off",
    "rf_boot_override.py --info": "Allowable Values: None, Pxe, UefiHttp, Hdd, Cd, BiosSetup",
    "rf_bios_settings.py": "BootTimeout",
    "rf_virtual_media.py info": "MediaTypes: CD, DVD",
    "rf_manager_config.py info": "PowerState: On",
    "rf_manager_config.py getnet": "127.0.0.1: 255.255.255.255",
    "rf_manager_config.py getprotocol": "IPMI ",
    "rf_firmware_inventory.py": "BIOS ",
    "rf_sel.py": "Timestamp",
    "rf_raw_request.py --request /redfish/v1": '"RedfishVersion"',
}
"""What a script with these options shows of a new machine, among other things."""


async def test_what_there_is_is_shown() -> None:
    async with bench(1) as b:
        for line, told in SHOWN.items():
            assert told in await dmtf_tools.run(b, *line.split()), line


async def test_a_machine_is_set_up_and_turned_on() -> None:
    async with bench(1) as b:
        await dmtf_tools.run(b, "rf_bios_settings.py", "--attribute", "NumLock", "Off")
        await dmtf_tools.run(b, "rf_boot_override.py", "--target", "Pxe")
        await dmtf_tools.run(b, "rf_power_reset.py", "--type", "On")
        ((_, command, plan),) = b.machines.told
        assert (command, plan.now[0]) == (PowerCommand.ON, BootDevice.NETWORK)
        bios = (await client(b.first).get(f"{system_of(b.first)}/Bios")).json["Attributes"]
        assert bios["NumLock"] == "Off"
        await dmtf_tools.run(b, "rf_virtual_media.py", "insert", "--image", "http://h/images/x.iso")
        assert "ImageName: x.iso" in await dmtf_tools.run(b, "rf_virtual_media.py", "info")
        await dmtf_tools.run(b, "rf_virtual_media.py", "eject", "--id", "Cd")
        assert "Inserted: False" in await dmtf_tools.run(b, "rf_virtual_media.py", "info")
