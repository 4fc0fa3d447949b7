"""What is in a pool, and whose it is; and pools themselves, which are directories."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import ClassVar
from uuid import UUID

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import OpenImage, in_use
from nospoon.providers.containers import scripts
from nospoon.providers.containers.host import ContainerHost
from nospoon.providers.containers.records import OnPool, Record, Seen, record
from nospoon.runtime.paced import paced
from nospoon.runtime.process import said_by

THERE = 17
"""Status of `scripts.MAKE_POOL` where the directory is another's."""


class Owned:
    """What all kinds on a host have in common: how it is found, and whose it is."""

    def __init__(self, kind: Kind, host: ContainerHost, deployment: str) -> None:
        self.kind, self.host, self.deployment = kind, host, deployment
        self.turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def is_managed(self, each: Record, cluster: UUID | None) -> bool:
        return each.tag.deployment == self.deployment and cluster in (None, each.tag.cluster)

    def observed(self, each: Record, shape: OnPool, fault: str = "") -> Observed:
        return Observed(Key(self.kind, self.host.name, each.name), shape, each.tag, fault=fault)

    def refuse(self, what: str, place: str) -> NotOurs:
        return NotOurs(
            f"host {self.host.name}: {what} is at {place} already, and nospoon did not make it for "
            "this cluster",
            hint="Remove it, or rename the node or cluster in the file.",
        )

    def same_owner(self, each: Record | None, tag: OwnerTag) -> bool:
        return each is not None and self.is_managed(each, tag.cluster)


class PoolDriver(Owned):
    """Directories."""

    def __init__(self, host: ContainerHost, deployment: str) -> None:
        super().__init__(Kind.POOL, host, deployment)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        return [
            self.observed(each, each.pool)
            for each in seen.pools.values()
            if each.pool is not None and self.is_managed(each, cluster)
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Pool)
        path, name = resource.shape.path, resource.key.name
        found = (await self.host.look()).records.get(f"{_last(path)}/pool.json")
        if found is not None and not self.same_owner(found, tag):
            raise self.refuse(f"a pool {name}", path)
        text = record(name, tag, resource.shape)
        done = await self.host.sh(scripts.MAKE_POOL, path, str(len(text)), stdin=text, check=False)
        if done.status == THERE:
            raise self.refuse(f"a directory for pool {name}", path)
        if done.status != 0:
            raise ProviderError(f"host {self.host.name}: pool {name}: {said_by(done)}")

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Pool)
        seen, name = await self.host.look(), _last(observed.shape.path)
        found = seen.records.get(f"{name}/pool.json")
        if found is None:
            return
        if not self.same_owner(found, observed.tag):
            raise self.refuse(f"a pool {observed.key.name}", observed.shape.path)
        if any(path.startswith(f"{name}/") for path in seen.running):
            raise ProviderError(f"{observed.key} has roots of containers that run")
        await self.clear(observed.shape.path)
        await self.host.sh(scripts.REMOVE_POOL, observed.shape.path)

    async def clear(self, path: str) -> None:
        """Remove what is of the pool at that path and not in its directory."""


class Files(Owned):
    """A file and its record each, in a pool."""

    def pool_of(self, seen: Seen, pool: str, tag: OwnerTag) -> str:
        """The pool's directory. Raises `ProviderError` where it is not there."""
        for path, each in seen.pools.items():
            if each.name == pool and self.same_owner(each, tag):
                return self.host.path(str(PurePosixPath(path).parent))
        raise ProviderError(
            f"host {self.host.name}: no pool {pool}", hint="Run `nospoon up` again."
        )

    def record_of(self, seen: Seen, path: str) -> Record | None:
        return seen.records.get(f"{self.host.relative(path)}.json")

    async def remove(self, path: str) -> None:
        """The record last: what is half removed is still known."""
        await self.host.runner.run(["rm", "-f", "--", path, f"{path}.part"])
        await self.host.runner.run(["rm", "-f", "--", f"{path}.json"])


