"""A disk that boots a root file system by UEFI: GRUB in an EFI system partition, and ext4.

GRUB finds the root by its label, and the kernel the newest one that the root has.
"""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from pathlib import Path

from nospoon.dev.images import filesystem
from nospoon.dev.images.filesystem import LABEL, MIB
from nospoon.errors import ProviderError
from nospoon.runtime import process
from nospoon.services.netboot.iso import GRUB_TARGET

START, ESP = 1 * MIB, 64 * MIB
"""Where the EFI system partition begins, and its bytes."""
SECTOR = 512
DISK_ID = "6e6f7370-6f6f-4e64-8969-736b00000000"
PARTITIONS = "6e6f7370-6f6f-4e65-8370-000000000001", "6e6f7370-6f6f-4e72-8f6f-740000000001"
SERIAL = "6e6f7370"
MODULES = ("linux", "boot", "part_gpt", "ext2", "search_label", "all_video", "gzio")
CONFIG = """\
search.fs_label {label} root
linux /boot/vmlinuz-{kernel} root=LABEL={label} rw console=tty0 console=ttyS0,115200
initrd /boot/initrd.img-{kernel}
boot
"""
_KERNEL = re.compile(r"(?:\./)?boot/vmlinuz-(.+)")
TOOLS = {
    "sfdisk": "fdisk", "mformat": "mtools", "debugfs": "e2fsprogs", "qemu-img": "qemu-utils",
    "grub-mkimage": "grub-common", f"/usr/lib/grub/{GRUB_TARGET}/kernel.img": "grub-efi-amd64-bin",
}  # fmt: skip
"""What a build runs -> Debian's package of it."""


async def make(tar: Path, image: Path, *, epoch: int, size: int = 0) -> None:
    """Write a raw disk with what is in `tar`. `size`: bytes of the disk, 0 for one that it fits in.

    Raises `ProviderError` where the root has no kernel.
    """
    kernel = _kernel(tar)
    with tempfile.TemporaryDirectory(dir=image.parent, prefix=".building-") as made:
        work = Path(made)
        root, esp = work / "root", work / "esp"
        beside = START + ESP + MIB  # the table's copy is at the end
        await filesystem.make(tar, root, epoch=epoch, size=max(size - beside, 0))
        await _fat(esp, await _loader(work, CONFIG.format(label=LABEL, kernel=kernel)))
        with image.open("wb") as disk:
            disk.truncate(beside + root.stat().st_size)
        await process.run(["sfdisk", "--quiet", str(image)], stdin=_table(root).encode())
        for part, at in ((esp, START), (root, START + ESP)):
            _copy(part, image, at)


async def qcow2(raw: Path, image: Path) -> None:
    """The same disk; blocks of zeros are left out."""
    await process.run(
        ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(image)], timeout=600
    )


def _kernel(tar: Path) -> str:
    with tarfile.open(tar) as archive:
        found = [match[1] for each in archive if (match := _KERNEL.fullmatch(each.name))]
    if not found:
        raise ProviderError(
            "the root file system has no kernel in /boot", hint="Include linux-image-cloud-amd64."
        )
    return max(found, key=_version)


def _version(name: str) -> list[tuple[int, str]]:
    """Numbers in it count as numbers."""
    return [(int(each), "") if each.isdigit() else (-1, each) for each in re.split(r"(\d+)", name)]


def _table(root: Path) -> str:
    first, second = PARTITIONS
    return (
        f"label: gpt\nlabel-id: {DISK_ID}\n"
        f"start={START // SECTOR}, size={ESP // SECTOR}, type=uefi, uuid={first}, name=efi\n"
        f"start={(START + ESP) // SECTOR}, size={root.stat().st_size // SECTOR}, type=linux, "
        f"uuid={second}, name=root\n"
    )


async def _loader(work: Path, config: str) -> Path:
    """GRUB, that runs these lines at once. grub-mkstandalone's differ from build to build."""
    (work / "grub.cfg").write_text(config)
    loader = work / "bootx64.efi"
    argv = ["grub-mkimage", "-O", GRUB_TARGET, "-o", str(loader), "-p", "/boot/grub"]
    await process.run([*argv, "-c", str(work / "grub.cfg"), *MODULES])
    return loader


async def _fat(esp: Path, loader: Path) -> None:
    with esp.open("wb") as made:
        made.truncate(ESP)
    drive = ["-i", str(esp)]
    await process.run(["mformat", *drive, "-N", SERIAL, "-v", "EFI", "-F", "::"])
    await process.run(["mmd", *drive, "::/EFI", "::/EFI/BOOT"])
    await process.run(["mcopy", *drive, str(loader), "::/EFI/BOOT/BOOTX64.EFI"])


def _copy(part: Path, image: Path, at: int) -> None:
    """What is not a hole of a sparse file (lseek(2), SEEK_DATA)."""
    with part.open("rb") as source, image.open("r+b") as target:
        end = 0
        while (begin := _data(source.fileno(), end)) is not None:
            end = os.lseek(source.fileno(), begin, os.SEEK_HOLE)
            source.seek(begin)
            target.seek(at + begin)
            left = end - begin
            while left:
                data = source.read(min(left, MIB))
                target.write(data)
                left -= len(data)


def _data(descriptor: int, after: int) -> int | None:
    try:
        return os.lseek(descriptor, after, os.SEEK_DATA)
    except OSError:  # ENXIO: nothing but a hole is left
        return None
