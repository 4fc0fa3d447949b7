"""Disk images that boot by UEFI: a GPT with an EFI system partition alone, with GRUB and files.

The same files make the same bytes, wherever and whenever: what is made again is the same image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from nospoon.errors import MissingTool
from nospoon.runtime import process

MIB, START = 1 << 20, 1 << 20
SMALLEST = 64 * MIB
"""Bytes of an image, and where its only partition begins."""
NAME = "6e6f7370-6f6f-4e00-8000-0000000000{:02x}"
"""Of the table, and of its partition (UEFI 2.10 §5.3.2), by a number."""
TABLE = (
    f"label: gpt\nlabel-id: {NAME.format(1)}\n"
    f"start=2048, type=uefi, name=nospoon, uuid={NAME.format(2)}\n"
)
MODULES = (
    *("normal", "configfile", "echo", "linux", "boot", "serial", "terminal", "part_gpt", "fat"),
    *("search", "search_fs_file", "search_label", "iso9660", "minicmd", "test", "all_video"),
)
"""Of GRUB, in the loader."""
LOADER = "EFI/BOOT/BOOTX64.EFI"
"""Where firmware looks for one (UEFI 2.10 §3.5.1.1)."""
TOOLS = {"sfdisk": "fdisk", "mformat": "mtools"}


def need_tools() -> None:
    """Raises `MissingTool` for what is not installed."""
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        names = " ".join(missing)
        raise MissingTool(f"the image needs {names}", hint=f"apt-get install -y {names}")


async def partitioned(image: Path, files: Mapping[str, Path], *, size: int = SMALLEST) -> None:
    """Make an image of so many bytes whose EFI system partition has these files, by their paths
    there.
    """
    with image.open("wb") as made:
        made.truncate(size)
    await process.run(["sfdisk", "--quiet", str(image)], stdin=TABLE.encode())
    await filled(f"{image}@@{START}", files, sectors=(size - 2 * START) // 512)


async def filled(drive: str, files: Mapping[str, Path], *, sectors: int) -> None:
    """A FAT file system (mtools(1) names its place FILE@@OFFSET) with these files in it."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "SOURCE_DATE_EPOCH": "0"}

    async def run(*argv: str) -> None:
        await process.run(argv, env=env)

    await run("mformat", "-i", drive, "-v", "NOSPOON", "-N", "0", "-T", str(sectors), "::")
    made: set[str] = set()
    for path, source in files.items():
        parents = [str(each) for each in reversed(Path(path).parents) if str(each) != "."]
        for parent in parents:
            if parent not in made:
                await run("mmd", "-i", drive, f"::/{parent}")
                made.add(parent)
        await run("mcopy", "-i", drive, str(source), f"::/{path}")
