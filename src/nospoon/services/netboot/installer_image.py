"""A disk image that boots an installer: its kernel and initial ramdisk, started by GRUB.

A machine starts with it as its root disk; the installer runs in memory and writes over it. What
differs from machine to machine is beside it, where cloud-init's user data is (NoCloud, or a config
drive): GRUB runs that, and it sets `arguments`, the kernel's command line. UEFI alone shows GRUB
such a disk, and in a cloud not even UEFI, as Nova has it in no boot order: so our code connects
all drivers, and then starts GRUB (`protocols.ipxe.starters`).
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path

from nospoon.protocols.ipxe import starters
from nospoon.services.netboot.disk_image import (
    LOADER,
    MIB,
    MODULES,
    SMALLEST,
    START,
    need_tools,
    partitioned,
)
from nospoon.services.netboot.iso import make_loader

CONFIG = """\
search --no-floppy --file /nospoon/vmlinuz --set=root
if search --no-floppy --label cidata --set=seed; then
  source ($seed)/user-data
elif search --no-floppy --label config-2 --set=seed; then
  source ($seed)/openstack/latest/user_data
else
  echo nospoon: there is no user data
fi
echo nospoon: boot the installer
linux /nospoon/vmlinuz $arguments
initrd /nospoon/initrd
boot
"""
ROOM = 8 * MIB
"""For the loader, and the tables of the file system."""


async def make(cache: Path, kernel: Path, initrd: Path, image: Path) -> None:
    """Write the image, raw. Raises `MissingTool` or `ProviderError`."""
    need_tools()
    content = sum(await asyncio.to_thread(_sizes, kernel, initrd))
    whole = -(-(content + content // 64 + ROOM + 2 * START) // MIB) * MIB
    files = {
        LOADER: await _loader(cache), "nospoon/vmlinuz": kernel, "nospoon/initrd": initrd,
    }  # fmt: skip
    await partitioned(image, files, size=max(SMALLEST, whole))


def _sizes(*files: Path) -> list[int]:
    return [each.stat().st_size for each in files]


def _with_drivers(loader: Path) -> None:
    """What the code types for iPXE is read by no one: GRUB asks nothing."""
    loader.write_bytes(starters.efi_program(loader.read_bytes()))


async def _loader(cache: Path) -> Path:
    """It is kept: GRUB's tools make another one each time, and with it would go another image."""
    code = starters.EFI_CODE.hex()
    key = hashlib.sha256("\0".join((CONFIG, code, *MODULES)).encode()).hexdigest()[:16]
    found = cache / f"installer-loader-{key}.efi"
    if not await asyncio.to_thread(found.exists):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as work:
            made = await make_loader(Path(work), CONFIG, MODULES)
            await asyncio.to_thread(_with_drivers, made)
            made.replace(found)
    return found
