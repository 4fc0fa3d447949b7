"""Roots and volumes: files in a pool, and a record beside each."""

from __future__ import annotations

from dataclasses import replace

from nospoon.errors import ProviderError
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.containers import volumes
from nospoon.providers.containers.records import record
from nospoon.providers.containers.storage import VolumeFiles
from nospoon.providers.lxc import scripts
from nospoon.providers.lxc.config import Ids
from nospoon.providers.lxc.host import LxcHost


class VolumeDriver(VolumeFiles):
    """`size` is that of the file system, which holds no more."""

    def __init__(self, host: LxcHost, deployment: str) -> None:
        super().__init__(host, deployment)
        self._ids = host.ids

    def sized(self, volume: Volume, size: int | None) -> Volume:
        return volume if size is None else replace(volume, size=size)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        volume, name = resource.shape, resource.key.name
        assert isinstance(volume, Volume)
        seen = await self.host.look()
        pool = self.pool_of(seen, volume.pool, tag)
        path = f"{pool}/{name}.volume"
        async with self.turns[path]:
            found = self.record_of(seen, path)
            size = seen.sizes.get(self.host.relative(path))
            if found is None or size is None:
                ids = await self._ids()
                if volume.image:
                    await self._make(name, volume, pool, path, ids)
                else:
                    await volumes.make(self.host, path, volume.size)
            else:
                ids = Ids(*found.ids)
            if found is not None and size is not None and size != volume.size:
                await self._resize(resource, path, size)
            text = record(name, tag, volume, ids=(ids.first, ids.count))
            await self.host.write(f"{path}.json", text)

    async def _make(self, name: str, volume: Volume, pool: str, path: str, ids: Ids) -> None:
        image = f"{pool}/{volume.image}.image"
        words = (str(volume.size), str(ids.first), str(ids.count), image, scripts.UNPACK)
        try:
            await self.host.sh(scripts.MAKE_ROOT, path, *words)
        except ProviderError as error:
            raise ProviderError(
                f"{error.message.rstrip('.')} (root {name} of {volume.size >> 20} MiB)",
                hint="The image must be the root file system of a container, packed by tar, and "
                "`size` large enough for it.",
            ) from error

    async def _resize(self, resource: Resource, path: str, before: int) -> None:
        """The file; what is in it grows at the container's next start."""
        assert isinstance(resource.shape, Volume)
        self.refuse_shrinking(resource, before)
        await self.host.sh('truncate -s "$2" "$1"', path, str(resource.shape.size))
