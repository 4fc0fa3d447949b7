"""Images that users loaded, and the machine types that images are for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nospoon.model.node_kind import NodeKind

LOADED = "store:"
"""Begins the name of a loaded image in a cluster file; a file of that name is ./store:NAME."""
KEPT = "snapshot:"
"""Begins what a VM starts from in place of an image: `snapshot:CLUSTER/NAME`, of which a node has
the root that the node of its name had.
"""
_KEPT = re.compile(r"snapshot:([a-z0-9-]+)/([a-z0-9-]+)\Z")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}\Z")


class HypervisorType(StrEnum):
    """What runs an image: words of Nova's image property `img_hv_type`."""

    LXC = "lxc"
    DOCKER = "docker"
    KVM = "kvm"
    QEMU = "qemu"
    BAREMETAL = "baremetal"


CONTAINERS = frozenset({HypervisorType.LXC, HypervisorType.DOCKER})
"""Images for these are root file systems, others are disks."""
ROOT_FORMAT = "tar"
"""Format of an image that is a root file system, packed by tar(1) and, it may be, compressed."""
MOUNTED_ROOT = "raw"
"""Format of one that is an ext4 file system itself, as Nova's LXC driver mounts it."""
DISKS = frozenset(HypervisorType) - CONTAINERS
OF_KIND: Mapping[NodeKind, frozenset[HypervisorType]] = {
    NodeKind.BAREMETAL: DISKS,
    NodeKind.VM: frozenset({HypervisorType.KVM, HypervisorType.QEMU}),
    NodeKind.CONTAINER: CONTAINERS,
}
"""What nodes of a kind may begin with."""


@dataclass(frozen=True, slots=True)
class LoadedImage:
    """An image of a user by its name. `size`: bytes of the disk, or of the packed root; `created`:
    Unix seconds; `hypervisor_type` None: for every machine that can begin with its format.
    """

    name: str
    sha256: str
    format: str
    size: int
    hypervisor_type: HypervisorType | None
    created: float


def loaded_name(image: str) -> str:
    """The name of the loaded image that a cluster file means; "" for a path or URL."""
    return image.removeprefix(LOADED) if image.startswith(LOADED) else ""


def kept_in(image: str) -> tuple[str, str] | None:
    """The cluster and the snapshot from which an image of a cluster file is; None for another."""
    found = _KEPT.match(image)
    return (found[1], found[2]) if found else None


FORMER = "former."
"""Begins what former roots in a cloud are called beside snapshots, of which none has a dot."""
_STORED = re.compile(r"(?:former\.([0-9]+):)?(?:role\.([0-9a-f]+):)?(.*)\Z", re.DOTALL)


def is_former_root(snapshot: str) -> bool:
    """Whether it is the name of a former root, and not that of a user's snapshot."""
    return snapshot.startswith(FORMER)


@dataclass(frozen=True, slots=True)
class StoredRoot:
    """What the root of a server is, as the disk of its machine is called. `image`: of which it was
    made in the beginning; `mark`: of the roles that ran on it, 0 for none; `former`: number of the
    former root of which its server was made, None where it was made of the image.
    """

    image: str
    mark: int = 0
    former: int | None = None

    def __str__(self) -> str:
        mark = f"role.{self.mark:x}" if self.mark else ""
        return ":".join(filter(None, (self.snapshot, mark, self.image)))

    @classmethod
    def of(cls, volume: str) -> StoredRoot:
        """By the name of a disk."""
        found = _STORED.match(volume)
        assert found is not None, "it matches any text"
        former, mark, image = found.groups()
        return cls(image, int(mark or "0", 16), int(former) if former else None)

    @property
    def snapshot(self) -> str:
        """What the former root is called of which its server was made, "" for none."""
        return "" if self.former is None else f"{FORMER}{self.former}"

    def is_like(self, other: StoredRoot) -> bool:
        """Whether the same was made of the same image."""
        return (self.image, self.mark) == (other.image, other.mark)


@dataclass(frozen=True, slots=True, order=True)
class KeptIn:
    """Whose root a snapshot keeps."""

    cluster: str
    snapshot: str
    node: str

    def __str__(self) -> str:
        """As the disk of a machine is called that starts from it."""
        return f"{KEPT}{self.cluster}:{self.snapshot}:{self.node}"

    @classmethod
    def of(cls, volume: str) -> KeptIn | None:
        """By the name of a disk; None for another one."""
        parts = volume.removeprefix(KEPT).split(":")
        return cls(*parts) if volume.startswith(KEPT) and len(parts) == 3 else None
