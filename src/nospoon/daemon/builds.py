"""What is built when it is first wanted: the probe, GRUB for the network, the boot ISO."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from nospoon.errors import NospoonError
from nospoon.model.cluster import Arch
from nospoon.probe.build import Probe, build
from nospoon.probe.grub import find_grub
from nospoon.services.netboot import installer_image
from nospoon.services.netboot.http import SLIRP_HOST
from nospoon.services.netboot.iso import build_boot_image, build_boot_iso

log = structlog.get_logger()


@dataclass(slots=True)
class Builds:
    """One at a time; images of members' installers have a turn of their own, for these may be as
    large as they like. `boot_port`: where boot scripts are served.
    """

    cache: Path
    iso: Path
    boot_port: Callable[[], int]
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _one_installer: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def probe(self, arch: Arch) -> Probe:
        async with self._one_at_a_time:
            return await build(self.cache, arch=arch)

    async def grub(self, arch: Arch) -> Path:
        async with self._one_at_a_time:
            return await find_grub(self.cache, arch)

    async def boot_image(self, url: str) -> Path:
        """The image of machines in clouds, which ask at this URL. Raises `MissingTool`."""
        async with self._one_at_a_time:
            return await build_boot_image(base_url=url, place=self.iso.parent / "boot-images")

    async def installer(self, kernel: Path, initrd: Path, image: Path) -> None:
        """The image of machines that boot an installer. Raises `MissingTool`."""
        async with self._one_installer:
            await installer_image.make(self.cache, kernel, initrd, image)

    async def boot_iso(self) -> Path | None:
        """The ISO of machines whose boot order is not ours; without it those are refused."""
        base = f"http://{SLIRP_HOST}:{self.boot_port()}"
        try:
            async with self._one_at_a_time:
                return await build_boot_iso(base_url=base, place=self.iso)
        except NospoonError as error:
            log.warning("no boot ISO: hosts of qemu:///session cannot be used", why=str(error))
            return None
