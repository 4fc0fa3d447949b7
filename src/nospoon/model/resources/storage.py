"""Shapes of what disks are made in and of, and of what machines boot that ask the daemon."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from nospoon.model.cluster import Firmware
from nospoon.model.resources.keys import Key, Kind

OWN_FORMAT = "qcow2"
"""What volumes hold that we make."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Where volumes of one cluster live on a host: a directory pool at `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class Image:
    """A disk image copied to a host once. `sha256` of the file; sizes in bytes.

    `pool`: of the cluster that uses it. `format` is qemu-img's name (raw, qcow2), or `ROOT_FORMAT`;
    `virtual_size` is what a guest sees. `firmware`: of the machines that boot it, and
    `hypervisor_type`: of what runs it, "" for any, where the host wants to know that of the image.
    """

    pool: str
    sha256: str
    format: str
    virtual_size: int
    firmware: Firmware | None = None
    hypervisor_type: str = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A disk of a machine, or the root of a container; `size` in bytes. `image` names an Image
    resource, "" is blank.
    """

    pool: str
    size: int
    image: str = ""


@dataclass(frozen=True, slots=True)
class BootImage:
    """A medium that machines of one firmware boot at each power-on and ask at `url`, such as
    "http://198.51.100.1:8069", what to do.
    """

    firmware: Firmware
    url: str


def boot_image(host: str, firmware: Firmware, url: str) -> Key:
    """Names the boot image that machines of this firmware have on a host and that asks at a URL:
    for another URL it is another image, which is there before the first one goes.
    """
    return Key(Kind.BOOT_IMAGE, host, f"boot-{firmware}-{sha256(url.encode()).hexdigest()[:8]}")


@dataclass(frozen=True, slots=True)
class KeptRoot:
    """The root disk of a node as a snapshot keeps it, where that is an image of a cloud; or a
    former root (`nospoon.model.images.is_former_root`). `snapshot`: its name; `volume`: of which
    root, as the machine's shape calls it.
    """

    node: str
    snapshot: str
    volume: str


@dataclass(frozen=True, slots=True)
class ExistingVolume:
    """A volume of someone else's in a storage pool of a host; `size` in bytes, `format` as libvirt
    sees it. `users`: UUID and name of the machines that have it as a disk. `managed`: it lies in a
    pool of nospoon's, and is some cluster's own.
    """

    size: int
    format: str
    users: tuple[tuple[UUID, str], ...] = ()
    managed: bool = False
