"""Boot images in Glance, one for each firmware of a cluster's nodes.

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.resources import BootImage, Kind, Observed, OwnerTag, Resource
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    is_of_server,
    kept_properties,
    of_properties,
    properties,
)
from nospoon.providers.understood import understood

URL, FIRMWARE = f"{PREFIX}url", f"{PREFIX}firmware"
READY = "active"
SHUT_DOWN = 10
"""Seconds that a guest has to end by itself before Nova ends it (os_shutdown_timeout): `os-stop` is
the only way to power a server off, and one that is still in its firmware does not react.
"""
BIOS, UEFI = "bios", "uefi"
RESCUE = {"hw_rescue_device": "cdrom", "hw_rescue_bus": "sata"}
"""A server that is rescued with the image has it as a CD, first in its boot order, and keeps its
own disks ("stable device rescue", Nova since Ussuri).
"""
FIRMWARES = {Firmware.BIOS: BIOS, Firmware.UEFI: UEFI}
"""Of `hw_firmware_type`."""
Image = Mapping[str, str]
"""Its id, status and properties, as far as nospoon reads them."""


@understood
class BootImageDriver:
    kind = Kind.BOOT_IMAGE

    def __init__(self, around: Around) -> None:
        self._around = around

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        found = []
        for record, tagged in await self._ours(cluster):
            fault = _fault(record)
            shape = BootImage(Firmware(record[FIRMWARE]), record[URL])
            found.append(self._around.observed(self.kind, shape, tagged, fault=fault))
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, BootImage), "keys of boot images have their shapes"
        for record, tagged in await self._ours(tag.cluster):
            if tagged.name == resource.key.name:  # half made, or its answer was lost
                await self._delete(record)
        built = await self._around.build_image(shape.url)
        made = await self._around.api.call(
            Service.GLANCE,
            "POST",
            "/images",
            {
                "name": f"nospoon-{tag.name}-{resource.key.name}",
                "disk_format": "iso",
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
                data=await asyncio.to_thread(built.read_bytes),
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
        for record, tagged in await self._ours(observed.tag.cluster):
            if tagged.name == observed.key.name:
                await self._delete(record)

    async def id_for(self, firmware: Firmware, cluster: UUID) -> str:
        """The id of what is ready for machines with this firmware. Raises `Gone`."""
        for record, image in await self.of_cluster(cluster):
            if image.firmware is firmware:
                return record["id"]
        raise Gone(
            f"there is no boot image for {firmware} in cloud {self._around.api.name}",
            hint="Run `nospoon up` again.",
        )

    async def of_cluster(self, cluster: UUID) -> list[tuple[Image, BootImage]]:
        """Those that are ready, as Glance has them."""
        return [
            (record, BootImage(Firmware(record[FIRMWARE]), record[URL]))
            for record, _ in await self._ours(cluster)
            if record["status"] == READY
        ]

    async def _delete(self, record: Image) -> None:
        try:
            await self._around.api.call(Service.GLANCE, "DELETE", f"/images/{record['id']}")
        except Gone:
            return

    async def _ours(self, cluster: UUID | None) -> list[tuple[Image, Tagged]]:
        """A cloud may list more than it is asked for, and what is listed may be deleted."""
        query = {f"{PREFIX}deployment": self._around.deployment}
        if cluster is not None:
            query[f"{PREFIX}cluster"] = str(cluster)
        listed = self._around.api.listed(Service.GLANCE, "/images", query, read=_listed)
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
    return kept_properties(record, "id", "status", *RESCUE)