class ImageFiles(Files):
    """Copies of images."""

    gone: ClassVar[str] = "its file is gone"
    """The fault of one whose content is not there."""

    def __init__(self, host: ContainerHost, deployment: str, open_image: OpenImage) -> None:
        super().__init__(Kind.IMAGE, host, deployment)
        self._open = open_image

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        return [
            self.observed(each, each.image, "" if path in seen.sizes else self.gone)
            async for at, each in paced(seen.records.items())
            if each.image is not None and self.is_managed(each, cluster)
            if (path := at.removesuffix(".json"))
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        image, name = resource.shape, resource.key.name
        assert isinstance(image, Image)
        seen = await self.host.look()
        path = f"{self.pool_of(seen, image.pool, tag)}/{name}.image"
        async with self.turns[path]:
            if self.host.relative(path) not in seen.sizes:
                await self.host.copy(await self._open(image.sha256), path, image.sha256)
                await self.take_in(name, path)
            await self.host.write(f"{path}.json", record(name, tag, image))

    async def take_in(self, name: str, path: str) -> None:
        """What is done with a copy that has arrived."""

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Image)
        if path := await there(self, observed, observed.shape.pool, "image"):
            await self.give_up(path)
            await self.remove(path)

    async def give_up(self, path: str) -> None:
        """What was done by `take_in` is taken back."""


class VolumeFiles(Files, ABC):
    """Roots, and volumes without an image, which are data."""

    gone: ClassVar[str] = "its file is gone"
    """The fault of one whose content is not there."""

    def __init__(self, host: ContainerHost, deployment: str) -> None:
        super().__init__(Kind.VOLUME, host, deployment)

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        return [
            self.observed(
                each,
                self.sized(each.volume, seen.sizes.get(path)),
                "" if path in seen.sizes else self.gone,
            )
            async for at, each in paced(seen.records.items())
            if each.volume is not None and self.is_managed(each, cluster)
            if (path := at.removesuffix(".json"))
        ]

    def sized(self, volume: Volume, size: int | None) -> Volume:
        """With the size that it has. `size`: bytes of its file, None where that is gone."""
        del size
        return volume

    @abstractmethod
    async def create(self, resource: Resource, tag: OwnerTag) -> None: ...

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    def refuse_shrinking(self, resource: Resource, before: int) -> None:
        """Raises `ProviderError` where it is to be smaller than it was."""
        assert isinstance(resource.shape, Volume)
        if resource.shape.size < before:
            raise ProviderError(
                f"{resource.key} cannot shrink from {before} to {resource.shape.size} bytes",
                hint="Remove the node and make it again.",
            )

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Volume)
        path = await there(self, observed, observed.shape.pool, "volume")
        if not path:
            return
        if user_of(await self.host.look(), self.host.relative(path)):
            raise in_use(observed.key, whose(observed.key))
        await self.give_up(observed, path)
        await self.remove(path)

    async def give_up(self, observed: Observed, path: str) -> None:
        """What has its content besides that file is removed."""


def user_of(seen: Seen, path: str) -> str:
    """The directory of the container that runs with a root, "" for none. `path`: of the root, below
    the directory of pools or absolute.
    """
    pool, name = PurePosixPath(path).parts[-2:]
    for directory in seen.running:
        if not directory.startswith(f"{pool}/"):
            continue
        for which in ("live.json", "machine.json"):
            found = seen.records.get(f"{directory}/{which}")
            if found is None or found.machine is None:
                continue
            if any(f"{disk.volume}.volume" == name for disk in found.machine.disks):
                return directory
    return ""


async def there(driver: Files, observed: Observed, pool: str, ending: str) -> str:
    """The path of a file that nospoon made, "" where it is gone. Raises `NotOurs`."""
    seen = await driver.host.look()
    try:
        path = f"{driver.pool_of(seen, pool, observed.tag)}/{observed.key.name}.{ending}"
    except ProviderError:
        return ""
    found = driver.record_of(seen, path)
    if found is None:
        return ""
    if not driver.same_owner(found, observed.tag):
        raise driver.refuse(str(observed.key), path)
    return path


def _last(path: str) -> str:
    return PurePosixPath(path).name
