"""What a deploy needs beside the agent: a small disk image that boots, and a loader of media.

The image has a GPT with an EFI system partition alone: GRUB, and the probe, which tells on the
console and to whom it was told that it runs. UEFI machines boot it, whatever deployed it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import structlog

from nospoon.errors import MissingTool
from nospoon.model.cluster import Arch
from nospoon.probe import build
from nospoon.runtime import process
from nospoon.services.netboot.iso import make_loader

log = structlog.get_logger()

SIZE, START = 64 << 20, 1 << 20
"""Bytes of the image, and where its only partition begins."""
MEDIUM_KIB = 4096
"""Of the file system that Ironic puts on media: GRUB has 2 MiB."""
TABLE = "label: gpt\nstart=2048, type=uefi, name=nospoon\n"
HELLO = "nospoon-image: the deployed disk boots"
MODULES = (
    *("normal", "configfile", "echo", "linux", "boot", "serial", "terminal", "part_gpt", "fat"),
    *("search", "search_fs_file", "search_label", "iso9660", "minicmd", "test", "all_video"),
)
IMAGE_CONFIG = """\
search --no-floppy --file /nospoon/vmlinuz --set=root
echo "{hello}"
linux /nospoon/vmlinuz {cmdline}
initrd /nospoon/initrd
boot
"""
MEDIUM_CONFIG = """\
search --no-floppy --file /EFI/BOOT/grub.cfg --set=root
configfile /EFI/BOOT/grub.cfg
"""
"""Ironic puts its own configuration there (its default of `grub_config_path`)."""
TOOLS = {"sfdisk": "fdisk", "mformat": "mtools"}


async def disk_image(cache: Path) -> Path:
    """The image, raw, made when it is not there. Raises `MissingTool` or `ProviderError`."""
    probe = await build.build(cache)
    cmdline = build.command_line(Arch.X86_64)
    config = IMAGE_CONFIG.format(hello=HELLO, cmdline=cmdline)
    key = _key(config, *MODULES, str(probe.initrd.parent.name))
    image = cache / f"deploy-image-{key}.raw"
    if not image.exists():
        _need_tools()
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
            work = Path(made)
            loader = await make_loader(work, config, MODULES)
            files = {"EFI/BOOT/BOOTX64.EFI": loader, "nospoon/vmlinuz": probe.kernel,
                     "nospoon/initrd": probe.initrd}  # fmt: skip
            await partitioned(work / "image", files)
            (work / "image").replace(image)
        log.info("image built", at=str(image))
    return image


async def medium_loader(cache: Path) -> Path:
    """The file system with GRUB that Ironic puts on virtual media ([conductor] bootloader)."""
    loader_image = _loader_image(cache)
    if not loader_image.exists():
        _need_tools()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
            loader = await make_loader(Path(made), MEDIUM_CONFIG, MODULES)
            image = Path(made) / "image"
            image.write_bytes(bytes(MEDIUM_KIB << 10))
            await _filled(str(image), {"EFI/BOOT/BOOTX64.EFI": loader})
            image.replace(loader_image)
    return loader_image


def kept_loader(cache: Path) -> str:
    """The path of the loader of media when it was made, else ""."""
    found = _loader_image(cache)
    return str(found) if found.exists() else ""


def _loader_image(cache: Path) -> Path:
    return cache / f"medium-loader-{_key(MEDIUM_CONFIG, *MODULES)}.img"


def remove(cache: Path) -> None:
    """Remove every image and loader."""
    for found in (*cache.glob("deploy-image-*.raw"), *cache.glob("medium-loader-*.img")):
        found.unlink()


def _key(*texts: str) -> str:
    return hashlib.sha256("\0".join((*texts, str(SIZE))).encode()).hexdigest()[:16]


def _need_tools() -> None:
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        names = " ".join(missing)
        raise MissingTool(f"the image needs {names}", hint=f"apt-get install -y {names}")


async def partitioned(image: Path, files: dict[str, Path]) -> None:
    """Make an image of `SIZE` whose EFI system partition has these files, by their paths there."""
    with image.open("wb") as made:
        made.truncate(SIZE)
    await process.run(["sfdisk", "--quiet", str(image)], stdin=TABLE.encode())
    await _filled(f"{image}@@{START}", files, sectors=(SIZE - 2 * START) // 512)


async def _filled(drive: str, files: dict[str, Path], *, sectors: int = MEDIUM_KIB * 2) -> None:
    """A FAT file system (mtools(1) names its place FILE@@OFFSET) with these files in it."""
    await process.run(["mformat", "-i", drive, "-v", "NOSPOON", "-T", str(sectors), "::"])
    made: set[str] = set()
    for path, source in files.items():
        parents = [str(each) for each in reversed(Path(path).parents) if str(each) != "."]
        for parent in parents:
            if parent not in made:
                await process.run(["mmd", "-i", drive, f"::/{parent}"])
                made.add(parent)
        await process.run(["mcopy", "-i", drive, str(source), f"::/{path}"])
