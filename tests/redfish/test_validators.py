"""DMTF's own validators find nothing wrong, and their warnings are each explained."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nospoon.bmc.messages import VolumesRequested
from nospoon.model.cluster import Firmware
from nospoon.model.machine import AddedVolume, PowerCommand
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import client
from nospoon.testing.validated import environment

pytestmark = [pytest.mark.tools]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
EXPLAINED = {
    r"/IndicatorLED": "older clients know no LocationIndicatorActive",
    r"/(Power|Thermal)( |/)": "Ironic and most others read these, not their successors",
    r"/@odata.id .*/Chassis/[^/]*/(Power|Thermal)\)": "the same",
    r"/EventTypesForSubscription": "sushy and other older clients subscribe by type of event",
    r"/VirtualMedia ": "Ironic looks for it below managers too",
    r"/@odata.id .*/Managers/[^/]*/VirtualMedia": "the same",
}
"""Of each warning, by a pattern of its text, why it is one."""
ENOUGH = 600
"""Checks that must have passed: a run that reached nothing finds nothing wrong either."""


def schemas() -> Path:
    """DSP8010's CSDL files, which are not ours to copy."""
    given = os.environ.get("NOSPOON_DSP8010")
    place = Path(given) if given else ROOT.parent / "shared" / "dsp8010" / "csdl"
    if not place.is_dir():
        pytest.skip("DMTF's schemas (DSP8010) are not here")
    return place


async def validated(rack: Bench, place: Path, csdl: Path) -> tuple[dict[str, int], list[str]]:
    """Counts of the service validator's table, and the texts of its warnings and failures."""
    bmc = rack.first.bmc
    argv = [
        *(str(BIN / "rf_service_validator"), "-r"),
        f"{'https' if bmc.tls else 'http'}://{bmc.address}:{bmc.redfish_port}",
        *("-u", bmc.username, "-p", rack.first.password, "--nooemcheck"),
        *("--schema_directory", str(csdl), "--logdir", str(place)),
    ]
    done = await asyncio.to_thread(
        subprocess.run, argv, text=True, capture_output=True, env=environment(), timeout=240,
        check=False,
    )  # fmt: skip
    table = re.search(r"\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|\s+(\d+)\s+\|", done.stdout)
    assert table is not None, done.stdout[-2000:] + done.stderr[-2000:]
    counts = dict(zip(("pass", "warn", "fail", "untested"), map(int, table.groups()), strict=True))
    (report,) = place.glob("*/*Debug*.log")
    told = re.findall(r" - (?:WARN|FAIL) - (.*)", report.read_text())
    return counts, told


async def subscribe(rack: Bench) -> None:
    """So that there is a subscription to be looked at."""
    wanted = {"Destination": "https://127.0.0.1:1/", "Protocol": "Redfish", "Context": "x"}
    place = "/redfish/v1/EventService/Subscriptions"
    assert (await client(rack.first).ask("POST", place, wanted)).status == 201


@pytest.mark.parametrize("firmware", [Firmware.BIOS, Firmware.UEFI_SECURE])
async def test_the_service_validator_finds_nothing_wrong(
    firmware: Firmware, tmp_path: Path
) -> None:
    csdl = schemas()
    tls = tmp_path / "certificates" if firmware is Firmware.UEFI_SECURE else None
    async with bench(1, firmware=firmware, tls=tls) as rack:
        volume = AddedVolume("0badcafe", 1 << 30, "data", "RAID1", (0,))
        served = rack.service.status(rack.first.bmc.uuid)
        assert served is not None
        await rack.service.put(with_disk(rack.first))
        await rack.service.ask(served, lambda ticket: VolumesRequested((volume,), ticket))
        await rack.service.power(rack.first.bmc.uuid, PowerCommand.ON)
        await rack.media.insert(rack.first.bmc.uuid, "http://h/images/x.iso")
        await subscribe(rack)
        counts, told = await validated(rack, tmp_path, csdl)
    unexplained = [line for line in told if not any(re.match(p, line) for p in EXPLAINED)]
    assert unexplained == []
    assert counts["fail"] == 0
    assert counts["pass"] > ENOUGH


def test_the_protocol_validator_finds_nothing_wrong_over_tls(tmp_path: Path) -> None:
    inside = f"ip link set lo up && exec {sys.executable} -m nospoon.testing.validated {tmp_path}"
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", inside], text=True, capture_output=True, timeout=300,
        check=True,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["FAIL"] == []
    assert found["WARN"] == []
    assert found["PASS"] > 250
