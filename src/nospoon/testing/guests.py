"""Tiny guests that say on the serial port what booted, and do what is typed there."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Firmware
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Image, Volume
from nospoon.runtime import clock, process
from nospoon.testing import disks
from nospoon.testing.racks import Bench, Rack, rack_for

BOOTED = b"DISK-BOOTED"
SECTOR = 512


def boot_sector(code: bytes) -> bytes:
    """A whole disk of 1 MiB that runs this 16-bit code at 0:7C00h."""
    assert len(code) <= SECTOR - 2
    return (code.ljust(SECTOR - 2, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0")


def speaking_disk() -> bytes:
    """Prints DISK-BOOTED on COM1; resets the machine by port CF9h when `r` is typed. Between two
    ticks of the timer its processor sleeps: emulated, it would take one of the host's.
    """
    code = bytes.fromhex(
        "fa 31c0 8ed8"  # cli; ds = 0
        "be 457c ba f803"  # si = the text, which follows at 7C45h; dx = COM1's data
        "ac 84c0 7403 ee ebf8"  # next: print all up to NUL
        "c706 2000 3e7c a3 2200"  # INT 08h, the timer's: tick, for SeaBIOS would take what is typed
        "b0fe e621"  # the interrupt controller: no other interrupt
        "ba fd03 ec a801 7505"  # poll: to typed, if there is a character
        "fb f4 fa ebf3"  # sleep, and poll again
        "ba f803 ec 3c72 75eb"  # typed: poll again, unless it is r
        "b006 ba f90c ee"  # reset
        "f4 ebfd"  # end: hlt, again and again
        "50 b020 e620 58 cf"  # tick: the interrupt has ended
    )
    return boot_sector(code + b"\r\n" + BOOTED + b"\r\n\0")


LINE = b"LINE-00000 ".ljust(62, b".") + b"\r\n"


def talking_disk(lines: int) -> bytes:
    """Prints so many numbered lines of 64 bytes on COM1, then DISK-BOOTED: four with each tick of
    the timer, which is 4.5 KiB a second.
    """
    code = bytes.fromhex(
        "fa 31c0 8ed8 8ed0 bc007c"  # cli; ds = ss = 0; sp = 7C00h
        "c706 2000 5a7c a3 2200"  # INT 08h, the timer's: tick
        "b0fe e621"  # the interrupt controller: no other interrupt
        f"b9 {lines.to_bytes(2, 'little').hex()}"  # cx = lines
        "be 617c e8 2300"  # next: say the line, which follows at 7C61h
        "bb 6a7c"  # bx = the last one of its digits
        "fe07 803f3a 7506 c60730 4b ebf3"  # count: 9 becomes 0, and the digit before is counted
        "f6c103 7503 fb f4 fa e2e0"  # after four lines sleep until the next tick; next
        "be a27c e8 0300"  # say the end, which follows the line
        "f4 ebfd"  # hlt, again and again
        "ac 84c0 7411 88c4"  # say: all up to NUL
        "ba fd03 ec a820 74fb 88e0 b2f8 ee ebea"  # when COM1 can send
        "c3"
        "50 b020 e620 58 cf"  # tick: the interrupt has ended
    )
    return boot_sector(code + LINE + b"\0" + BOOTED + b"\r\n\0")


def writing_disk() -> bytes:
    """Writes 64 sectors after the other to its disk by INT 13h AH=43h, for ever."""
    packet = 0x7C00 + 0x40
    code = bytes.fromhex("31C0 8ED8 BE") + packet.to_bytes(2, "little")
    code += bytes.fromhex("B443 B000 B280 CD13 8106") + (packet + 8).to_bytes(2, "little")
    code += bytes.fromhex("4000")
    code += b"\xeb" + (4 - (len(code) + 2)).to_bytes(1, "little", signed=True)
    disk_address_packet = bytes.fromhex("10 00 4000 007E 0000 0008000000000000")
    return boot_sector(code.ljust(0x40, b"\0") + disk_address_packet)


async def speaking_uefi_disk(place: Path) -> bytes:
    """A FAT disk whose loader prints DISK-BOOTED."""
    loader, disk = place / "BOOTX64.EFI", place / "uefi.img"
    loader.write_bytes(disks.efi_program(BOOTED))
    disk.write_bytes(bytes(4 << 20))
    await process.run(["mformat", "-i", str(disk), "::"])
    await process.run(["mmd", "-i", str(disk), "::/EFI", "::/EFI/BOOT"])
    await process.run(["mcopy", "-i", str(disk), str(loader), "::/EFI/BOOT/BOOTX64.EFI"])
    return disk.read_bytes()


async def speaking_cd(place: Path, *, firmware: Firmware = Firmware.BIOS) -> Path:
    """An ISO that says DISK-BOOTED: El Torito without emulation, or with a FAT image for UEFI
    (UEFI 2.10 §13.3.2.1).
    """
    tree, iso = place / "cd", place / "cd.iso"
    tree.mkdir()
    if firmware is Firmware.BIOS:
        image, boot = speaking_disk()[:2048], ["-b", "boot.img", "-boot-load-size", "4"]
    else:
        image, boot = await speaking_uefi_disk(place), ["-e", "boot.img"]
    (tree / "boot.img").write_bytes(image)
    argv = ["xorriso", "-as", "mkisofs", "-quiet", *boot, "-no-emul-boot", "-o", str(iso)]
    await process.run([*argv, str(tree)])
    return iso


LINUX_MODULES = ("search", "search_fs_file", "configfile", "normal", "linux", "iso9660", "fat")
LINUX_GRUB = "EFI/BOOT/grub.cfg"
ISOLINUX = (
    Path("/usr/lib/ISOLINUX/isolinux.bin"),
    Path("/usr/lib/syslinux/modules/bios/ldlinux.c32"),
)


async def linux_cd(place: Path, kernel: Path, initrd: Path, *, cmdline: str) -> Path:
    """An ISO with a Linux for BIOS (ISOLINUX) and UEFI (GRUB in a FAT image, its configuration and
    the kernel on the ISO), laid out as Ironic makes those of its deploy agent, and Debian its
    installer's.
    """
    tree, iso, fat = place / "linux", place / "linux.iso", place / "linux/esp.img"
    (tree / LINUX_GRUB).parent.mkdir(parents=True)
    for source, name in ((kernel, "vmlinuz"), (initrd, "initrd")):
        (tree / name).write_bytes(source.read_bytes())
    for source in ISOLINUX:
        (tree / source.name).write_bytes(source.read_bytes())
    (tree / "isolinux.cfg").write_text(
        f"DEFAULT linux\nLABEL linux\nKERNEL /vmlinuz\nAPPEND initrd=/initrd {cmdline}\n"
    )
    (tree / LINUX_GRUB).write_text(f"linux /vmlinuz {cmdline}\ninitrd /initrd\nboot\n")
    config, loader = place / "linux.cfg", place / "linux.efi"
    config.write_text(f"search --file --set=root /{LINUX_GRUB}\nconfigfile /{LINUX_GRUB}\n")
    grub = ["grub-mkimage", "-O", "x86_64-efi", "-c", str(config), "-p", "/", "-o", str(loader)]
    await process.run([*grub, *LINUX_MODULES])
    await process.run(["mformat", "-C", "-f", "2880", "-i", str(fat), "::"])
    await process.run(["mmd", "-i", str(fat), "::/EFI", "::/EFI/BOOT"])
    await process.run(["mcopy", "-i", str(fat), str(loader), "::/EFI/BOOT/BOOTX64.EFI"])
    bios = ["-b", "isolinux.bin", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]
    uefi = ["-eltorito-alt-boot", "-e", "esp.img", "-no-emul-boot"]
    argv = ["xorriso", "-as", "mkisofs", "-quiet", "-R", *bios, *uefi, "-o", str(iso)]
    await process.run([*argv, str(tree)])
    return iso


def guest_rack(
    bench: Bench, disk: bytes, images: dict[str, str], place: Path, *, firmware: Firmware
) -> Rack:
    """A machine with this disk, which boots from disk, then from the network."""
    sha256 = hashlib.sha256(disk).hexdigest()
    file = place / f"{sha256}.raw"
    file.write_bytes(disk)
    images[sha256] = str(file)
    rack = rack_for(replace(bench, image=Image("", sha256, "raw", len(disk))))
    machine, cloned = rack.machine.shape, rack.cloned.shape
    assert isinstance(machine, Machine)
    assert isinstance(cloned, Volume)
    shape = replace(
        machine,
        memory=256 << 20,
        firmware=firmware,
        disks=(MachineDisk("m0-1", "virtio", "guest"),),
        boot_order=(BootDevice.DISK, BootDevice.NETWORK),
    )
    return replace(
        rack,
        machine=Resource(rack.machine.key, shape),
        cloned=Resource(rack.cloned.key, replace(cloned, size=64 << 20)),
    )


class Listener:
    """Reads a console record from where it stopped last."""

    def __init__(self, record: str) -> None:
        self.record = Path(record)
        self.offset = 0

    async def hears(self, *words: bytes, seconds: float = 240) -> bytes:
        """The first of these words that comes; what came before is skipped.

        Raises `AssertionError`, with what came instead.
        """
        end = clock.monotonic() + seconds
        while True:
            heard = self.unheard()
            found = [(heard.index(word), word) for word in words if word in heard]
            if found:
                at, word = min(found)
                self.offset += at + len(word)
                return word
            assert clock.monotonic() < end, f"none of {words} in {seconds:g} s: {heard[-2000:]!r}"
            await asyncio.sleep(0.05)

    def unheard(self) -> bytes:
        return self.record.read_bytes()[self.offset :] if self.record.exists() else b""
