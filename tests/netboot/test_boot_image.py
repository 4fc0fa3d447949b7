"""Machines as clouds make them: the boot image alone in their boot order, and a display."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Firmware
from nospoon.probe.build import Probe, command_line
from nospoon.protocols.ipxe import starters
from nospoon.services.netboot.iso import build_boot_image, build_boot_iso
from nospoon.services.netboot.ports import BootAnswer, ServedFile
from nospoon.testing import disks, guests
from nospoon.testing.netboot import Guest, Hardware, ToldAuthority, running, served

BOTH = pytest.mark.parametrize(
    ("firmware", "memory"), [(Firmware.BIOS, 128), (Firmware.UEFI, 320)], ids=["bios", "uefi"]
)
MAC = "02:00:00:00:00:02"


def layout(
    image: Path, tftp: Path, disk: Path, firmware: Firmware, *, reaches: bool = False
) -> list[str]:
    """What Nova's libvirt driver makes of an ISO image and a blank disk. The first NIC gets an
    address, but does not reach the daemon, unless it `reaches` it.
    """
    # SeaBIOS leaves out virtio disks that are not in the boot order
    device = "ide-hd,bus=ide.1" if firmware is Firmware.BIOS else "virtio-blk-pci"
    return [
        *("-boot", "strict=on"),
        *("-netdev", f"user,id=n0,restrict={'off' if reaches else 'on'}"),
        *("-device", "virtio-net-pci,netdev=n0,mac=02:00:00:00:00:01"),
        *("-netdev", f"user,id=n1,tftp={tftp},bootfile=pxe.ipxe"),
        *("-device", f"virtio-net-pci,netdev=n1,mac={MAC}"),
        *("-drive", f"file={image},media=cdrom,if=none,id=cd,readonly=on"),
        *("-device", "ide-cd,drive=cd,bus=ide.0,bootindex=1"),
        *("-drive", f"file={disk},format=raw,if=none,id=d"),
        *("-device", f"{device},drive=d"),
    ]


@pytest.fixture
async def image(url: str, state: Path) -> Path:
    return await build_boot_image(base_url=url, place=state / "images")


@pytest.fixture
def tftp(state: Path) -> Path:
    """A directory whose script says that PXE got to it, and gives up."""
    place = state / "tftp"
    place.mkdir()
    (place / "pxe.ipxe").write_text("#!ipxe\necho PXE-SERVED\nexit 1\n")
    return place


@BOTH
@pytest.mark.boots
@pytest.mark.timeout(600)
async def test_a_machine_asks_until_it_is_answered_and_then_tries_all_that_it_is_offered(
    firmware: Firmware,
    memory: int,
    image: Path,
    url: str,
    tftp: Path,
    state: Path,
    authority: ToldAuthority,
) -> None:
    """First it is unknown, then known by a MAC; nothing boots but the disk."""
    node = uuid4()
    disk = (disks.bios_disk if firmware is Firmware.BIOS else disks.uefi_disk)(state / "disk.raw")
    disk.chmod(0o666)
    hardware = Hardware(
        firmware, uuid4(), state, memory, layout(image, tftp, disk, firmware),
        unprivileged=True, display=True,
    )  # fmt: skip
    async with running(hardware) as guest:
        await guest.until(f"no answer from {url} on net0 (try 1)".encode())
        await guest.until(f"no answer from {url} on net1 (try 1)".encode())
        await guest.until(b"asking again in 5 s")
        authority.answers[node] = BootAnswer(
            node,
            BootDevice.NETWORK,
            boot_image=True,
            after=(BootAnswer(node, BootDevice.CDROM), BootAnswer(node, BootDevice.DISK)),
        )
        authority.macs[MAC] = node
        for text in (
            "boot the network", "PXE-SERVED", "the network did not boot",
            "nothing to boot from the cdrom", "boot the disk",
        ):  # fmt: skip
            await guest.until(text.encode())
        await guest.until(disks.GREETING)
    assert authority.boots == [node]
    assert guest.said.count(b"Filename: pxe.ipxe") == 1, "each NIC boots what its own network says"
    assert in_order(guest, b"boot the network", b"PXE-SERVED", b"cdrom", disks.GREETING)


def in_order(guest: Guest, *texts: bytes) -> bool:
    places = [guest.said.index(text) for text in texts]
    return places == sorted(places)


@BOTH
@pytest.mark.boots
@pytest.mark.timeout(600)
async def test_a_machine_boots_an_iso_over_http(
    firmware: Firmware,
    memory: int,
    image: Path,
    tftp: Path,
    state: Path,
    authority: ToldAuthority,
) -> None:
    uuid = uuid4()
    (state / "web").mkdir()
    (await guests.speaking_cd(state, firmware=firmware)).rename(state / "web/x.iso")
    disk = state / "disk.raw"
    disk.write_bytes(bytes(1 << 20))
    disk.chmod(0o666)
    hardware = Hardware(
        firmware, uuid, state, memory, layout(image, tftp, disk, firmware),
        unprivileged=True, display=True,
    )  # fmt: skip
    with served(state / "web", "127.0.0.1") as web:
        inserted = web.replace("127.0.0.1", "10.0.2.2") + "/x.iso"
        authority.answers[uuid] = BootAnswer(uuid, BootDevice.CDROM, uri=inserted, boot_image=True)
        async with running(hardware) as guest:
            await guest.until(f"boot cdrom {inserted}".encode())
            await guest.until(guests.BOOTED)


@BOTH
@pytest.mark.boots
@pytest.mark.timeout(600)
async def test_a_machine_boots_the_linux_of_the_medium_that_its_drive_has(
    firmware: Firmware,
    memory: int,
    image: Path,
    tftp: Path,
    state: Path,
    authority: ToldAuthority,
    probe: Probe,
) -> None:
    """Its loader reads the medium from the daemon, by the UUID that its cloud gave it. The system
    sees the CD of the boot image alone.
    """
    uuid, disk = uuid4(), state / "disk.raw"
    medium = await guests.linux_cd(
        state, probe.kernel, probe.initrd, cmdline=command_line(probe.arch, after="poweroff")
    )
    disk.write_bytes(bytes(1 << 20))
    disk.chmod(0o666)
    authority.answers[uuid] = BootAnswer(
        uuid,
        BootDevice.CDROM,
        medium=ServedFile(str(medium), "medium.iso"),
        boot_image=True,
        secret=uuid,
    )
    hardware = Hardware(
        firmware, uuid, state, max(memory, 192), layout(image, tftp, disk, firmware, reaches=True),
        unprivileged=True, display=True,
    )  # fmt: skip
    async with running(hardware) as guest:
        await guest.until(b"boot cdrom")
        record = await guest.record()
    assert UUID(record.uuid) == uuid
    assert record.firmware == firmware
    assert authority.boots == [uuid]


async def test_images_are_kept_for_each_url(state: Path) -> None:
    place = state / "images"
    first = await build_boot_image(base_url="http://192.0.2.1:8069", place=place)
    second = await build_boot_image(base_url="http://192.0.2.2:8069", place=place)
    before = first.stat()
    assert await build_boot_image(base_url="http://192.0.2.1:8069", place=place) == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    session = await build_boot_iso(base_url="http://192.0.2.1:8069", place=place)
    assert set(place.iterdir()) == {first, second, session}


@pytest.mark.parametrize(
    ("source", "code"),
    [("bios_start", starters.BIOS_CODE), ("efi_start", starters.EFI_CODE)],
)
def test_the_code_is_that_of_its_source(source: str, code: bytes, tmp_path: Path) -> None:
    text = Path(starters.__file__).with_name(f"{source}.S")
    for argv in (
        ["as", "-o", str(tmp_path / "o"), str(text)],
        ["objcopy", "-O", "binary", str(tmp_path / "o"), str(tmp_path / "bin")],
    ):
        subprocess.run(argv, check=True)
    assert (tmp_path / "bin").read_bytes() == code
