"""Images of roots that are volumes, which Nova does not make: Cinder makes them of a copy.

An image that Nova makes of such a server holds no data, but names a snapshot of each volume, and
Nova makes no root again of it. Cinder makes an image of a volume that is in no server; of others
only where its operator allows that (`enable_force_upload`). So a root is copied: a snapshot of it,
a volume of that, an image of the volume. Copies go when the image is stored. Those that a daemon
left which ended go first: a volume of which snapshots are there outlives its server.

https://docs.openstack.org/api-ref/block-storage/v3/
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from nospoon.errors import Gone, ProviderError
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.roster import LONGEST_NAME, MACHINE, MOST_DISKS, Server
from nospoon.providers.openstack.shown import CopyShown, Plugged, Ref
from nospoon.providers.openstack.tags import PREFIX, short
from nospoon.runtime import clock

COPY = 7200
"""Pauses within which Cinder makes a copy of a root, stores it as an image, and removes it."""
IMAGED = "2.93"
"""Microversion of Zed, the first Nova that makes a root again that is a volume."""
READY = "available"
FAILED = ("error", "error_deleting")
DEPLOYMENT = f"{PREFIX}deployment"
SNAPSHOTS, VOLUMES = "snapshots", "volumes"


@dataclass(frozen=True, slots=True)
class RootVolumes:
    """Of servers of one project."""

    around: Around

    async def keep(self, server: Server, image: Mapping[str, object]) -> None:
        """Begin an image of its root: name and properties as Nova's `createImage` has them. Copies
        stay until `clear`. Raises `ProviderError`.
        """
        await self.clear(server)
        made = {"name": image["name"], "metadata": self._of(server)}
        volume = await self._root(server)
        snapshot = await self._made(SNAPSHOTS, {**made, "volume_id": volume, "force": True})
        copy = await self._made(VOLUMES, {**made, "snapshot_id": snapshot})
        action = f"/volumes/{copy}/action"
        properties = image["metadata"]
        assert isinstance(properties, dict), "properties of an image"
        said = {"metadata": {**properties, "image_type": "snapshot"}}  # as Nova says of its own
        wanted = {
            "image_name": image["name"], "container_format": "bare", "disk_format": "raw",
            "force": False,
        }  # fmt: skip
        for body in ({"os-set_image_metadata": said}, {"os-volume_upload_image": wanted}):
            await self.around.api.call(Service.CINDER, "POST", action, body)

    async def clear(self, server: Server) -> None:
        """Have no copies of its root. Those of which Cinder still makes an image stay until that is
        stored. Raises `ProviderError`.
        """
        own = self._of(server)
        for kind in (VOLUMES, SNAPSHOTS):
            listed = self.around.api.listed(
                Service.CINDER, f"/{kind}/detail", read=partial(_copied, own)
            )
            for id_ in [each async for each in listed]:
                await self._remove(kind, id_)

    def _of(self, server: Server) -> dict[str, str]:
        """Of a copy: whose it is."""
        return {DEPLOYMENT: self.around.deployment, MACHINE: str(server.machine)}

    async def _root(self, server: Server) -> str:
        """Id of the volume: the first device of those that are volumes."""
        path = f"/servers/{server.id}/os-volume_attachments"
        found = await self.around.api.call(Service.NOVA, "GET", path, read=_plugged)
        if not found:
            raise Gone(f"server {server.id} has no volume")
        return min(found)[1]

    async def _made(self, kind: str, body: Mapping[str, object]) -> str:
        """Id of one that is there."""
        name = kind.removesuffix("s")
        id_ = await self.around.api.call(
            Service.CINDER, "POST", f"/{kind}", {name: body}, read=_id_in(name)
        )
        await self._until(kind, id_, READY)
        return id_

    async def _until(self, kind: str, id_: str, wanted: str) -> None:
        end = clock.monotonic() + COPY * self.around.pause
        while (status := await self._status(kind, id_)) != wanted:
            self._refuse(kind, id_, status or "gone", end, is_bad=status in {None, *FAILED})
            await asyncio.sleep(self.around.pause)

    async def _remove(self, kind: str, id_: str) -> None:
        """Once Cinder does nothing with it."""
        end, is_asked = clock.monotonic() + COPY * self.around.pause, False
        while (status := await self._status(kind, id_)) is not None:
            if status in {READY, "error"} and not is_asked:
                is_asked = True
                await self.around.api.delete(Service.CINDER, f"/{kind}/{id_}")
            self._refuse(kind, id_, status, end, is_bad=status == "error_deleting")
            await asyncio.sleep(self.around.pause)
        if not is_asked:  # a 404 alone, of one that was listed
            await self.around.api.delete(Service.CINDER, f"/{kind}/{id_}")

    def _refuse(self, kind: str, id_: str, status: str, end: float, *, is_bad: bool) -> None:
        if is_bad or clock.monotonic() > end:
            raise ProviderError(
                f"{kind.removesuffix('s')} {id_} of cloud {self.around.api.name}, a copy of a "
                f"root, is {status}",
                hint=f"`openstack volume message list` may say why. Copies have {MACHINE} among "
                "their metadata.",
            )

    async def _status(self, kind: str, id_: str) -> str | None:
        read = partial(_status_in, kind.removesuffix("s"))
        return await self.around.api.get(Service.CINDER, f"/{kind}/{id_}", read=read)


def _plugged(answer: Mapping[str, list[Plugged]]) -> list[tuple[str, str]]:
    """Device and id of each volume."""
    return [
        (short(each["device"]), text_of(each["volumeId"])[:LONGEST_NAME])
        for each in answer["volumeAttachments"][:MOST_DISKS]
    ]


def _copied(own: Mapping[str, str], record: CopyShown) -> str | None:
    """The id of a copy with these metadata."""
    metadata = record.get("metadata", {})
    is_own = all(metadata.get(name) == value for name, value in own.items())
    return text_of(record["id"])[:LONGEST_NAME] if is_own else None


def _id_in(name: str) -> Callable[[Mapping[str, Ref]], str]:
    def read(answer: Mapping[str, Ref]) -> str:
        return text_of(answer[name]["id"])[:LONGEST_NAME]

    return read


def _status_in(name: str, answer: Mapping[str, CopyShown]) -> str:
    return short(answer[name]["status"])
