"""One root file system, written as an image of each format that is wanted."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from nospoon.dev.images import disk, filesystem, oci, root
from nospoon.dev.images.root import KERNEL, Root
from nospoon.errors import MissingTool
from nospoon.runtime import process


class Format(StrEnum):
    """What an image is, and who begins with it."""

    LXC = "lxc"
    """A packed root file system: containers of nospoon."""
    EXT4 = "ext4"
    """A file system without a partition table: Nova's LXC driver."""
    OCI = "oci"
    """An archive for docker load, podman load and skopeo."""
    RAW = "raw"
    QCOW2 = "qcow2"


DISKS = frozenset({Format.RAW, Format.QCOW2})
ENDINGS = {
    Format.LXC: "tar.zst",
    Format.EXT4: "ext4",
    Format.OCI: "oci.tar",
    Format.RAW: "raw",
    Format.QCOW2: "qcow2",
}
TOOLS = {
    **dict.fromkeys(DISKS, disk.TOOLS),
    Format.LXC: {"zstd": "zstd"},
    Format.EXT4: {"debugfs": "e2fsprogs"},
    Format.OCI: {},
}
"""What a format takes besides a root: as `disk.TOOLS` has it."""


@dataclass(frozen=True, slots=True)
class Built:
    """An image that was written."""

    format: Format
    file: Path
    sha256: str


async def build(
    wanted: Root, formats: Collection[Format], directory: Path, *, name: str, epoch: int,
    size: int = 0,
) -> list[Built]:  # fmt: skip
    """Write NAME.ENDING below `directory` for each format. `size`: bytes of disks, 0 for as small
    as may be. `epoch`: Unix seconds; SOURCE_DATE_EPOCH of the environment has to be the same.

    Raises `MissingTool` or `ProviderError`.
    """
    need_tools(formats)
    if DISKS & {*formats}:
        wanted = replace(wanted, packages=(*wanted.packages, *KERNEL))
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".building-") as made:
        tar = Path(made) / "root.tar"
        await root.build(wanted, tar)
        return await write(tar, formats, directory, name=name, epoch=epoch, size=size)


async def write(
    tar: Path, formats: Collection[Format], directory: Path, *, name: str, epoch: int,
    size: int = 0,
) -> list[Built]:  # fmt: skip
    """The same of a root file system that is there."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=".building-") as made:
        work = Path(made)
        raw = work / ENDINGS[Format.RAW]
        if DISKS & {*formats}:
            await disk.make(tar, raw, epoch=epoch, size=size)
        built = []
        for each in sorted(formats, key=lambda each: each is Format.RAW):  # it is moved last
            part = work / ENDINGS[each]
            await _written(each, tar, part, raw=raw, name=name, epoch=epoch, size=size)
            target = directory / f"{name}.{ENDINGS[each]}"
            part.replace(target)
            built.append(Built(each, target, await asyncio.to_thread(_digest, target)))
    return built


async def _written(
    kind: Format, tar: Path, part: Path, *, raw: Path, name: str, epoch: int, size: int
) -> None:
    match kind:
        case Format.LXC:
            # the same bytes by any number of threads, which is not so of --single-thread
            argv = ["zstd", "--quiet", "-T0", str(tar), "-o", str(part)]
            await process.run(argv, timeout=root.LONGEST)
        case Format.EXT4:
            await filesystem.make(tar, part, epoch=epoch, size=size)
        case Format.OCI:
            await asyncio.to_thread(oci.make, tar, part, name=name, epoch=epoch)
        case Format.QCOW2:
            await disk.qcow2(raw, part)
        case Format.RAW:
            pass


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def need_tools(formats: Collection[Format], path: str = "/usr/sbin:/sbin:/usr/bin:/bin") -> None:
    """Raises `MissingTool` for what is neither in the user's path nor in this one."""
    tools = {"mmdebstrap": "mmdebstrap"}
    for each in formats:
        tools |= TOOLS[each]
    missing = {
        package
        for tool, package in tools.items()
        if not (Path(tool).exists() or shutil.which(tool) or shutil.which(tool, path=path))
    }
    if missing:
        names = " ".join(sorted(missing))
        raise MissingTool(f"the build needs {names}", hint=f"apt-get install -y {names}")
