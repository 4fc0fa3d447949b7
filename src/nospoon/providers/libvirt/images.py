"""Images: copied from the daemon's own file into a pool, once, and checked on the way.

An image counts as there only when a marker file beside it says that its upload had ended, so that
what a crash left half-way is made again instead of being booted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import libvirt

from nospoon.errors import OutOfSpace, ProviderError
from nospoon.model.resources import Image, Key, Kind, Observed, OwnerTag, Resource
from nospoon.providers.base import OpenImage
from nospoon.providers.libvirt.hypervisor import Connect, Hypervisor
from nospoon.providers.libvirt.pools import VirPool, has_directory, our_pool, our_pools, refreshed
from nospoon.providers.libvirt.storage_xml import COMPLETE, as_image, image_file, render_volume
from nospoon.providers.libvirt.volumes import file_named, files_in, remove_files
from nospoon.runtime import process
from nospoon.runtime.clock import Clock

CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class ImageFile:
    """What qemu-img says of a file. Sizes in bytes."""

    format: str
    virtual_size: int
    file_size: int
    refers_to: str = ""


async def inspect_image(path: str, kind: str) -> ImageFile:
    """What the daemon's own copy of an image of this format is; QEMU guesses none.

    Raises `ProviderError` when it cannot be read.
    """
    if not _is_file(path):
        raise ProviderError(f"the image {path} is missing", hint="`nospoon up` sends it again.")
    done = await process.run(["qemu-img", "info", "--output=json", "-f", kind, path], check=False)
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
        file_size=_size(path),
        refers_to=str(told.get("backing-filename") or details.get("data-file") or ""),
    )


def _is_file(path: str) -> bool:
    return Path(path).is_file()


def _size(path: str) -> int:
    return Path(path).stat().st_size


class ImageDriver:
    """Copies images to the host and removes them. `open_image` finds the daemon's own copy."""

    kind = Kind.IMAGE

    def __init__(
        self, hypervisor: Hypervisor, deployment: str, clock: Clock, *, open_image: OpenImage
    ) -> None:
        self._hypervisor, self._deployment, self._clock = hypervisor, deployment, clock
        self._open_image = open_image

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = await self._hypervisor.work(
            lambda connect: self._list(connect, cluster), "list images"
        )
        host, now = self._hypervisor.host, self._clock()
        return [
            Observed(Key(Kind.IMAGE, host, name), shape, tag, now) for tag, (name, shape) in found
        ]

    def _list(
        self, connect: Connect, cluster: UUID | None
    ) -> list[tuple[OwnerTag, tuple[str, Image]]]:
        found = []
        for pool, facts in our_pools(connect, self._deployment, cluster):
            files = (
                [file for _, file in files_in(pool)] if facts.active and has_directory(pool) else []
            )
            complete = {file.file.removesuffix(COMPLETE) for file in files}
            complete &= {f.file.removesuffix(COMPLETE) for f in files if f.file.endswith(COMPLETE)}
            found += [
                (facts.tag, image)
                for file in files
                if file.file in complete and (image := as_image(file, facts.name)) is not None
            ]
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Image)
        shape, name = resource.shape, resource.key.name
        path = await self._open_image(shape.sha256)
        file = await inspect_image(path, shape.format)
        _refuse_unfit(path, file, shape)
        await self._hypervisor.work(
            lambda connect: self._copy(
                our_pool(connect, self._hypervisor.host, tag, shape.pool),
                connect, path, file_name=image_file(name, shape), shape=shape,
            ),
            f"copy image {name} to pool {shape.pool}",
        )  # fmt: skip

    def _copy(
        self, pool: VirPool, connect: Connect, path: str, *, file_name: str, shape: Image
    ) -> None:
        if file_named(refreshed(pool), file_name + COMPLETE) is not None:
            if file_named(pool, file_name) is not None:
                return
            file_named(pool, file_name + COMPLETE).delete(0)  # type: ignore[union-attr]  # found
        half = file_named(pool, file_name)
        if half is not None:
            half.delete(0)
        _check_space(self._hypervisor.host, pool, _size(path))
        xml = render_volume(file_name, capacity=_size(path), file_format="raw")
        volume = pool.createXML(xml, 0)
        try:
            digest = _upload(connect, volume, path)
            if digest != shape.sha256:
                raise ProviderError(
                    f"the image {path} is corrupt: its sha256 is {digest}, not {shape.sha256}",
                    hint="Run `nospoon up` with a good copy.",
                )
            marker = render_volume(file_name + COMPLETE, capacity=0, file_format="raw")
            pool.createXML(marker, 0)
        except (libvirt.libvirtError, ProviderError, OSError):
            volume.delete(0)
            raise

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        assert isinstance(observed.shape, Image)
        file = image_file(observed.key.name, observed.shape)
        await self._hypervisor.work(
            lambda connect: remove_files(
                connect, self._hypervisor.host, observed, [file + COMPLETE, file]
            ),
            f"remove image {observed.key.name}",
        )


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
            hint="Make room on the file system of the pool.",
        )


def _upload(connect: Connect, volume: object, path: str) -> str:
    """Send the file through libvirt; returns the sha256 of what was sent."""
    digest = hashlib.sha256()
    stream = connect.newStream(0)
    volume.upload(stream, 0, _size(path), 0)  # type: ignore[attr-defined]  # a virStorageVol
    try:
        with Path(path).open("rb") as file:
            while chunk := file.read(CHUNK):
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
    """Put a file of ours into a pool, unless a file of that name and size is there."""
    existing = file_named(pool, name)
    if existing is not None:
        if existing.info()[1] == _size(path):
            return
        existing.delete(0)
    _check_space(connect.getHostname(), pool, _size(path))
    xml = render_volume(name, capacity=_size(path), file_format="raw", mode=mode)
    volume = pool.createXML(xml, 0)
    try:
        _upload(connect, volume, path)
    except (libvirt.libvirtError, OSError):
        volume.delete(0)
        raise
