"""Pools and volumes as libvirt XML, and the names of the files in a pool.

https://libvirt.org/formatstorage.html. One directory pool per cluster and host. In it lie:

    NODE-N.MARK.qcow2                 a disk; the mark is made of the names of pool and volume
    NODE-N.qcow2                      a disk of an earlier version, which a domain of ours has
    NAME--SHA256.FORMAT.reference     says that the cluster uses an image, which is in `image_cache`
    NAME--SHA256.FORMAT               an image, and its marker .complete: of earlier versions
    nvram/                            a directory, in which lie (see `flash`)
      NODE.FIRMWARE.nvram               UEFI variables, made by libvirt
      NODE.FIRMWARE.nvram.NAME.snapshot those variables, as a snapshot keeps them
    NODE.FIRMWARE.nvram…              the same, of earlier versions
    NODE.DIGEST.seed                  what cloud-init reads, as an ISO
    NODE.ID.volume                    a volume that a BMC client made
    boot-DIGEST.iso                   the ISO that session machines boot
    media-DIGEST.iso                  virtual media in some machine's CD drive

Whatever else lies there is not ours and is skipped: whose a file is, its name alone can tell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import PurePosixPath
from uuid import UUID
from xml.etree import ElementTree as ET

from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt.elements import attribute_of, element, leaf, text_of, written
from nospoon.providers.libvirt.owner import pool_source

DISK = re.compile(r"^(?P<name>.+)\.(?P<mark>[0-9a-f]{8})\.qcow2$")
EARLIER_DISK = re.compile(r"^(?P<name>.+)\.qcow2$")
FORMATS = "raw|qcow2|qcow|qed|vmdk|vdi|vhdx|vpc|parallels|dmg|luks|bochs|cloop"
"""What images in pools are: the first two, and what earlier versions took when QEMU guessed it."""
IMAGE = re.compile(rf"^(?P<name>.+)--(?P<sha256>[0-9a-f]{{64}})\.(?P<format>{FORMATS})$")
ADDED = re.compile(r"^(?P<node>.+)\.(?P<id>[0-9a-f]{8})\.volume$")
SEED = re.compile(r"^(?P<node>.+)\.(?P<digest>[0-9a-f]{64})\.seed$")
BOOT_ISO = re.compile(r"^boot-[0-9a-f]+\.iso$")
MEDIUM = re.compile(r"^media-[0-9a-f]{64}\.iso$")
OURS = re.compile(
    rf"(.+--[0-9a-f]{{64}}\.({FORMATS})(\.complete|\.reference)?"
    r"|.+\.(bios|uefi|uefi-secure)\.nvram(\.[a-z0-9-]+(\.part)?\.snapshot)?"
    r"|.+\.[0-9a-f]{8}\.volume"
    r"|.+\.[0-9a-f]{64}\.seed"
    r"|(boot|media)-[0-9a-f]+\.iso)\Z"
)
"""Names of everything but disks."""
COMPLETE, REFERENCE = ".complete", ".reference"
NVRAM = "nvram"


@dataclass(frozen=True, slots=True)
class FoundVolume:
    """A file of a pool as libvirt describes it; `backing` is the name of the file below it."""

    file: str
    capacity: int
    format: str
    backing: str


def disk_file(pool: str, name: str) -> str:
    """The file of a disk, so named that no one gives one of his own that name by accident."""
    mark = hashlib.sha256(f"{pool}/{name}".encode()).hexdigest()[:8]
    return f"{name}.{mark}.qcow2"


def earlier_disk_file(name: str) -> str:
    """What earlier versions called it, and anybody may call a file of his."""
    return f"{name}.qcow2"


def disk_name(file: str, pool: str) -> str:
    """The name of the disk in a file of a pool, "" when it is none of ours."""
    match = DISK.match(file)
    return match["name"] if match and file == disk_file(pool, match["name"]) else ""


def disk_called(file: str) -> str:
    """The name of the disk in a file that is one of ours, by whatever version it was named."""
    match = DISK.match(file) or EARLIER_DISK.match(file)
    return match["name"] if match else file


def image_file(name: str, image: Image) -> str:
    return f"{name}--{image.sha256}.{image.format}"


def nvram_file(node: str, firmware: str) -> str:
    return f"{node}.{firmware}.nvram"


def nvram_path(pool: str, node: str, firmware: str) -> str:
    """Of a machine's variables, in the directory of its pool."""
    return f"{pool}/{NVRAM}/{nvram_file(node, firmware)}"


