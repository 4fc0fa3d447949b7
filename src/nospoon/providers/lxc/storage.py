"""Pools, images and roots: a directory, files in it, and a record beside each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from uuid import UUID

from nospoon.errors import NotOurs, ProviderError
from nospoon.model.resources import Image, Key, Kind, Observed, OwnerTag, Pool, Resource, Volume
from nospoon.plan.order.kinds import whose
from nospoon.providers.base import OpenImage, in_use
from nospoon.providers.lxc import scripts
from nospoon.providers.lxc.config import Ids
from nospoon.providers.lxc.host import LxcHost
from nospoon.providers.lxc.records import OnPool, Record, Seen, record
from nospoon.runtime.paced import paced
from nospoon.runtime.process import said_by

THERE = 17
"""Status of `scripts.MAKE_POOL` where the directory is another's."""


class Owned:
    """What all kinds on a host have in common: how it is found, and whose it is."""

    def __init__(self, kind: Kind, host: LxcHost, deployment: str) -> None:
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

    def __init__(self, host: LxcHost, deployment: str) -> None:
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
        await self.host.sh(scripts.REMOVE_POOL, observed.shape.path)


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
        return seen.records.get(f"{PurePosixPath(path).relative_to(self.host.root)}.json")

    async def remove(self, path: str) -> None:
        """The record last: what is half removed is still known."""
        await self.host.runner.run(["rm", "-f", "--", path, f"{path}.part"])
        await self.host.runner.run(["rm", "-f", "--", f"{path}.json"])


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
        path = await _there(self, observed, observed.shape.pool, "image")
        if path:
            await self.remove(path)


class VolumeDriver(Files):
    """Roots. `size` is that of the file system, which holds no more."""

    def __init__(self, host: LxcHost, deployment: str) -> None:
        super().__init__(Kind.VOLUME, host, deployment)

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
                ids = await self.host.ids()
                await self._make(name, volume, pool, path, ids)
            else:
                ids = Ids(*found.ids)
            if found is not None and size is not None and size != volume.size:
                await self._resize(seen, resource, path, size)
            text = record(name, tag, volume, ids=(ids.first, ids.count))
            await self.host.write(f"{path}.json", text)

    async def _make(self, name: str, volume: Volume, pool: str, path: str, ids: Ids) -> None:
        image = f"{pool}/{volume.image}.image" if volume.image else ""
        words = (str(volume.size), str(ids.first), str(ids.count), image, scripts.UNPACK)
        try:
            await self.host.sh(scripts.MAKE_ROOT, path, *words)
        except ProviderError as error:
            raise ProviderError(
                f"{error.message.rstrip('.')} (root {name} of {volume.size >> 20} MiB)",
                hint="The image must be the root file system of a container, packed by tar, and "
                "`size` large enough for it.",
            ) from error

    async def _resize(self, seen: Seen, resource: Resource, path: str, before: int) -> None:
        assert isinstance(resource.shape, Volume)
        if resource.shape.size < before:
            raise ProviderError(
                f"{resource.key} cannot shrink from {before} to {resource.shape.size} bytes",
                hint="Remove the node and make it again.",
            )
        user = user_of(seen, path)
        await self.host.sh(scripts.GROW_ROOT, path, str(resource.shape.size), user)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Volume)
        path = await _there(self, observed, observed.shape.pool, "volume")
        if not path:
            return
        if user_of(await self.host.look(), str(PurePosixPath(path).relative_to(self.host.root))):
            raise in_use(observed.key, whose(observed.key))
        await self.remove(path)


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


async def _there(driver: Files, observed: Observed, pool: str, ending: str) -> str:
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
