"""Disks that boot and say so on the console: the proof that firmware went on to them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from nospoon.protocols.ipxe.starters import efi_application

GREETING = b"the disk booted"
SIZE = 8 << 20

_BOOT_CODE = bytes.fromhex(
    "fa"  # cli
    "31c0 8ed8"  # ds = 0
    "be 217c"  # si = the text, which follows this code at 0x7c21
    "ac"  # next: lodsb
    "84c0 7411"  # at the closing NUL go to end
    "88c4"  # keep it in ah
    "ba fd03"  # dx = line status of the first serial port
    "ec a820 74fb"  # until it can send
    "88e0 b2f8 ee"  # send
    "ebea"  # jmp next
    "f4 ebfd"  # end: hlt, again and again
)
_EFI_CODE = bytes.fromhex(
    "fa"  # cli
    "488d35 1d000000"  # rsi = the text, which follows this code
    "ba fd030000"  # edx = line status of the first serial port
    "ac"  # next: lodsb
    "84c0 7410"  # at the closing NUL go to end
    "88c4"  # keep it in ah
    "ec a820 74fb"  # until it can send
    "88e0 b2f8 ee b2fd"  # send
    "ebeb"  # jmp next
    "f4 ebfd"  # end: hlt, again and again
)


def efi_program(text: bytes) -> bytes:
    """Writes this line to the first serial port and stops: GRUB would wait for the clock, and an
    emulated machine would take a whole processor of its host.
    """
    return efi_application(_EFI_CODE + b"\r\n" + text + b"\r\n\0")


def bios_disk(path: Path) -> Path:
    """A raw disk whose boot sector writes the greeting to the first serial port and stops."""
    code = _BOOT_CODE + GREETING + b"\r\n\0"
    sector = code.ljust(510, b"\0") + b"\x55\xaa"
    path.write_bytes(sector + bytes(SIZE - len(sector)))
    return path


def uefi_disk(path: Path) -> Path:
    """A raw disk with a FAT file system on all of it, whose default loader says the greeting."""
    loader = path.with_suffix(".efi")
    loader.write_bytes(efi_program(GREETING))
    path.write_bytes(bytes(SIZE))
    run("mformat", "-i", str(path), "-T", str(SIZE // 512), "-h", "16", "-s", "63", "::")
    run("mmd", "-i", str(path), "::/EFI", "::/EFI/BOOT")
    run("mcopy", "-i", str(path), str(loader), "::/EFI/BOOT/BOOTX64.EFI")
    return path


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
