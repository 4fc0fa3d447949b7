"""Run by Cinder's Python: a driver whose volumes are sparse files of one directory.

Nova attaches a file by the driver type `gpfs`, which wants nothing of the compute host but that it
sees the file: no daemon, no kernel module, no mount. A snapshot is a copy; that of a volume which
is written meanwhile is of no single moment, as a guest that is not paused would see it.

https://docs.openstack.org/cinder/latest/contributor/drivers.html
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from cinder import interface
from cinder.image import image_utils
from cinder.volume import driver, volume_utils

GIB = 1 << 30


class Volume(Protocol):
    """Of Cinder's, what is used here. `size`: GiB."""

    name: str
    size: int


class Snapshot(Protocol):
    name: str
    volume: Volume


@interface.volumedriver
class FileDriver(driver.VolumeDriver):  # type: ignore[misc]  # it has no types
    """`volumes_dir` of its backend is where they are."""

    VERSION = "1"
    CI_WIKI_NAME = "none"
    SUPPORTED = True

    def check_for_setup_error(self) -> None:
        Path(self.configuration.volumes_dir).mkdir(parents=True, exist_ok=True)

    def local_path(self, volume: Volume | Snapshot) -> str:
        """Of a volume or a snapshot, by the name that Cinder gives it."""
        return str(Path(self.configuration.volumes_dir, volume.name))

    def _update_volume_stats(self) -> None:
        found = os.statvfs(self.configuration.volumes_dir)
        self._stats = {
            "volume_backend_name": self.configuration.volume_backend_name,
            "vendor_name": "nospoon",
            "driver_version": self.VERSION,
            "storage_protocol": "file",
            "total_capacity_gb": found.f_blocks * found.f_frsize / GIB,
            "free_capacity_gb": "unknown",  # files are sparse: quotas limit them
            "reserved_percentage": 0,
            "multiattach": False,
        }

    def create_volume(self, volume: Volume) -> None:
        path = Path(self.local_path(volume))
        path.touch(mode=0o600)
        os.truncate(path, volume.size * GIB)

    def delete_volume(self, volume: Volume) -> None:
        Path(self.local_path(volume)).unlink(missing_ok=True)

    def extend_volume(self, volume: Volume, new_size: int) -> None:
        os.truncate(self.local_path(volume), new_size * GIB)

    def create_snapshot(self, snapshot: Snapshot) -> None:
        self._copy(snapshot.volume, snapshot)

    def delete_snapshot(self, snapshot: Snapshot) -> None:
        Path(self.local_path(snapshot)).unlink(missing_ok=True)

    def create_volume_from_snapshot(self, volume: Volume, snapshot: Snapshot) -> None:
        self._copy(snapshot, volume)
        self.extend_volume(volume, volume.size)

    def create_cloned_volume(self, volume: Volume, src_vref: Volume) -> None:
        self._copy(src_vref, volume)
        self.extend_volume(volume, volume.size)

    def revert_to_snapshot(self, context: object, volume: Volume, snapshot: Snapshot) -> None:
        del context
        self._copy(snapshot, volume)
        self.extend_volume(volume, volume.size)

    def _copy(self, source: Volume | Snapshot, target: Volume | Snapshot) -> None:
        argv = ("cp", "--sparse=always", "--reflink=auto", "--no-target-directory", "--")
        self._execute(*argv, self.local_path(source), self.local_path(target))

    def copy_image_to_volume(
        self, context: object, volume: Volume, images: object, image: str, **how: object
    ) -> None:
        size = self.configuration.volume_dd_blocksize
        path = self.local_path(volume)
        image_utils.fetch_to_raw(context, images, image, path, size, size=volume.size, **how)
        self.extend_volume(volume, volume.size)

    def copy_volume_to_image(
        self, context: object, volume: Volume, images: object, described: object
    ) -> None:
        volume_utils.upload_volume(context, images, described, self.local_path(volume), volume)

    def ensure_export(self, context: object, volume: object) -> None:
        """Every compute host sees the directory."""

    def create_export(self, context: object, volume: object, connector: object) -> None:
        """As `ensure_export`."""

    def remove_export(self, context: object, volume: object) -> None:
        """As `ensure_export`."""

    def initialize_connection(self, volume: Volume, connector: object) -> dict[str, object]:
        del connector
        data = {"name": volume.name, "device_path": self.local_path(volume)}
        return {"driver_volume_type": "gpfs", "data": data}

    def terminate_connection(self, volume: object, connector: object, **how: object) -> None:
        """As `ensure_export`."""
