"""Images: copied from the daemon's own file to a host, once, and checked on the way.

An image counts as there only when a marker file beside it says that its upload had ended, so that
what a crash left half-way is made again instead of being booted. Where they lie: `image_cache`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO
from uuid import UUID

import libvirt
import structlog

from nospoon.errors import NospoonError, OutOfSpace, ProviderError
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.base import OpenImage
from nospoon.providers.libvirt.bindings import Connect, VirPool, VirVolume
from nospoon.providers.libvirt.faults import NO_STORAGE_POOL
from nospoon.providers.libvirt.hypervisor import ignoring
from nospoon.providers.libvirt.image_cache import Cached, ImageCache, refer
from nospoon.providers.libvirt.owner import SHARED_IMAGES
from nospoon.providers.libvirt.pools import our_pool, our_pools, refreshed, volumes_seen
from nospoon.providers.libvirt.storage_xml import (
    COMPLETE,
    REFERENCE,
    FoundVolume,
    as_image,
    image_file,
    render_volume,
)
from nospoon.providers.libvirt.volumes import described, file_named
from nospoon.runtime import process

log = structlog.get_logger()
CHUNK = 1 << 18
MOST_INFO = 1 << 20
"""Bytes of what qemu-img says; of images that clients give it is bounded before, too."""


@dataclass(frozen=True, slots=True)
class ImageFile:
    """What qemu-img says of a file. Sizes in bytes."""

    format: str
    virtual_size: int
    refers_to: str = ""


async def inspect_image(path: str, kind: str) -> ImageFile:
    """What the daemon's own copy of an image of this format is; QEMU guesses none.

    Raises `ProviderError` when it cannot be read.
    """
    if not _is_file(path):
        raise ProviderError(f"the image {path} is missing", hint="`nospoon up` sends it again.")
    argv = ["qemu-img", "info", "--output=json", "-f", kind, path]
    done = await process.run(argv, check=False, most=MOST_INFO)
    if done.status != 0:
        raise ProviderError(
            f"the image {path} cannot be read: {done.stderr.strip()}",
            hint="Run `nospoon up` with a good copy.",
        )
    told = json.loads(done.stdout)
    details = told.get("format-specific", {}).get("data", {})
    return ImageFile(
        format=str(told["format"]),
        virtual_size=int(told["virtual-size"]),
        refers_to=str(told.get("backing-filename") or details.get("data-file") or ""),
    )


def _is_file(path: str) -> bool:
    return Path(path).is_file()


def _size(path: str) -> int:
    return Path(path).stat().st_size


class ImageDriver:
    """Has clusters refer to images of their host, which it sends there once. `open_image` finds the
    daemon's own copy.
    """

    kind = Kind.IMAGE

    def __init__(self, cache: ImageCache, *, open_image: OpenImage) -> None:
        self._cache = cache
        self._hypervisor, self._open_image = cache.hypervisor, open_image

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = await self._hypervisor.work(
            lambda connect: list(self._list(connect, cluster)), "list images"
        )
        host = self._hypervisor.host
        return [Observed(Key(Kind.IMAGE, host, name), shape, tag) for tag, (name, shape) in found]

    def _list(
        self, connect: Connect, cluster: UUID | None
    ) -> Iterator[tuple[OwnerTag, tuple[str, Image]]]:
        """Those that clusters refer to, or have themselves, and those that none does."""
        content = self._cache.content(connect)
        for pool, facts in our_pools(connect, self._cache.deployment, cluster):
            found = {file.file: file for _, file in described(volumes_seen(pool))}
            for file in _images_of(found, content):
                if (image := as_image(file, facts.name)) is not None:
                    yield facts.tag, image
        everything = content.whole | content.half
        if cluster is None and everything:
            for name in everything.keys() - self._cache.references(connect):
                if (image := as_image(everything[name], "")) is not None:
                    yield self._cache.tag, image

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """A reference, then the image, unless it is there: so that no one takes it away."""
        assert isinstance(resource.shape, Image)
        shape, name = resource.shape, resource.key.name
        path = await self._open_image(shape.sha256)
        file = await inspect_image(path, shape.format)
        _refuse_unfit(path, file, shape)
        turns, place, image = self._cache.turns, self._cache.place, image_file(name, shape)
        async with turns.of(*place, shape.sha256):
            async with self._cache.turn():
                missing = await self._hypervisor.work(
                    lambda connect: self._refer(connect, shape.pool, tag, image),
                    f"refer to image {name} in pool {shape.pool}",
                )
            if missing:
                await self._send(path, image, shape, tag)

    def _refer(self, connect: Connect, pool_name: str, tag: OwnerTag, image: str) -> bool:
        """Whether the image is still to be sent."""
        pool = refreshed(our_pool(connect, self._hypervisor.host, tag, pool_name))
        if file_named(pool, image + COMPLETE) is not None and file_named(pool, image) is not None:
            return False
        for name in (image + COMPLETE, image):  # half of one, of an earlier version
            half = file_named(pool, name)
            if half is not None:
                half.delete(0)
        shared = self._cache.made(connect, pool)
        refer(pool, image)
        whole = file_named(shared, image + COMPLETE), file_named(shared, image)
        if None not in whole:
            return False
        for file in whole:
            if file is not None:
                file.delete(0)
        return True

    async def _send(self, path: str, image: str, shape: Image, tag: OwnerTag) -> None:
        try:
            await self._hypervisor.work(
                lambda connect: self._copy(connect, path, image, shape.sha256),
                f"copy image {image}",
            )
        except NospoonError:
            await self._tidied(image, shape, tag)
            raise

    async def _tidied(self, image: str, shape: Image, tag: OwnerTag) -> None:
        """After an image that could not be sent, which is told: what keeps half of it is logged."""
        try:
            async with self._cache.turn():
                await self._hypervisor.work(
                    lambda connect: self._let_go(connect, shape.pool, tag, image),
                    f"release image {image}",
                )
        except NospoonError as error:
            log.warning("what was sent of an image stays for now", image=image, why=str(error))

    def _copy(self, connect: Connect, path: str, image: str, sha256: str) -> None:
        pool = self._cache.pool(connect)
        assert pool is not None, "the reference keeps it"
        _check_space(self._hypervisor.host, pool, _size(path))
        xml = render_volume(image, capacity=_size(path), file_format="raw")
        volume = pool.createXML(xml, 0)
        digest = _upload(connect, volume, path)
        if digest != sha256:
            raise ProviderError(
                f"the image {path} is corrupt: its sha256 is {digest}, not {sha256}",
                hint="Run `nospoon up` with a good copy.",
            )
        marker = render_volume(image + COMPLETE, capacity=0, file_format="raw")
        pool.createXML(marker, 0)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        """The cluster's reference, and the image if it was the last."""
        assert isinstance(observed.shape, Image)
        shape, tag = observed.shape, observed.tag
        image = image_file(observed.key.name, shape)
        turns, place = self._cache.turns, self._cache.place
        async with turns.of(*place, shape.sha256), self._cache.turn():
            await self._hypervisor.work(
                lambda connect: self._let_go(connect, shape.pool, tag, image),
                f"remove image {observed.key.name}",
            )

    def _let_go(self, connect: Connect, pool_name: str, tag: OwnerTag, image: str) -> None:
        if tag.cluster != SHARED_IMAGES:
            with ignoring(NO_STORAGE_POOL):  # what was in it is gone as well
                pool = our_pool(connect, self._hypervisor.host, tag, pool_name)
                for name in (image + COMPLETE, image, image + REFERENCE):
                    file = file_named(pool, name)
                    if file is not None:
                        file.delete(0)
        self._cache.sweep_now(connect)


