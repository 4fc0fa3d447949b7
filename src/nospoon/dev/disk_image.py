"""What a deploy needs beside the agent: a small disk image that boots, and a loader of media.

The image has a GPT with an EFI system partition alone: GRUB, and the probe, which tells on the
console and to whom it was told that it runs. UEFI machines boot it, whatever deployed it.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import structlog

from nospoon.model.cluster import Arch
from nospoon.probe import build
from nospoon.services.netboot.disk_image import (
    LOADER,
    MODULES,
    SMALLEST,
    TABLE,
    filled,
    need_tools,
    partitioned,
)
from nospoon.services.netboot.iso import make_loader

log = structlog.get_logger()

MEDIUM_KIB = 4096
"""Of the file system that Ironic puts on media: GRUB has 2 MiB."""
HELLO = "nospoon-image: the deployed disk boots"
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


async def disk_image(cache: Path) -> Path:
    """The image, raw, made when it is not there. Raises `MissingTool` or `ProviderError`."""
    probe = await build.build(cache)
    cmdline = build.command_line(Arch.X86_64)
    config = IMAGE_CONFIG.format(hello=HELLO, cmdline=cmdline)
    key = _key(config, TABLE, *MODULES, str(probe.initrd.parent.name))
    image = cache / f"deploy-image-{key}.raw"
    if not image.exists():
        need_tools()
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
            work = Path(made)
            loader = await make_loader(work, config, MODULES)
            files = {LOADER: loader, "nospoon/vmlinuz": probe.kernel,
                     "nospoon/initrd": probe.initrd}  # fmt: skip
            await partitioned(work / "image", files)
            (work / "image").replace(image)
        log.info("image built", at=str(image))
    return image


async def medium_loader(cache: Path) -> Path:
    """The file system with GRUB that Ironic puts on virtual media ([conductor] bootloader)."""
    loader_image = _loader_image(cache)
    if not loader_image.exists():
        need_tools()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".building-") as made:
            loader = await make_loader(Path(made), MEDIUM_CONFIG, MODULES)
            image = Path(made) / "image"
            image.write_bytes(bytes(MEDIUM_KIB << 10))
            await filled(str(image), {LOADER: loader}, sectors=MEDIUM_KIB * 2)
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
    return hashlib.sha256("\0".join((*texts, str(SMALLEST))).encode()).hexdigest()[:16]
