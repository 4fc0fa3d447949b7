"""Debian's signed GRUB that loads from the network, for any architecture."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import structlog

from nospoon.errors import ProviderError
from nospoon.model.cluster import Arch
from nospoon.probe.packages import DEBIAN_ARCH, fetch, unpack

log = structlog.get_logger()

FILES = {
    Arch.X86_64: "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
    Arch.AARCH64: "usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed",
}


async def find_grub(cache: Path, arch: Arch, *, root: Path = Path("/")) -> Path:
    """Its path: where the system has it, else in the cache, else fetched from Debian's archive.

    Raises `ProviderError` where no package source has it.
    """
    kept = cache / f"grub-{arch}.efi"
    for known in (root / FILES[arch], kept):
        if known.exists():
            return known
    package = f"grub-efi-{DEBIAN_ARCH[arch]}-signed"
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as made:
        work = Path(made)
        file = await fetch(package, arch, directory=cache / f"apt-{arch}", into=work)
        await unpack(file, work / "root")
        if not (work / "root" / FILES[arch]).exists():
            raise ProviderError(f"the package {package} has no {FILES[arch]}")
        shutil.move(work / "root" / FILES[arch], kept)
    log.info("a loader is fetched", package=package, at=str(kept))
    return kept
