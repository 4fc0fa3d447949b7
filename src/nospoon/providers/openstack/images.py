"""Boot images in Glance, one for each firmware of a cluster's nodes and each URL where they ask:
ISOs, or, where Glance takes none, the same ISOs as qcow2. Nova makes a CD of an image in the format
`iso`; of another one, where the block device of a server, or the image's properties for a rescue,
say so.

Nothing is replaced in place. Another URL is another resource; of another recipe, which a newer
nospoon has, a second image is uploaded under the same name. The earlier one goes at once if no
server was made of it, and else with the last of these: Nova may read it again at any start.

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.host_facts import ISO, QCOW2
from nospoon.model.images import HypervisorType
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import BootImage, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.protocols.ipxe.image import RECIPE
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import MOST_LISTED, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.qcow2 import qcow2
from nospoon.providers.openstack.roster import image_of
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
from nospoon.runtime import clock
from nospoon.runtime.paced import paced
from nospoon.runtime.shared import Shared

URL, FIRMWARE, MADE_BY = (f"{PREFIX}{each}" for each in ("url", "firmware", "recipe"))
READY, CREATED = "active", "created_at"
UNDER_WAY = frozenset({"queued", "saving", "uploading", "importing"})
UNNOTED = "2"
"""Recipe of those of which it was not noted."""
UPLOAD = 1200
"""Pauses within which Glance has an image ready that was sent to it."""
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
RUN_BY = "img_hv_type"
"""By which Nova chooses the compute host (ImagePropertiesFilter)."""
Image = Mapping[str, str]
"""Its id, status and properties, as far as nospoon reads them."""


@understood
class BootImageDriver:
    kind = Kind.BOOT_IMAGE

    def __init__(self, around: Around) -> None:
        self._around = around
        self._all = Shared(partial(self._made, None))
        self._earlier = set[str]()
        """Ids of those that go with the last server that was made of them; as many as were listed
        at once, for a cloud may list others each time.
        """

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        made = await self._made(cluster)
        alike: dict[tuple[UUID, BootImage], list[tuple[Image, Tagged]]] = {}
        async for each, tagged in paced(made):
            alike.setdefault((tagged.tag.cluster, _shape(each)), []).append((each, tagged))
        used = await self._used() if any(len(some) > 1 for some in alike.values()) else frozenset()
        found, earlier = [], set[str]()
        for (_, shape), some in alike.items():
            (best, tagged), *others = sorted(some, key=lambda one: _rank(one[0]), reverse=True)
            fault = _fault(best)
            if not fault and any(not _stays(each, used) for each, _ in others):
                fault = "others of it are there that no server was made of"
            earlier |= {each["id"] for each, _ in others}
            named = replace(tagged, name=_name(shape))  # earlier versions had one name for all URLs
            found.append(self._around.observed(self.kind, shape, named, fault=fault))
        self._earlier = earlier | (self._earlier if len(self._earlier) < MOST_LISTED else set())
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """It is there whole before an earlier one goes, or a server is made of it."""
        shape = resource.shape
        assert isinstance(shape, BootImage), "keys of boot images have their shapes"
        made = await self._of(tag.cluster, shape)
        if all(map(_fault, made)):
            made.append(await self._upload(shape, tag))
        _best, *others = sorted(made, key=_rank, reverse=True)
        used = await self._used() if others else frozenset()
        for each in others:
            if _stays(each, used):
                self._earlier.add(each["id"])
            else:
                await self._delete(each)

    async def _upload(self, shape: BootImage, tag: OwnerTag) -> Image:
        """One that is whole. What is left of it when the daemon ends is of no use to anyone, and
        goes with the next one that is made.
        """
        built = await self._around.build_image(shape.url)
        taken = await self.formats()
        is_iso = taken is None or ISO in taken or QCOW2 not in taken
        name = _name(shape)
        made = await self._around.api.call(
            Service.GLANCE,
            "POST",
            "/images",
            {
                "name": f"nospoon-{tag.name}-{name}",
                FORMAT: ISO if is_iso else QCOW2,
                "container_format": "bare",
                "visibility": "private",
                "hw_firmware_type": FIRMWARES[shape.firmware],
                RUN_BY: HypervisorType.QEMU,  # where KVM is, too; else a host of containers has it
                "os_shutdown_timeout": str(SHUT_DOWN),
                **RESCUE,
                URL: shape.url,
                FIRMWARE: str(shape.firmware),
                MADE_BY: RECIPE,
                **properties(Tagged(tag, name)),
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
            return await self._uploaded(made["id"])
        except ProviderError:
            await self._delete(made)
            raise

    async def _uploaded(self, id_: str) -> Image:
        """Once Glance has stored it. Raises `ProviderError`."""
        end = clock.monotonic() + UPLOAD * self._around.pause
        while True:
            path = f"/images/{id_}"
            now = await self._around.api.call(Service.GLANCE, "GET", path, read=_image)
            if now["status"] == READY:
                return now
            if now["status"] not in UNDER_WAY or clock.monotonic() > end:
                raise ProviderError(
                    f"Glance has not stored boot image {id_}: it is {now['status']}"
                )
            await asyncio.sleep(self._around.pause)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Nothing of an image can change: another one takes its place."""
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        shape = observed.shape
        assert isinstance(shape, BootImage), "keys of boot images have their shapes"
        for record in await self._of(observed.tag.cluster, shape):
            await self._delete(record)

    async def left(self, image: str) -> None:
        """A server went that was made of this image, which goes if it was the last one of an
        earlier image.
        """
        if image in self._earlier and image not in await self._used():
            await self._delete({"id": image})

    async def formats(self) -> frozenset[str] | None:
        """In which Glance takes images, None where it does not say."""
        return await self._around.api.get(Service.GLANCE, SCHEMA, read=_formats)

    async def id_for(self, firmware: Firmware, cluster: UUID) -> str:
        """The id of what is ready for machines with this firmware. Raises `Gone`."""
        return (await self._ready(firmware, cluster))["id"]

    async def root_for(self, firmware: Firmware, cluster: UUID, url: str) -> dict[str, str]:
        """The image of the root of servers with this firmware that ask at a URL, "" for any, and
        what makes a CD of it.
        """
        image = await self._ready(firmware, cluster, url)
        return {"uuid": image["id"], **(AS_CD if image.get(FORMAT) != ISO else {})}

    async def urls(self) -> dict[str, str]:
        """Id -> the URL at which a server asks that was made of it."""
        return {each["id"]: each[URL] for each, _ in await self._all()}

    async def _ready(self, firmware: Firmware, cluster: UUID, url: str = "") -> Image:
        """The last one that was made."""
        ready = [
            record
            for record, tagged in await self._all()
            if record[FIRMWARE] == firmware and url in {"", record[URL]}
            if record["status"] == READY and self._around.is_own(tagged, cluster)
        ]
        if ready:
            return max(ready, key=_rank)
        raise Gone(
            f"there is no boot image for {firmware} in cloud {self._around.api.name}",
            hint="Run `nospoon up` again.",
        )

    async def _of(self, cluster: UUID, shape: BootImage) -> list[Image]:
        return [each for each, _ in await self._made(cluster) if _shape(each) == shape]

    async def _used(self) -> frozenset[str]:
        """Ids of the images of which servers of the project were made."""
        listed = self._around.api.listed(Service.NOVA, "/servers/detail", read=image_of)
        return frozenset([each async for each in listed])

    async def _delete(self, record: Image) -> None:
        await self._around.api.delete(Service.GLANCE, f"/images/{record['id']}")
        self._earlier.discard(record["id"])

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


