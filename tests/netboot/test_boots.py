"""Real machines boot the probe over the network, by each kind of firmware."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

import pytest
import structlog

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources import NetbootService, OwnerTag, Reservation, Resource
from nospoon.probe.build import Probe, command_line
from nospoon.runtime import clock
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile
from nospoon.testing.netboot import Hardware, ToldAuthority, running

log = structlog.get_logger()

pytestmark = [pytest.mark.boots, pytest.mark.timeout(150)]


class Net(Protocol):
    name: str
    tap: str

    def host(self, number: int) -> str: ...


def profile(probe: Probe, report: str) -> ServedProfile:
    return ServedProfile(
        name="probe",
        kernel=ServedFile(str(probe.kernel), "kernel"),
        initrd=(ServedFile(str(probe.initrd), "initrd"),),
        cmdline=command_line(Arch.X86_64, report=report, after="poweroff"),
    )


def nic(net: Net, mac: str, *, rom: str) -> list[str]:
    device = f"virtio-net-pci,netdev=n,mac={mac},bootindex=1"
    return [
        *("-netdev", f"tap,id=n,ifname={net.tap},script=no,downscript=no"),
        *("-device", device if rom == "iPXE" else f"{device},romfile="),
    ]


@pytest.mark.parametrize(
    ("firmware", "memory", "rom"),
    [
        (Firmware.BIOS, 128, "iPXE"),
        (Firmware.UEFI, 256, "none"),
        (Firmware.UEFI, 256, "iPXE"),
        (Firmware.UEFI_SECURE, 512, "none"),
    ],
    ids=["bios", "uefi", "uefi with iPXE in the NIC", "uefi-secure"],
)
async def test_a_machine_boots_the_probe_over_the_network(
    firmware: Firmware,
    memory: int,
    rom: str,
    bridge: Net,
    driver: NetbootDriver,
    authority: ToldAuthority,
    service: Resource,
    tag: OwnerTag,
    probe: Probe,
    tmp_path: Path,
) -> None:
    uuid, mac = uuid4(), "02:00:00:00:00:5e"
    reserved = Reservation(
        mac, bridge.host(20), "node-1", uuid, secure=firmware is Firmware.UEFI_SECURE
    )
    assert isinstance(service.shape, NetbootService)
    wanted = replace(service, shape=replace(service.shape, reservations=(reserved,)))
    report = f"http://{bridge.host(1)}:{driver.http_port}/probe/{uuid}"
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.NETWORK, profile(probe, report))
    await driver.create(wanted, tag)
    hardware = Hardware(firmware, uuid, tmp_path, memory, nic(bridge, mac, rom=rom))
    began = clock.monotonic()
    async with running(hardware) as guest:
        await guest.until(b"nospoon-probe: hello")
        hello = clock.monotonic() - began
        record = await guest.record()
        log.info("booted", firmware=firmware, hello=hello, record=clock.monotonic() - began)
        await guest.until(b"nospoon-probe: done")
    assert UUID(record.uuid) == uuid
    assert record.firmware == ("bios" if firmware is Firmware.BIOS else "uefi")
    assert record.secure_boot is (firmware is Firmware.UEFI_SECURE)
    assert record.memory == memory << 20
    assert [found.mac for found in record.nics] == [mac]
    assert [reported for reported, _ in authority.reports] == [uuid]
