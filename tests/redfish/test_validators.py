"""DMTF's own validators find nothing wrong, and their warnings are each explained."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nospoon.bmc.messages import VolumesRequested
from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.node_kind import NodeKind
from nospoon.model.volumes import AddedVolume
from nospoon.providers.libvirt.key_databases import key_databases
from nospoon.providers.libvirt.varstore import LARGEST
from nospoon.testing.bench import Bench, bench, with_disk
from nospoon.testing.redfish import client
from nospoon.testing.trees import remove_tree
from nospoon.testing.validated import Found, Target, check_service

pytestmark = [pytest.mark.tools, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
EXPLAINED = {
    r"/IndicatorLED": "older clients know no LocationIndicatorActive",
    r"/(Power|Thermal)( |/)": "Ironic and most others read these, not their successors",
    r"/@odata.id .*/Chassis/[^/]*/(Power|Thermal)\)": "the same",
    r"/Messages/[^/]*/Severity ": "sushy knows no MessageSeverity",
    r"/EventTypesForSubscription": "sushy and other older clients subscribe by type of event",
    r"/VirtualMedia ": "Ironic looks for it below managers too",
    r"/@odata.id .*/Managers/[^/]*/VirtualMedia": "the same",
}
"""Of each warning, by a pattern of its text, why it is one."""
CONTAINER: Any = {"kind": NodeKind.CONTAINER, "boot": BootMethod.NONE}
ENOUGH = 600
"""Checks that must have passed: a run that reached nothing finds nothing wrong either."""


def schemas() -> Path:
    """DSP8010's CSDL files, which are not ours to copy."""
    given = os.environ.get("NOSPOON_DSP8010")
    place = Path(given) if given else ROOT.parent / "shared" / "dsp8010" / "csdl"
    if not place.is_dir():
        pytest.skip("DMTF's schemas (DSP8010) are not here")
    return place


def unexplained(found: Found) -> list[str]:
    return [line for line in found.warnings if not any(re.match(p, line) for p in EXPLAINED)]


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
        flash = Path("/usr/share/OVMF/OVMF_VARS_4M.ms.fd").read_bytes()
        rack.machines.keys = key_databases(flash[:LARGEST])
        volume = AddedVolume("0badcafe", 1 << 30, "data", "RAID1", (0,))
        served = rack.service.status(rack.first.bmc.uuid)
        assert served is not None
        await rack.service.put(with_disk(rack.first))
        await rack.service.ask(served, lambda ticket: VolumesRequested((volume,), ticket))
        await rack.service.power(rack.first.bmc.uuid, PowerCommand.ON)
        await rack.media.insert(rack.first.bmc.uuid, "http://h/images/x.iso")
        await subscribe(rack)
        bmc = rack.first.bmc
        url = f"{'https' if bmc.tls else 'http'}://{bmc.address}:{bmc.redfish_port}"
        target = Target(url, bmc.username, rack.first.password)
        found = await asyncio.to_thread(check_service, target, tmp_path, csdl)
    assert (found.failures, unexplained(found)) == ([], [])
    assert found.passed > ENOUGH


async def test_the_service_validator_finds_nothing_wrong_with_a_container(tmp_path: Path) -> None:
    csdl = schemas()
    async with bench(1, firmware=Firmware.UEFI) as rack:
        made = with_disk(rack.first)
        await rack.service.put(replace(made, machine=replace(made.machine, **CONTAINER)))
        bmc = rack.first.bmc
        target = Target(f"http://{bmc.address}:{bmc.redfish_port}", bmc.username, made.password)
        found = await asyncio.to_thread(check_service, target, tmp_path, csdl)
    assert (found.failures, unexplained(found)) == ([], [])
    assert found.passed > ENOUGH


def alone(*argv: object) -> dict[str, Found]:
    """What the validators find in a namespace of their own."""
    words = " ".join(map(str, (sys.executable, "-m", "nospoon.testing.validated", *argv)))
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", f"ip link set lo up && exec {words}"], text=True,
        capture_output=True, timeout=1700, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: Found(**each) for name, each in told.items()}


def test_the_protocol_validator_finds_nothing_wrong_over_tls(tmp_path: Path) -> None:
    found = alone(tmp_path)["protocol"]
    assert (found.failures, found.warnings) == ([], [])
    assert found.passed > 250


@pytest.mark.libvirt
def test_neither_finds_anything_wrong_with_a_real_machine(searchable: Path) -> None:
    found = alone(searchable, schemas())
    assert (found["service"].failures, unexplained(found["service"])) == ([], [])
    assert found["service"].passed > ENOUGH
    assert (found["protocol"].failures, found["protocol"].warnings) == ([], [])
    assert found["protocol"].passed > 250


@pytest.fixture
def searchable() -> Iterator[Path]:
    """A directory in which the hypervisor may open disks."""
    place = Path(tempfile.mkdtemp(prefix="nospoon-validated-"))
    place.chmod(0o711)
    yield place
    remove_tree(place)
