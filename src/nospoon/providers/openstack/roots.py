"""Images in Glance of which servers are made: each once a project, for all clusters that use it.

A cluster refers to an image by a property of its own, which goes with the cluster; an image goes
with its last reference. So who uses what is said by the images themselves (as on hosts, ADR 10).

https://docs.openstack.org/api-ref/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.images import HypervisorType
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.base import OpenImage
from nospoon.providers.cloud_calls import patience
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import FIRMWARES, READY, RUN_BY, SHUT_DOWN
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    described,
    is_of_server,
    kept_properties,
    of_description,
    short,
)
from nospoon.providers.understood import understood
from nospoon.runtime.paced import paced
from nospoon.runtime.turns import Turns

SHA256, FORMAT, SIZE, FIRMWARE = (f"{PREFIX}{each}" for each in ("sha256", "format", "size", "fw"))
DEPLOYMENT, OF = f"{PREFIX}deployment", f"{PREFIX}of_"
RUN_BY_ONCE = "hypervisor_type"
"""What `RUN_BY` was called before."""
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
MOST_REFERENCES = 20_000
"""Of all images: a cloud may list a million, and each is looked at on the event loop."""


@dataclass(frozen=True, slots=True)
class _Root:
    """What is kept of an image. `users`: references of clusters."""

    id: str
    status: str
    shape: Image
    users: tuple[Tagged, ...]

    def is_used_by(self, cluster: UUID) -> bool:
        return any(each.tag.cluster == cluster for each in self.users)


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
        found = list[Observed]()
        async for root in paced(await self._all()):
            fault = "" if root.status == READY else f"its upload is {root.status}"
            found += (
                self._around.observed(self.kind, root.shape, tagged, fault=fault)
                for tagged in root.users
                if cluster in (None, tagged.tag.cluster)
            )
        return found

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """A reference to an image that is there, or to one that is sent now."""
        shape = resource.shape
        assert isinstance(shape, Image), "keys of images have their shapes"
        user = Tagged(tag, resource.key.name)
        async with self._turns.of(shape.sha256):
            async for root in self._with(shape):
                if root.status != READY:  # half of one, which an earlier daemon sent
                    await self._delete(root.id)
                elif root.is_used_by(tag.cluster) or len(root.users) < MOST_USERS:
                    await self._patch(root, "add", tag.cluster, described(user))
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
                "os_shutdown_timeout": str(SHUT_DOWN),
                **_for_nova(shape, shape.firmware),
                DEPLOYMENT: self._around.deployment,
                SHA256: shape.sha256,
                FORMAT: shape.format,
                SIZE: str(shape.virtual_size),
                FIRMWARE: str(shape.firmware),
                _of(user.tag.cluster): described(user),
            },
            read=_id,
        )
        try:
            await self._around.api.call(
                Service.GLANCE,
                "PUT",
                f"/images/{made}/file",
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
            async for root in self._with(shape):
                if root.is_used_by(cluster):
                    if len(root.users) == 1:
                        await self._delete(root.id)
                    else:
                        await self._patch(root, "remove", cluster)

    async def id_of(self, name: str, cluster: UUID) -> str:
        """Of an image that a cluster refers to by this name. Raises `Gone`."""
        async for root in paced(await self._all()):
            used = any(each.tag.cluster == cluster and each.name == name for each in root.users)
            if used and root.status == READY:
                return root.id
        raise Gone(
            f"there is no image {name} in cloud {self._around.api.name}",
            hint="Run `nospoon up` again.",
        )

    async def _with(self, shape: Image) -> AsyncIterator[_Root]:
        async for root in paced(await self._all()):
            if root.shape == shape:
                yield root

    async def _all(self) -> list[_Root]:
        query = {DEPLOYMENT: self._around.deployment}
        found, references = list[_Root](), 0
        async for root in self._around.api.listed(Service.GLANCE, "/images", query, read=_read):
            references += len(root.users)
            if references > MOST_REFERENCES:
                raise ProviderError(
                    f"images of cloud {self._around.api.name} have more than {MOST_REFERENCES} "
                    "references of clusters"
                )
            found.append(root)
        return found

    async def _patch(self, root: _Root, op: str, cluster: UUID, value: str = "") -> None:
        change: dict[str, str] = {"op": op, "path": f"/{_of(cluster)}"}
        if value:
            change["value"] = value
        path = f"/images/{root.id}"
        await self._around.api.call(Service.GLANCE, "PATCH", path, json=[change], headers=PATCH)

    async def _delete(self, image: str) -> None:
        await self._around.api.delete(Service.GLANCE, f"/images/{image}")


def _for_nova(shape: Image, firmware: Firmware) -> dict[str, str]:
    """Of what runs the image, and how. A container has neither firmware nor a config drive, and
    libvirt's LXC driver no controller for one.
    """
    run_by = dict.fromkeys((RUN_BY, RUN_BY_ONCE), shape.hypervisor_type)
    if shape.hypervisor_type == HypervisorType.LXC:
        return run_by
    machine = {"hw_firmware_type": FIRMWARES[firmware], **CONFIG_DRIVE}
    return {**machine, **run_by} if shape.hypervisor_type else machine


def _of(cluster: UUID) -> str:
    """The property by which a cluster refers to an image."""
    return f"{OF}{cluster.hex}"


def _read(record: Mapping[str, object]) -> _Root | None:
    """None for an image that nospoon did not make, or one of another kind. In the call's thread:
    each may have a hundred references.
    """
    if is_of_server(record):
        return None
    found = kept_properties(record, "id", "status", RUN_BY)
    try:
        firmware = Firmware(found[FIRMWARE])
        size, run_by = int(found[SIZE]), found.get(RUN_BY, "")
        shape = Image("", found[SHA256], found[FORMAT], size, firmware, run_by)
    except (KeyError, ValueError):
        return None
    return _Root(found["id"], found["status"], shape, tuple(_users(found)))


def _users(found: Mapping[str, str]) -> Iterator[Tagged]:
    """Of properties that say what their names do."""
    for name in found:
        tagged = of_description(found[name]) if name.startswith(OF) else None
        if tagged is not None and name == _of(tagged.tag.cluster):
            yield tagged


def _id(record: Mapping[str, object]) -> str:
    return short(record["id"])