def _shape(record: Image) -> BootImage:
    return BootImage(Firmware(record[FIRMWARE]), record[URL])


def _name(shape: BootImage) -> str:
    return boot_image("", shape.firmware, shape.url).name


def _fault(record: Image) -> str:
    if record["status"] != READY:
        return f"its upload is {record['status']}"
    is_for_rescue = all(record.get(name) == value for name, value in RESCUE.items())
    if not is_for_rescue:
        return "an older nospoon made it, and servers cannot be rescued by it"
    is_of_now = record.get(MADE_BY, UNNOTED) == RECIPE
    return "" if is_of_now else "another version of nospoon made it"


def _rank(record: Image) -> tuple[bool, bool, str, str]:
    """Of several that are alike: what is ready and of today's recipe, then what is newest."""
    is_ready = record["status"] == READY
    return is_ready, not _fault(record), record.get(CREATED, ""), record["id"]


def _stays(record: Image, used: Collection[str]) -> bool:
    """Whether one stays beside a better one."""
    return record["status"] == READY and record["id"] in used


def _listed(record: Mapping[str, object]) -> Image | None:
    return None if is_of_server(record) else _image(record)


def _image(record: Mapping[str, object]) -> Image:
    return kept_properties(record, "id", "status", CREATED, FORMAT, *RESCUE)


def _content(built: Path, *, is_iso: bool) -> bytes:
    content = built.read_bytes()
    return content if is_iso else qcow2(content)


def _formats(schema: ImageSchema) -> frozenset[str]:
    """https://docs.openstack.org/api-ref/image/v2/#show-image-schema; null is one of them."""
    formats = schema["properties"]["disk_format"]["enum"]
    return frozenset(text_of(each)[:LONGEST_VALUE] for each in formats[:MOST_FORMATS] if each)
