"""What servers are made of: a boot image and blank disks, or a root made of an image.

https://docs.openstack.org/nova/latest/user/block-device-mapping.html
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from nospoon.errors import ProviderError
from nospoon.model.cloud_images import cloud_name
from nospoon.model.connections import NOVAS_USER_DATA
from nospoon.model.images import KeptIn, StoredRoot
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.user_data import joined, keys_beside
from nospoon.providers.base import OpenSeed
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import BootImageDriver
from nospoon.providers.openstack.key_pairs import KeyPairDriver
from nospoon.providers.openstack.roots import RootImageDriver
from nospoon.providers.openstack.snapshots import SnapshotImages

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class MadeOf:
    """`open_seed`: what cloud-init is given."""

    around: Around
    boot_images: BootImageDriver
    roots: RootImageDriver
    open_seed: OpenSeed
    key_pairs: KeyPairDriver

    async def of(self, shape: Machine, tag: OwnerTag) -> dict[str, object]:
        """What a call that makes a server says of that. Raises `ProviderError`."""
        match shape.kind:
            case NodeKind.VM:
                return await self._of_image(shape, tag)
            case NodeKind.CONTAINER:
                return await self._of_root(shape, tag)
        root = await self.boot_images.root_for(shape.firmware, tag.cluster, shape.asks_at)
        return {
            "imageRef": root["uuid"],
            "block_device_mapping_v2": [
                {**_root(root["uuid"]), **root},
                *map(self._blank, shape.disks),
            ],
        }

    async def _of_image(self, shape: Machine, tag: OwnerTag) -> dict[str, object]:
        """Its user data is on a config drive, as a cloud may have no metadata service on a network
        (https://docs.openstack.org/nova/latest/user/metadata.html).
        """
        root, *others = shape.disks
        image = await self._stored(shape, tag) or await self._image(root, tag)
        is_volume = self.around.cloud.has_volumes
        disk = {**_root(image), "disk_bus": root.bus, "device_type": "disk"}
        made: dict[str, object] = {
            "imageRef": "" if is_volume else image,  # Nova takes none of what boots from a volume
            "block_device_mapping_v2": [
                {**disk, **(self._volume(root) if is_volume else {})},
                *map(self._blank, others),
            ],
            "config_drive": True,
        }
        return {**made, **await self._user_data(shape, tag)}

    async def _of_root(self, shape: Machine, tag: OwnerTag) -> dict[str, object]:
        """A container: Nova mounts its image, and shows it no other disk, the config drive neither.
        So its user data is that of the cloud's metadata service.
        """
        image = await self._image(shape.disks[0], tag)
        return {"imageRef": image, **await self._user_data(shape, tag)}

    async def _stored(self, shape: Machine, tag: OwnerTag) -> str:
        """The id of a root of before, or of another node; "" for an image."""
        root, images = StoredRoot.of(shape.disks[0].volume), SnapshotImages(self.around)
        if root.former is not None:
            return await images.id_of_former(shape.uuid, root.snapshot, tag.cluster)
        kept = KeptIn.of(root.image)
        return await images.id_of(kept, tag.uid) if kept is not None else ""

    async def _image(self, root: MachineDisk, tag: OwnerTag) -> str:
        """The id of one that was in the cloud before, or was sent there."""
        image = StoredRoot.of(root.volume).image
        return cloud_name(image) or await self.roots.id_of(image, tag.cluster)

    async def _user_data(self, shape: Machine, tag: OwnerTag) -> dict[str, object]:
        """Raises `ProviderError` for more than Nova takes."""
        pair, named = shape.key_pair, dict[str, object]()
        given = ""
        if shape.seed:
            seed = await self.open_seed(shape.seed)
            given = joined(seed.user_data, seed.vendor_data, keys_beside(seed.keys, pair))
        if pair:
            named["key_name"] = await self.key_pairs.name_of(pair, tag.cluster)
        if not given:
            return named
        if (size := len(given.encode())) > NOVAS_USER_DATA:
            raise ProviderError(
                f"its user data has {size} bytes, and a cloud takes {NOVAS_USER_DATA}",
                hint="User data may fetch what it needs.",
            )
        return {**named, "user_data": b64encode(given.encode()).decode()}

    def _blank(self, disk: MachineDisk) -> dict[str, object]:
        common = {
            "source_type": "blank",
            "boot_index": -1,
            "disk_bus": disk.bus,
            "device_type": "disk",
            "delete_on_termination": True,
        }
        if self.around.cloud.has_volumes:
            return {**common, **self._volume(disk)}
        return {
            **common,
            "destination_type": "local",
            "guest_format": "ext4",  # VFAT, the default, has a boot sector: it waits for a key
            "volume_size": _gib(disk),
        }

    def _volume(self, disk: MachineDisk) -> dict[str, object]:
        """Of Cinder, which Nova makes and deletes with the server."""
        type_ = self.around.cloud.volume_type
        made = {"destination_type": "volume", "volume_size": _gib(disk)}
        return {**made, "volume_type": type_} if type_ else made


def _root(image: str) -> dict[str, object]:
    return {
        "source_type": "image",
        "uuid": image,
        "destination_type": "local",
        "boot_index": 0,
        "delete_on_termination": True,
    }


def _gib(disk: MachineDisk) -> int:
    return -(-disk.size // GIB)
