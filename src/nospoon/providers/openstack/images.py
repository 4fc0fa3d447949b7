"""Boot images in Glance, one for each firmware of a cluster's nodes: ISOs, or, where Glance takes
none, the same ISOs as qcow2. Nova makes a CD of an image in the format `iso`; of another one, where
the block device of a server, or the image's properties for a rescue, say so.

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.host_facts import ISO, QCOW2
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import BootImage
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.qcow2 import qcow2
from nospoon.providers.openstack.shown import ImageSchema
from nospoon.providers.openstack.tags import (
    LONGEST_VALUE,
    PREFIX,
    Tagged,
    is_of_server,
    kept_properties,
    of_properties,
    properties,
)
from nospoon.providers.understood import understood
from nospoon.runtime.shared import Shared

URL, FIRMWARE = f"{PREFIX}url", f"{PREFIX}firmware"
READY = "active"
SCHEMA, MOST_FORMATS = "/schemas/image", 100
SHUT_DOWN = 10
"""Seconds that a guest has to end by itself before Nova ends it (os_shutdown_timeout): `os-stop` is
the only way to power a server off, and one that is still in its firmware does not react.
"""
BIOS, UEFI = "bios", "uefi"
RESCUE = {"hw_rescue_device": "cdrom", "hw_rescue_bus": "sata"}
"""A server that is rescued with the image has it as a CD, first in its boot order, and keeps its
own disks ("stable device rescue", Nova since Ussuri).
"""
FORMAT = "disk_format"
AS_CD = {"device_type": "cdrom", "disk_bus": "sata"}
"""Of the block device of a server, for Nova to have it as a CD whatever its image's format."""
FIRMWARES = {Firmware.BIOS: BIOS, Firmware.UEFI: UEFI}
"""Of `hw_firmware_type`."""
Image = Mapping[str, str]
"""Its id, status and properties, as far as nospoon reads them."""


@understood
class BootImageDriver:
    kind = Kind.BOOT_IMAGE

    def __init__(self, around: Around) -> None:
        self._around = around
        self._all = Shared(partial(self._made, None))

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = []
        for record, tagged in await self._made(cluster):
            fault = _fault(record)
            shape = BootImage(Firmware(record[FIRMWARE]), record[URL])
            found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, BootImage), "keys of boot images have their shapes"
        for record, tagged in await self._made(tag.cluster):
            if tagged.name == resource.key.name:  # half made, or its answer was lost
                await self._delete(record)
        built = await self._around.build_image(shape.url)
        taken = await self.formats()
        is_iso = taken is None or ISO in taken or QCOW2 not in taken
        made = await self._around.api.call(
            Service.GLANCE,
            "POST",
            "/images",
            {
                "name": f"nospoon-{tag.name}-{resource.key.name}",
                FORMAT: ISO if is_iso else QCOW2,
                "container_format": "bare",
                "visibility": "private",
                "hw_firmware_type": FIRMWARES[shape.firmware],
                "os_shutdown_timeout": str(SHUT_DOWN),
                **RESCUE,
                URL: shape.url,
                FIRMWARE: str(shape.firmware),
                **properties(Tagged(tag, resource.key.name)),
            },
            read=_image,
        )
        try:
            await self._around.api.call(
                Service.GLANCE,
                "PUT",
                f"/images/{made['id']}/file",
                data=await asyncio.to_thread(_content, built, is_iso=is_iso),
                headers={"Content-Type": "application/octet-stream"},
            )
        except ProviderError:
            await self._delete(made)
            raise

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Nothing of an image can change: another one takes its place."""
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        for record, tagged in await self._made(observed.tag.cluster):
            if tagged.name == observed.key.name:
                await self._delete(record)

    async def formats(self) -> frozenset[str] | None:
        """In which Glance takes images, None where it does not say."""
        return await self._around.api.get(Service.GLANCE, SCHEMA, read=_formats)

    async def id_for(self, firmware: Firmware, cluster: UUID) -> str:
        """The id of what is ready for machines with this firmware. Raises `Gone`."""
        return (await self._ready(firmware, cluster))["id"]

    async def root_for(self, firmware: Firmware, cluster: UUID) -> dict[str, str]:
        """The image of the root of servers with this firmware, and what makes a CD of it."""
        image = await self._ready(firmware, cluster)
        return {"uuid": image["id"], **(AS_CD if image.get(FORMAT) != ISO else {})}

    async def _ready(self, firmware: Firmware, cluster: UUID) -> Image:
        for record, tagged in await self._all():
            is_it = record[FIRMWARE] == firmware and record["status"] == READY
            if is_it and self._around.is_own(tagged, cluster):
                return record
        raise Gone(
            f"there is no boot image for {firmware} in cloud {self._around.api.name}",
            hint="Run `nospoon up` again.",
        )

    async def of_cluster(self, cluster: UUID) -> list[tuple[Image, BootImage]]:
        """Those that are ready, as Glance has them."""
        return [
            (record, BootImage(Firmware(record[FIRMWARE]), record[URL]))
            for record, _ in await self._made(cluster)
            if record["status"] == READY
        ]

    async def _delete(self, record: Image) -> None:
        try:
            await self._around.api.call(Service.GLANCE, "DELETE", f"/images/{record['id']}")
        except Gone:
            return

    async def _made(self, cluster: UUID | None) -> list[tuple[Image, Tagged]]:
        """A cloud may list more than it is asked for, and what is listed may be deleted."""
        query = {f"{PREFIX}deployment": self._around.deployment}
        if cluster is not None:
            query[f"{PREFIX}cluster"] = str(cluster)
        listed = self._around.api.listed(Service.GLANCE, "/images", query, read=_listed, parts=len)
        return [
            (record, tagged)
            async for record in listed
            if URL in record and (tagged := of_properties(record)) is not None
            if self._around.is_own(tagged, cluster)
        ]


def _fault(record: Image) -> str:
    if record["status"] != READY:
        return f"its upload is {record['status']}"
    is_for_rescue = all(record.get(name) == value for name, value in RESCUE.items())
    return "" if is_for_rescue else "an older nospoon made it, and servers cannot be rescued by it"


def _listed(record: Mapping[str, object]) -> Image | None:
    return None if is_of_server(record) else _image(record)


def _image(record: Mapping[str, object]) -> Image:
    return kept_properties(record, "id", "status", FORMAT, *RESCUE)


def _content(built: Path, *, is_iso: bool) -> bytes:
    content = built.read_bytes()
    return content if is_iso else qcow2(content)


def _formats(schema: ImageSchema) -> frozenset[str]:
    """https://docs.openstack.org/api-ref/image/v2/#show-image-schema; null is one of them."""
    formats = schema["properties"]["disk_format"]["enum"]
    return frozenset(text_of(each)[:LONGEST_VALUE] for each in formats[:MOST_FORMATS] if each)