def _images_of(found: Mapping[str, FoundVolume], content: Cached) -> Iterator[FoundVolume]:
    """Whole images that a cluster's files refer to, or that are among them (earlier versions)."""
    for name, file in found.items():
        image = name.removesuffix(REFERENCE)
        if name != image and image in content.whole:
            yield content.whole[image]
        elif name + COMPLETE in found:
            yield file


def _refuse_unfit(path: str, file: ImageFile, shape: Image) -> None:
    if file.refers_to:
        raise ProviderError(
            f"the image {path} refers to another file, {file.refers_to}: it is not whole",
            hint="Flatten it: `qemu-img convert -O qcow2 IMAGE WHOLE`.",
        )
    got = (file.format, file.virtual_size)
    want = (shape.format, shape.virtual_size)
    if got != want:
        raise ProviderError(
            f"the image {path} is not what it was: format and size are {got}, not {want}",
            hint="`nospoon up` sends it again.",
        )


def _check_space(host: str, pool: VirPool, needed: int) -> None:
    available = pool.info()[3]
    if needed > available:
        raise OutOfSpace(
            f"host {host}: pool {pool.name()} has {available >> 20} MiB left, "
            f"the image takes {needed >> 20} MiB",
            hint="Free space on the file system of the pool.",
        )


def _upload(connect: Connect, volume: VirVolume, path: str) -> str:
    """Send the file through libvirt; returns the sha256 of what was sent."""
    with Path(path).open("rb") as file:
        return _send(connect, volume, file, _size(path))


def _send(connect: Connect, volume: VirVolume, content: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    stream = connect.newStream(0)
    volume.upload(stream, 0, size, 0)
    try:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[stream.send(bytes(view)) :]
        stream.finish()
    except (libvirt.libvirtError, OSError):
        stream.abort()
        raise
    return digest.hexdigest()


def send_file(connect: Connect, pool: VirPool, path: str, name: str, *, mode: str = "") -> None:
    """Put a file of ours into a pool, unless a file of that name and size is there. It grows while
    it is sent: half of one, which a daemon left that was killed, is smaller.
    """
    existing = file_named(pool, name)
    if existing is not None:
        if existing.info()[1] == _size(path):
            return
        existing.delete(0)
    _check_space(connect.getHostname(), pool, _size(path))
    xml = render_volume(name, capacity=0, file_format="raw", mode=mode)
    volume = pool.createXML(xml, 0)
    try:
        _upload(connect, volume, path)
    except (libvirt.libvirtError, OSError):
        volume.delete(0)
        raise


def send_bytes(connect: Connect, pool: VirPool, content: bytes, name: str, *, mode: str) -> None:
    """Put a file with this content into a pool, in place of one of that name: a daemon that ended
    may have left a part of it. Who has the old file open keeps it (unlink(2)).
    """
    existing = file_named(pool, name)
    if existing is not None:
        existing.delete(0)
    _check_space(connect.getHostname(), pool, len(content))
    xml = render_volume(name, capacity=len(content), file_format="raw", mode=mode)
    volume = pool.createXML(xml, 0)
    try:
        _send(connect, volume, BytesIO(content), len(content))
    except (libvirt.libvirtError, OSError):
        volume.delete(0)
        raise
