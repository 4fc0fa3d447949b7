"""Real machines boot over the network, by each kind of firmware, and go on where they should."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

import pytest
import structlog

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Firmware
from nospoon.model.resources.netboot import Loader, NetbootService, Reservation
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.probe.build import Probe, command_line
from nospoon.probe.compare import FIRMWARE_TAKES
from nospoon.runtime import clock
from nospoon.services.netboot.driver import NetbootDriver
from nospoon.services.netboot.http import create_app
from nospoon.services.netboot.iso import build_boot_iso
from nospoon.services.netboot.peers import Peers
from nospoon.services.netboot.ports import BootAnswer, ServedFile, ServedProfile
from nospoon.services.netboot.serving import HttpListeners
from nospoon.testing import disks, guests
from nospoon.testing.bench import free_port
from nospoon.testing.netboot import TOKEN, Hardware, ToldAuthority, running, served

log = structlog.get_logger()

pytestmark = [pytest.mark.boots, pytest.mark.timeout(900)]


class Net(Protocol):
    name: str
    tap: str

    def host(self, number: int) -> str: ...


def profile(probe: Probe, report: str) -> ServedProfile:
    return ServedProfile(
        name="probe",
        kernel=ServedFile(str(probe.kernel), "kernel"),
        initrd=(ServedFile(str(probe.initrd), "initrd"),),
        cmdline=command_line(probe.arch, report=report, after="poweroff"),
    )


def nic(net: Net, mac: str, *, rom: str) -> list[str]:
    device = f"virtio-net-pci,netdev=n,mac={mac},bootindex=1"
    return [
        *("-netdev", f"tap,id=n,ifname={net.tap},script=no,downscript=no"),
        *("-device", device if rom == "iPXE" else f"{device},romfile="),
    ]


def known(service: Resource, reserved: Reservation) -> Resource:
    """The service with the machine that boots: others are told nothing."""
    assert isinstance(service.shape, NetbootService)
    return replace(service, shape=replace(service.shape, reservations=(reserved,)))


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
        mac, bridge.host(20), "node-1", uuid,
        loader=Loader.SHIM if firmware is Firmware.UEFI_SECURE else Loader.IPXE,
    )  # fmt: skip
    report = f"http://{bridge.host(1)}:{driver.http_port}/probe/{uuid}/{TOKEN}"
    authority.answers[uuid] = BootAnswer(
        uuid, BootDevice.NETWORK, profile(probe, report), user_mode=True
    )
    await driver.create(known(service, reserved), tag)
    hardware = Hardware(firmware, uuid, tmp_path, memory, nic(bridge, mac, rom=rom))
    began = clock.monotonic()
    async with running(hardware) as guest:
        await guest.until(b"nospoon-probe: hello")
        hello = clock.monotonic() - began
        record = await guest.record()
        log.info("booted", firmware=firmware, hello=hello, record=clock.monotonic() - began)
        log.info("memory", kept=record.memory - record.memory_mapped)
        await guest.until(b"nospoon-probe: done")
    assert UUID(record.uuid) == uuid
    assert record.firmware == ("bios" if firmware is Firmware.BIOS else "uefi")
    assert record.secure_boot is (firmware is Firmware.UEFI_SECURE)
    assert record.memory == memory << 20
    assert record.memory - record.memory_mapped < FIRMWARE_TAKES
    assert [found.mac for found in record.nics] == [mac]
    assert [reported for reported, _ in authority.reports] == [uuid]


@pytest.mark.parametrize("firmware", [Firmware.BIOS, Firmware.UEFI])
async def test_a_machine_with_nothing_to_boot_from_the_network_goes_on_to_its_disk(
    firmware: Firmware,
    bridge: Net,
    driver: NetbootDriver,
    authority: ToldAuthority,
    service: Resource,
    tag: OwnerTag,
    tmp_path: Path,
) -> None:
    uuid, mac = uuid4(), "02:00:00:00:00:5f"
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.NETWORK, user_mode=True)
    reserved = Reservation(mac, bridge.host(21), "node-2", uuid)
    await driver.create(known(service, reserved), tag)
    rom = "iPXE" if firmware is Firmware.BIOS else "none"
    more = [*nic(bridge, mac, rom=rom), *disk(firmware, tmp_path)]
    async with running(Hardware(firmware, uuid, tmp_path, 256, more)) as guest:
        await guest.until(b"nothing to boot from the network")
        await guest.until(disks.GREETING)
    assert authority.boots == [uuid]


@pytest.fixture
def web(bridge: Net, tmp_path: Path) -> Iterator[str]:
    """URL of a directory, `web` below `tmp_path`, that somebody else serves on the bridge."""
    (tmp_path / "web").mkdir()
    with served(tmp_path / "web", bridge.host(1)) as url:
        yield url


@pytest.mark.parametrize("what", ["program.efi", "disc.iso"])
async def test_a_uefi_machine_boots_by_http_what_its_bmc_says(
    what: str,
    web: str,
    bridge: Net,
    driver: NetbootDriver,
    authority: ToldAuthority,
    service: Resource,
    tag: OwnerTag,
    tmp_path: Path,
) -> None:
    if what == "disc.iso":
        (await guests.speaking_cd(tmp_path, firmware=Firmware.UEFI)).rename(tmp_path / "web" / what)
    else:
        disks.uefi_disk(tmp_path / "disk.raw")
        (tmp_path / "disk.efi").rename(tmp_path / "web" / what)
    uuid, mac = uuid4(), "02:00:00:00:00:60"
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.HTTP, uri=f"{web}/{what}", user_mode=True)
    reserved = Reservation(mac, bridge.host(22), "node-3", uuid)
    await driver.create(known(service, reserved), tag)
    more = nic(bridge, mac, rom="iPXE")
    async with running(Hardware(Firmware.UEFI, uuid, tmp_path, 320, more)) as guest:
        await guest.until(b"nospoon: boot http")
        await guest.until(guests.BOOTED if what == "disc.iso" else disks.GREETING)


def disk(firmware: Firmware, directory: Path) -> list[str]:
    make = disks.bios_disk if firmware is Firmware.BIOS else disks.uefi_disk
    path = make(directory / "disk.raw")
    path.chmod(0o666)
    return [
        *("-drive", f"file={path},format=raw,if=none,id=d"),
        *("-device", "virtio-blk-pci,drive=d,bootindex=2"),
    ]


QEMU_MAC = "52:54:00:12:34:56"
"""Of a NIC that was given none."""


def session(iso: Path) -> list[str]:
    """What a machine of an unprivileged host has: user-mode networking, and our ISO first."""
    return [
        *("-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n,bootindex=3"),
        *("-drive", f"file={iso},media=cdrom,if=none,id=cd,readonly=on"),
        *("-device", "ide-cd,drive=cd,bootindex=1"),
    ]


@pytest.fixture
async def iso(url: str, state: Path) -> Path:
    return await build_boot_iso(base_url=url, place=state)


BOTH = pytest.mark.parametrize(
    ("firmware", "memory"), [(Firmware.BIOS, 128), (Firmware.UEFI, 320)], ids=["bios", "uefi"]
)


@BOTH
async def test_an_unprivileged_machine_boots_the_probe_by_our_iso(
    firmware: Firmware,
    memory: int,
    iso: Path,
    url: str,
    state: Path,
    authority: ToldAuthority,
    probe: Probe,
) -> None:
    uuid = uuid4()
    report = f"{url}/probe/${{uuid}}/{TOKEN}"
    authority.answers[uuid] = BootAnswer(
        uuid, BootDevice.NETWORK, profile(probe, report), user_mode=True
    )
    hardware = Hardware(firmware, uuid, state, memory, session(iso), unprivileged=True)
    began = clock.monotonic()
    async with running(hardware) as guest:
        record = await guest.record()
        log.info("booted by ISO", firmware=firmware, record=clock.monotonic() - began)
        await guest.until(b"nospoon-probe: done")
    assert UUID(record.uuid) == uuid
    assert authority.boots == [uuid]
    assert [reported for reported, _ in authority.reports] == [uuid]


@BOTH
async def test_our_iso_boots_the_disk_when_the_daemon_says_so(
    firmware: Firmware, memory: int, iso: Path, state: Path, authority: ToldAuthority
) -> None:
    uuid = uuid4()
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.DISK, user_mode=True)
    more = [*session(iso), *disk(firmware, state)]
    async with running(Hardware(firmware, uuid, state, memory, more, unprivileged=True)) as guest:
        await guest.until(b"nospoon: boot the disk")
        await guest.until(disks.GREETING)
    assert authority.boots == [uuid]


async def test_our_iso_leaves_an_empty_disk_without_looking_for_drivers_that_it_does_not_have(
    iso: Path, state: Path, authority: ToldAuthority
) -> None:
    """GRUB looked for a module of each file system that it knows, with an error for each."""
    uuid = uuid4()
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.DISK, user_mode=True)
    (state / "empty.raw").write_bytes(b"")
    os.truncate(state / "empty.raw", 1 << 30)
    (state / "empty.raw").chmod(0o666)
    more = [
        *session(iso),
        *("-drive", f"file={state / 'empty.raw'},format=raw,if=none,id=d"),
        *("-device", "virtio-blk-pci,drive=d,bootindex=2"),
    ]
    hardware = Hardware(Firmware.UEFI, uuid, state, 320, more, unprivileged=True)
    async with running(hardware) as guest:
        await guest.until(b"nospoon: leaving to the next boot device")
    assert b"error:" not in guest.said


@BOTH
async def test_our_iso_asks_until_the_daemon_is_there_by_uuid_and_by_mac(
    firmware: Firmware, memory: int, state: Path, authority: ToldAuthority, peers: Peers
) -> None:
    listeners = HttpListeners(
        create_app(authority, peers, ready=lambda: True), port=free_port(socket.SOCK_STREAM)
    )
    iso = await build_boot_iso(base_url=f"http://10.0.2.2:{listeners.port}", place=state)
    uuid = authority.macs[QEMU_MAC] = uuid4()
    authority.answers[uuid] = BootAnswer(uuid, BootDevice.DISK, user_mode=True)
    more = [*session(iso), *disk(firmware, state)]
    hardware = Hardware(firmware, uuid4(), state, memory, more, unprivileged=True)
    try:
        async with running(hardware) as guest:
            await guest.until(b"no answer from")
            assert disks.GREETING not in guest.said
            await listeners.open("127.0.0.1")
            await guest.until(b"nospoon: boot the disk")
            await guest.until(disks.GREETING)
    finally:
        await listeners.close_all()
    assert authority.boots == [uuid]
