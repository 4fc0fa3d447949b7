"""A host's images: each content once, whichever clusters of this deployment use it (ADR 10).

They lie in a pool beside those of the clusters:

    NAME--SHA256.FORMAT            an image, named in full so that it says what it is
    NAME--SHA256.FORMAT.complete   written when its upload had ended

and each cluster that uses one has an empty file NAME--SHA256.FORMAT.reference in its own pool,
written before the image is sent and removed before it may go. An image without references goes with
the next image or cluster that leaves the host; the pool goes with its last image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import libvirt

from nospoon.model.connections import Libvirt
from nospoon.model.resources.storage import Pool
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan import identity
from nospoon.providers.libvirt.bindings import Connect, VirPool
from nospoon.providers.libvirt.elements import parsed
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.hypervisor import Hypervisor
from nospoon.providers.libvirt.owner import SHARED_IMAGES, pool_uuid
from nospoon.providers.libvirt.pools import (
    has_directory,
    made_pool,
    our_pools,
    remove_empty,
    volumes_known,
    volumes_seen,
)
from nospoon.providers.libvirt.storage_xml import (
    COMPLETE,
    IMAGE,
    REFERENCE,
    FoundVolume,
    parse_pool,
    render_volume,
)
from nospoon.providers.libvirt.volumes import described, file_named
from nospoon.runtime.turns import Turns


@dataclass(frozen=True, slots=True)
class Cached:
    """What the pool of images has: `whole` and half images, by the names of their files."""

    whole: dict[str, FoundVolume]
    half: dict[str, FoundVolume]


@dataclass(frozen=True, slots=True)
class ImageCache:
    """The images of one host. `turns` is shared by all connections, for hosts of several names."""

    hypervisor: Hypervisor
    deployment: str
    turns: Turns

    @property
    def place(self) -> tuple[str, ...]:
        """The libvirtd, whatever a cluster calls its host."""
        uri = self.hypervisor.uri
        return (Libvirt(uri).machine, *Libvirt(uri).daemon)

    @property
    def tag(self) -> OwnerTag:
        """Of images that belong to no cluster."""
        return OwnerTag(self.deployment, SHARED_IMAGES, name="(shared images)")

    @property
    def _name(self) -> str:
        return f"nospoon-images-{self.deployment}"

    def pool(self, connect: Connect) -> VirPool | None:
        """The pool of images, started; None where there is none, or its directory is gone."""
        pool = self._defined(connect)
        return pool if pool is not None and has_directory(pool) else None

    def _defined(self, connect: Connect) -> VirPool | None:
        try:
            pool = connect.storagePoolLookupByName(self._name)
        except libvirt.libvirtError as error:
            if error.get_error_code() == NO_STORAGE_POOL:
                return None
            raise
        ours = str(pool_uuid(self.deployment, SHARED_IMAGES, self._name))
        return pool if pool.UUIDString() == ours else None

    def made(self, connect: Connect, beside: VirPool) -> VirPool:
        """The pool of images; made, if need be, where the cluster's own is. Raises `NotOurs`."""
        known = self._defined(connect)
        if known is not None and has_directory(known):
            return known
        if known is not None:
            known.undefine()
        path = PurePosixPath(parse_pool(parsed(beside.XMLDesc(0))).path).parent
        shape = Pool(f"{path}/{self._name}{identity.pool_end(Libvirt(self.hypervisor.uri).socket)}")
        return made_pool(connect, self.hypervisor.host, self._name, shape, self.tag)

    def turn(self) -> asyncio.Lock:
        """Of those who start or remove pools there."""
        return self.turns.of(*self.place)

    def content(self, connect: Connect) -> Cached:
        """What is there, whoever uses it; nothing where the pool is not started."""
        pool = self._defined(connect)
        seen = volumes_seen(pool) if pool is not None else []
        found = {file.file: file for _, file in described(seen)}
        images = {name: file for name, file in found.items() if IMAGE.match(name)}
        return Cached(
            whole={name: file for name, file in images.items() if name + COMPLETE in found},
            half={name: file for name, file in images.items() if name + COMPLETE not in found},
        )

    def references(self, connect: Connect) -> set[str]:
        """The files of the images that clusters of this deployment use there, as far as their
        pools are started.
        """
        pools = our_pools(connect, self.deployment, None)
        return {each for pool, _ in pools for each in referred(pool)}

    async def sweep(self) -> None:
        """Remove what no cluster uses any more."""
        async with self.turn():
            await self.hypervisor.work(self.sweep_now, "remove unused images")

    def sweep_now(self, connect: Connect) -> None:
        """The same, for who has the turn."""
        pool = self._defined(connect)
        if pool is None:
            return
        if not has_directory(pool):
            pool.undefine()
            return
        for other, _ in our_pools(connect, self.deployment, None):
            if not other.isActive():
                has_directory(other)  # what it refers to stays, too
        used = self.references(connect)
        names = {volume.name() for volume in pool.listAllVolumes(0)}
        left = set(names)
        for name in _markers_first(names):
            image = name.removesuffix(COMPLETE)
            if IMAGE.match(image) and image not in used:
                file = file_named(pool, name)
                if file is not None:
                    file.delete(0)
                left.discard(name)
        if not left:
            remove_empty(pool)


def _markers_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (not name.endswith(COMPLETE), name))


def referred(pool: VirPool) -> Iterator[str]:
    """The files of the images that a cluster's pool refers to. Who wrote that told libvirt, too, so
    that no one else's pool is looked through.
    """
    for volume in volumes_known(pool):
        if volume.name().endswith(REFERENCE):
            yield volume.name().removesuffix(REFERENCE)


def refer(pool: VirPool, image: str) -> None:
    """Have a cluster's pool refer to an image."""
    if file_named(pool, image + REFERENCE) is None:
        pool.createXML(render_volume(image + REFERENCE, capacity=0, file_format="raw"), 0)
