"""Images in Glance of which servers are made: each once a project, for all clusters that use it.

A cluster refers to an image by a property of its own, which goes with the cluster; an image goes
with its last reference. So who uses what is said by the images themselves (as on hosts, ADR 10).

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.resources import Image, Kind, Observed, OwnerTag, Resource
from nospoon.providers.base import OpenImage
from nospoon.providers.cloud_calls import patience
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import FIRMWARES, READY, SHUT_DOWN
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    described,
    kept_properties,
    of_description,
)
from nospoon.providers.openstack.understood import understood
from nospoon.runtime.turns import Turns

SHA256, FORMAT, SIZE, FIRMWARE = (f"{PREFIX}{each}" for each in ("sha256", "format", "size", "fw"))
DEPLOYMENT, OF = f"{PREFIX}deployment", f"{PREFIX}of_"
MOST_USERS = 100
"""References of one image: Glance allows 128 properties (image_property_quota)."""
CONFIG_DRIVE = {"hw_cdrom_bus": "scsi", "hw_scsi_model": "virtio-scsi"}
"""Where Nova has the config drive, as seeds are on libvirt: on IDE, Linux 6.1 found none in an
emulated machine with UEFI (libata waited in vain), and kernels for clouds have no AHCI.
"""
PATCH = {"Content-Type": "application/openstack-images-v2.1-json-patch"}
CHUNK, GIB = 1 << 20, 1 << 30
SLOWEST = 1 << 20
"""Bytes a second that a cloud takes of an image, at least."""
Record = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is sent, from its beginning each time that it is read."""

    path: Path

    def __iter__(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(CHUNK):
                patience(None)  # a cloud may take them as slowly as it likes
                yield piece


@understood
class RootImageDriver:
    """`open_image`: finds the daemon's own copy."""

    kind = Kind.IMAGE

    def __init__(self, around: Around, open_image: OpenImage) -> None:
        self._around, self._open_image = around, open_image
        self._turns = Turns()

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = []
        for record in await self._all():
            fault = "" if record["status"] == READY else f"its upload is {record['status']}"
            for tagged in _users(record):
                if cluster in (None, tagged.tag.cluster):
                    shape = _shape(record)
                    found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """A reference to an image that is there, or to one that is sent now."""
        shape = resource.shape
        assert isinstance(shape, Image), "keys of images have their shapes"
        user = Tagged(tag, resource.key.name)
        async with self._turns.of(shape.sha256):
            for record in await self._all():
                if _shape(record) != shape:
                    continue
                if record["status"] != READY:  # half of one, which an earlier daemon sent
                    await self._delete(record)
                elif _of(tag.cluster) in record or len(_users(record)) < MOST_USERS:
                    await self._patch(record, "add", tag.cluster, described(user))
                    break
            else:
                await self._send(shape, user)

    async def _send(self, shape: Image, user: Tagged) -> None:
        assert shape.firmware is not None, "images of servers have one"
        path = Path(await self._open_image(shape.sha256))
        made = await self._around.api.call(
            Service.GLANCE,
            "POST",
            "/images",
            {
                "name": f"nospoon-{user.name}",
                "disk_format": shape.format,
                "container_format": "bare",
                "visibility": "private",
                "min_disk": -(-shape.virtual_size // GIB),
                "hw_firmware_type": FIRMWARES[shape.firmware],
                "os_shutdown_timeout": str(SHUT_DOWN),
                **CONFIG_DRIVE,
                DEPLOYMENT: self._around.deployment,
                SHA256: shape.sha256,
                FORMAT: shape.format,
                SIZE: str(shape.virtual_size),
                FIRMWARE: str(shape.firmware),
                _of(user.tag.cluster): described(user),
            },
            read=_kept,
        )
        try:
            await self._around.api.call(
                Service.GLANCE,
                "PUT",
                f"/images/{made['id']}/file",
                data=File(path),
                headers={"Content-Type": "application/octet-stream"},
                sends=(await asyncio.to_thread(path.stat)).st_size / SLOWEST,
            )
        except ProviderError:
            await self._delete(made)
            raise

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Nothing of an image can change: half of one is sent again."""
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        cluster = observed.tag.cluster
        shape = observed.shape
        assert isinstance(shape, Image), "keys of images have their shapes"
        async with self._turns.of(shape.sha256):
            for record in await self._all():
                if _shape(record) == shape and _of(cluster) in record:
                    if len(_users(record)) == 1:
                        await self._delete(record)
                    else:
                        await self._patch(record, "remove", cluster)

    async def id_of(self, name: str, cluster: UUID) -> str:
        """Of an image that a cluster refers to by this name. Raises `Gone`."""
        for record in await self._all():
            used = any(each.tag.cluster == cluster and each.name == name for each in _users(record))
            if used and record["status"] == READY:
                return str(record["id"])
        raise Gone(
            f"there is no image {name} in cloud {self._around.api.name}",
            hint="Run `nospoon up` again.",
        )

    async def _all(self) -> list[Record]:
        query = {DEPLOYMENT: self._around.deployment}
        listed = self._around.api.listed(Service.GLANCE, "/images", query, read=_read)
        return [record async for record in listed]

    async def _patch(self, record: Record, op: str, cluster: UUID, value: str = "") -> None:
        change: dict[str, str] = {"op": op, "path": f"/{_of(cluster)}"}
        if value:
            change["value"] = value
        path = f"/images/{record['id']}"
        await self._around.api.call(Service.GLANCE, "PATCH", path, json=[change], headers=PATCH)

    async def _delete(self, record: Record) -> None:
        try:
            await self._around.api.call(Service.GLANCE, "DELETE", f"/images/{record['id']}")
        except Gone:
            return


def _of(cluster: UUID) -> str:
    """The property by which a cluster refers to an image."""
    return f"{OF}{cluster.hex}"


def _users(record: Record) -> list[Tagged]:
    """Of properties that say what their names do."""
    found = ((name, of_description(record[name])) for name in record if name.startswith(OF))
    return [each for name, each in found if each is not None and name == _of(each.tag.cluster)]


def _shape(record: Record) -> Image:
    firmware = Firmware(record[FIRMWARE])
    return Image("", str(record[SHA256]), str(record[FORMAT]), int(record[SIZE]), firmware)


def _kept(record: Mapping[str, object]) -> Record:
    return kept_properties(record, "id", "status")


def _read(record: Mapping[str, object]) -> Record | None:
    """None for an image that nospoon did not make, or one of another kind."""
    found = _kept(record)
    if not {SHA256, FORMAT, SIZE, FIRMWARE} <= found.keys():
        return None
    try:
        _shape(found)
    except ValueError:
        return None
    return found