def earlier_nvram_path(pool: str, node: str, firmware: str) -> str:
    """Where earlier versions had them."""
    return f"{pool}/{nvram_file(node, firmware)}"


def added_file(node: str, id_: str) -> str:
    return f"{node}.{id_}.volume"


def seed_file(node: str, digest: str) -> str:
    return f"{node}.{digest}.seed"


def medium_file(sha256: str) -> str:
    return f"media-{sha256}.iso"


def render_pool(name: str, pool: Pool, uuid: UUID, tag: OwnerTag) -> str:
    return written(
        element(
            "pool",
            leaf("name", name),
            leaf("uuid", str(uuid)),
            pool_source(tag),
            element(
                "target", leaf("path", pool.path), element("permissions", leaf("mode", "0711"))
            ),
            type="dir",
        )
    )


def parse_pool(root: ET.Element) -> Pool:
    return Pool(path=text_of(root, "target/path"))


def render_directory(name: str) -> str:
    """A directory in a pool, which QEMU goes through."""
    permissions = element("permissions", leaf("mode", "0711"))
    target = element("target", element("format", type="dir"), permissions)
    return written(
        element("volume", leaf("name", name), leaf("capacity", "0", unit="bytes"), target)
    )


def render_volume(
    file: str,
    *,
    capacity: int,
    file_format: str,
    backing: tuple[str, str] | None = None,
    mode: str = "",
) -> str:
    """A volume; `backing` is path and format of the image below it, `mode` in octal.

    qcow2 of version 3 (compat 1.1): one of version 2 with snapshots cannot grow.
    """
    below = None
    if backing is not None:
        path, backing_format = backing
        below = element("backingStore", leaf("path", path), element("format", type=backing_format))
    return written(
        element(
            "volume",
            leaf("name", file),
            leaf("capacity", str(capacity), unit="bytes"),
            leaf("allocation", "0", unit="bytes"),
            element(
                "target",
                element("format", type=file_format),
                element("permissions", leaf("mode", mode)) if mode else None,
                leaf("compat", "1.1") if file_format == "qcow2" else None,
            ),
            below,
        )
    )


def parse_volume(root: ET.Element) -> FoundVolume:
    return FoundVolume(
        file=text_of(root, "name"),
        capacity=int(text_of(root, "capacity", "0")),
        format=attribute_of(root, "target/format", "type"),
        backing=PurePosixPath(text_of(root, "backingStore/path")).name,
    )


def as_disk(
    found: FoundVolume, pool: str, *, earlier: Container[str] = ()
) -> tuple[str, Volume] | None:
    """Name and shape of a disk; None when the file is none. `earlier`: files that are disks of
    ours, named as earlier versions did.
    """
    old = EARLIER_DISK.match(found.file) if found.file in earlier else None
    name = old["name"] if old else disk_name(found.file, pool)
    if not name:
        return None
    below = IMAGE.match(found.backing)
    image = below["name"] if below else found.backing
    return name, Volume(pool=pool, size=found.capacity, image=image)


def as_image(found: FoundVolume, pool: str) -> tuple[str, Image] | None:
    """Name and shape of an image; None when the file is none."""
    match = IMAGE.match(found.file)
    if match is None:
        return None
    image = Image(pool, match["sha256"], match["format"], virtual_size=found.capacity)
    return match["name"], image


def is_ours(file: str, pool: str) -> bool:
    """Whether we, or libvirt for us, made this file of our pool."""
    return bool(disk_name(file, pool)) or OURS.match(file) is not None
