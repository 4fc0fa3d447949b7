"""What a machine lacks is not shown: a container has no firmware, and boots no medium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from nospoon.model.boot import BootMethod
from nospoon.model.cluster import Firmware
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import MachineDisk
from nospoon.testing.bench import Bench, bench
from nospoon.testing.redfish import client, system_of

INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
UPDATE = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
FIRMWARE = {"Bios", "BiosVersion", "SecureBoot"}


@pytest.fixture
async def b() -> AsyncIterator[Bench]:
    """The first one is of a container, the second one of bare metal."""
    async with bench(2, firmware=Firmware.UEFI) as made:
        made.service.reshape(replace(made.first.machine, kind=NodeKind.CONTAINER))
        yield made


def manager_of(b: Bench) -> str:
    return f"/redfish/v1/Managers/{b.first.bmc.uuid}"


async def got(b: Bench, path: str, number: int = 0) -> Any:
    return (await client(b.configs[number]).get(path)).json


async def test_no_link_leads_to_what_is_not_there(b: Bench) -> None:
    system, manager = await got(b, system_of(b.first)), await got(b, manager_of(b))
    assert not {*FIRMWARE, "VirtualMedia"} & system.keys()
    assert "VirtualMedia" not in manager
    assert "BootSourceOverrideMode" not in system["Boot"]
    assert system["Model"] == "x86_64"
    assert "Nmi" not in resets(system)
    other = await got(b, system_of(b.configs[1]), 1)
    assert other.keys() >= {*FIRMWARE, "VirtualMedia"}
    assert "BootSourceOverrideMode" in other["Boot"]
    assert "Nmi" in resets(other)
    assert await components(b, 0) == ["BMC"]
    assert await components(b, 1) == ["BIOS", "BMC"]


async def test_a_container_has_no_emulated_parts(b: Bench) -> None:
    disks = (MachineDisk("n-0", "virtio", "s0"), MachineDisk("n-1", "virtio", "s1", mount="/a"))
    for config, kind in zip(b.configs, (NodeKind.CONTAINER, NodeKind.BAREMETAL), strict=True):
        b.service.reshape(replace(config.machine, disks=disks, kind=kind))
    chassis = system_of(b.first).replace("Systems", "Chassis")
    names = ("QEMU", "DDR4", "PCIe", "MediaType", "SerialNumber")
    texts = []
    for number in (0, 1):
        system = system_of(b.configs[number])
        drive = system.replace("Systems", "Chassis") + "/Drives/0"
        ends = ("Processors/CPU0", "Memory/DIMM0", "Storage/0", "Storage/0/Controllers/0")
        parts = [await got(b, f"{system}/{end}", number) for end in ends]
        parts.append(await got(b, drive, number))
        assert all("Name" in each for each in parts)
        texts.append(str(parts))
    assert [[name for name in names if name in text] for text in texts] == [[], list(names)]
    assert (await got(b, system_of(b.first)))["ProcessorSummary"]["Model"] == "x86_64"
    other = await got(b, system_of(b.configs[1]), 1)
    assert other["ProcessorSummary"]["Model"] == "QEMU x86_64"
    models = [(await got(b, f"{chassis}/Drives/{number}"))["Model"] for number in (0, 1)]
    assert models == ["root file system", "file system at /a"]


def resets(system: Any) -> list[str]:
    allowed = "ResetType@Redfish.AllowableValues"
    return list(system["Actions"]["#ComputerSystem.Reset"][allowed])


async def components(b: Bench, number: int) -> list[str]:
    members = (await got(b, INVENTORY, number))["Members"]
    return sorted(each["@odata.id"].rpartition("-")[2] for each in members)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "{system}/Bios"),
        ("GET", "{system}/Bios/Settings"),
        ("PATCH", "{system}/Bios/Settings"),
        ("POST", "{system}/Bios/Actions/Bios.ResetBios"),
        ("POST", "{system}/Bios/Actions/Bios.ChangePassword"),
        ("GET", "{system}/SecureBoot"),
        ("PATCH", "{system}/SecureBoot"),
        ("POST", "{system}/SecureBoot/Actions/SecureBoot.ResetKeys"),
        ("GET", "{system}/SecureBoot/SecureBootDatabases"),
        ("GET", "{system}/SecureBoot/SecureBootDatabases/db"),
        ("GET", "{owner}/VirtualMedia"),
        ("GET", "{owner}/VirtualMedia/Cd"),
        ("PATCH", "{owner}/VirtualMedia/Cd"),
        ("POST", "{owner}/VirtualMedia/Cd/Actions/VirtualMedia.InsertMedia"),
        ("POST", "{owner}/VirtualMedia/Cd/Actions/VirtualMedia.EjectMedia"),
        ("GET", "{bios}"),
    ],
)
async def test_its_path_is_not_found(b: Bench, method: str, path: str) -> None:
    body = {"Image": "http://192.0.2.1/x.iso"} if path.endswith("InsertMedia") else {}
    for owner in (system_of(b.first), manager_of(b)):
        bios = f"{INVENTORY}/{b.first.bmc.uuid}-BIOS"
        wanted = path.format(system=system_of(b.first), owner=owner, bios=bios)
        answer = await client(b.first).ask(method, wanted, None if method == "GET" else body)
        assert answer.status == 404, wanted
    assert not b.media.asked


async def test_only_what_has_firmware_is_updated_with_some(b: Bench) -> None:
    image = {"ImageURI": "http://192.0.2.1/bios-9.9.1.bin"}
    for path in (f"{INVENTORY}/{b.first.bmc.uuid}-BIOS", f"{system_of(b.first)}/Bios"):
        refused = await client(b.first).ask("POST", UPDATE, {**image, "Targets": [path]})
        assert refused.status == 404
    refused = await client(b.first).ask("POST", UPDATE, image)
    assert (refused.status, refused.message) == (400, "ActionParameterValueNotInList")
    assert (await client(b.configs[1]).ask("POST", UPDATE, image)).status == 202
    of_bmc = {"ImageURI": "http://192.0.2.1/bmc-9.9.2.bin"}
    assert (await client(b.first).ask("POST", UPDATE, of_bmc)).status == 202


async def test_a_vm_that_boots_its_root_alone_has_firmware_and_no_virtual_media() -> None:
    async with bench(1, firmware=Firmware.UEFI) as b:
        shape = replace(b.first.machine, kind=NodeKind.VM, boot=BootMethod.NONE)
        b.service.reshape(shape)
        system = await got(b, system_of(b.first))
        assert system.keys() >= FIRMWARE
        assert "VirtualMedia" not in system
