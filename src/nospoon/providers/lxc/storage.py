"""Images and roots: files in a pool, and a record beside each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from uuid import UUID

from nospoon.errors import ProviderError
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import OpenImage, in_use
from nospoon.providers.containers import volumes
from nospoon.providers.containers.records import record
from nospoon.providers.containers.storage import Files, there, user_of
from nospoon.providers.lxc import scripts
from nospoon.providers.lxc.config import Ids
from nospoon.providers.lxc.host import LxcHost
from nospoon.runtime.paced import paced


class ImageDriver(Files):
    """Copies of images."""

    def __init__(self, host: LxcHost, deployment: str, open_image: OpenImage) -> None:
        super().__init__(Kind.IMAGE, host, deployment)
        self._open = open_image

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        return [
            self.observed(each, each.image, "" if path in seen.sizes else "its file is gone")
            async for at, each in paced(seen.records.items())
            if each.image is not None and self.is_managed(each, cluster)
            if (path := at.removesuffix(".json"))
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        image = resource.shape
        assert isinstance(image, Image)
        seen = await self.host.look()
        path = f"{self.pool_of(seen, image.pool, tag)}/{resource.key.name}.image"
        async with self.turns[path]:
            if str(PurePosixPath(path).relative_to(self.host.root)) not in seen.sizes:
                await self.host.copy(await self._open(image.sha256), path, image.sha256)
            await self.host.write(f"{path}.json", record(resource.key.name, tag, image))

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Image)
        path = await there(self, observed, observed.shape.pool, "image")
        if path:
            await self.remove(path)


class VolumeDriver(Files):
    """Roots, and volumes without an image, which are data. `size` is that of the file system, which
    holds no more.
    """

    def __init__(self, host: LxcHost, deployment: str) -> None:
        super().__init__(Kind.VOLUME, host, deployment)
        self._ids = host.ids

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        return [
            self.observed(
                each,
                replace(each.volume, size=seen.sizes.get(path, each.volume.size)),
                "" if path in seen.sizes else "its file is gone",
            )
            async for at, each in paced(seen.records.items())
            if each.volume is not None and self.is_managed(each, cluster)
            if (path := at.removesuffix(".json"))
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        volume, name = resource.shape, resource.key.name
        assert isinstance(volume, Volume)
        seen = await self.host.look()
        pool = self.pool_of(seen, volume.pool, tag)
        path = f"{pool}/{name}.volume"
        async with self.turns[path]:
            found = self.record_of(seen, path)
            size = seen.sizes.get(str(PurePosixPath(path).relative_to(self.host.root)))
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
        if resource.shape.size < before:
            raise ProviderError(
                f"{resource.key} cannot shrink from {before} to {resource.shape.size} bytes",
                hint="Remove the node and make it again.",
            )
        await self.host.sh('truncate -s "$2" "$1"', path, str(resource.shape.size))

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Volume)
        path = await there(self, observed, observed.shape.pool, "volume")
        if not path:
            return
        if user_of(await self.host.look(), str(PurePosixPath(path).relative_to(self.host.root))):
            raise in_use(observed.key, whose(observed.key))
        await self.remove(path)
