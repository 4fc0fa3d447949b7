"""Snapshots of servers: their root disks as images of Nova, each tagged with its cluster. Those of
roots that are volumes are made by Cinder (`nospoon.providers.openstack.root_volumes`).

Nova keeps the root disk alone: no ephemeral disk, and nothing of the firmware. An image of a server
has all properties of the image that the server was made of, so one that someone else makes of a
node carries tags, too; what nospoon made has its own name among its properties besides.

https://docs.openstack.org/api-ref/compute/#create-image-createimage-action
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from nospoon.errors import Gone, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.images import KeptIn, StoredRoot, is_former_root
from nospoon.model.machine import KeptState, PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import KeptRoot
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import node_uuid
from nospoon.providers.answers import How
from nospoon.providers.openstack.actions import PAUSED, POWER, STARTED_BY, Actions
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import FIRMWARES, READY
from nospoon.providers.openstack.root_volumes import IMAGED, RootVolumes
from nospoon.providers.openstack.roster import Server
from nospoon.providers.openstack.tags import (
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

NAME, MACHINE, NODE, ON, ROOT, CALLED = (
    f"{PREFIX}{each}" for each in ("snapshot", "machine", "node", "on", "root", "called")
)
FIRMWARE = "hw_firmware_type"
BY_NAME = {name: firmware for firmware, name in FIRMWARES.items()}
DEPLOYMENT, CLUSTER, TOKEN = (f"{PREFIX}{each}" for each in ("deployment", "cluster", "token"))
YES, NO = "yes", "no"
During = Callable[[UUID], AbstractAsyncContextManager[None]]
IMAGES_ROOTS = tuple(map(int, IMAGED.split(".")))
KEEP = 7200
"""Pauses within which Nova stores an image of a server, and makes a root of one."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """An image. `id`: Glance's; `at`: Unix seconds."""

    id: str
    status: str
    machine: UUID
    shape: KeptRoot
    state: KeptState
    tagged: Tagged
    firmware: Firmware

    @property
    def is_ready(self) -> bool:
        return self.status == READY

    @property
    def fault(self) -> str:
        """Why no server can be made of a former root, "" where one can."""
        is_half = is_former_root(self.shape.snapshot) and not self.is_ready
        return f"its image is {self.status}" if is_half else ""

    @property
    def properties(self) -> Mapping[str, str]:
        """By which images are asked for."""
        tag, shape = self.tagged.tag, self.shape
        return {
            DEPLOYMENT: tag.deployment, CLUSTER: str(tag.cluster), TOKEN: tag.token,
            NAME: shape.snapshot, NODE: shape.node, ROOT: shape.volume, MACHINE: str(self.machine),
        }  # fmt: skip

    @property
    def root(self) -> KeptIn:
        return KeptIn(self.tagged.tag.name, self.shape.snapshot, self.shape.node)


class SnapshotImages:
    """Images of servers that nospoon made."""

    def __init__(self, around: Around) -> None:
        self.around = around

    async def all(self, **wanted: str) -> list[_Kept]:
        """Of this deployment; `wanted`: values of their properties. A cloud may list more than it
        is asked for, and what is listed may be deleted.
        """
        query = {DEPLOYMENT: self.around.deployment, **wanted}
        listed = self.around.api.listed(Service.GLANCE, "/images", query, read=_read)
        return [each async for each in listed if query.items() <= each.properties.items()]

    async def of(self, machine: UUID, name: str) -> list[_Kept]:
        return await self.all(**{MACHINE: str(machine), NAME: name})

    async def roots(self) -> dict[KeptIn, Firmware]:
        """Those from which servers of any cluster may start, and the firmware that starts them."""
        return {
            each.root: each.firmware
            async for each in paced(await self.all())
            if each.is_ready and not is_former_root(each.shape.snapshot)
        }

    async def id_of_former(self, machine: UUID, name: str, cluster: UUID) -> str:
        """Of a former root of a machine. Raises `Gone`."""
        for each in await self.of(machine, name):
            if each.is_ready and each.tagged.tag.cluster == cluster:
                return each.id
        raise Gone(
            f"machine {machine} has no root {name} in cloud {self.around.api.name}",
            hint="Plan again.",
        )

    async def begun(self, machine: UUID, name: str, token: str) -> list[_Kept]:
        """Those of a machine that an action asked for, of which others have the token, too."""
        return await self.all(**{MACHINE: str(machine), NAME: name, TOKEN: token})

    async def until_stored(self, server: Server, name: str, token: str) -> None:
        """Nova deletes an image that it cannot store. Raises `ProviderError`."""
        end = clock.monotonic() + KEEP * self.around.pause
        while images := await self.begun(server.machine, name, token):
            if images[0].is_ready:
                return
            if clock.monotonic() > end:
                seconds = KEEP * self.around.pause
                raise ProviderError(
                    f"the image of server {server.id} is {images[0].status} after {seconds:.0f} s"
                )
            await asyncio.sleep(self.around.pause)
        raise ProviderError(
            f"Nova could not store an image of server {server.id}",
            hint=f"`openstack server event list {server.id}` may say why.",
        )

    async def id_of(self, root: KeptIn, uid: int | None) -> str:
        """Of one of a user's clusters. Raises `Gone`."""
        for each in await self.all(**{NAME: root.snapshot, NODE: root.node}):
            if each.is_ready and each.root == root and each.tagged.tag.uid == uid:
                return each.id
        raise Gone(
            f"your cluster {root.cluster} has no snapshot {root.snapshot} with a node {root.node} "
            f"in cloud {self.around.api.name}",
            hint="Plan again.",
        )

    async def delete(self, images: Sequence[_Kept]) -> None:
        for each in images:
            await self.around.api.delete(Service.GLANCE, f"/images/{each.id}")


@understood
class ServerSnapshots:
    """As `DiskSnapshots`. `rebuilding`: around the call by which a root is made again; `stopped`:
    around what stores a root that no one uses afterwards.
    """

    def __init__(
        self, around: Around, actions: Actions, *, rebuilding: During, stopped: During
    ) -> None:
        self._around, self._actions = around, actions
        self._rebuilding, self._stopped = rebuilding, stopped
        self._images, self._volumes = SnapshotImages(around), RootVolumes(around)

    async def refusal(self, machine: UUID) -> str:
        server = await self._actions.must(machine)
        if server.shape.kind is NodeKind.BAREMETAL:
            return "Nova keeps roots alone, and its root is the boot image"
        if server.shape.kind is NodeKind.CONTAINER:
            return "Nova pauses no container, so that its root would be kept while it changes"
        if server.has_root_volume and await self._around.api.microversion() < IMAGES_ROOTS:
            return "its root is a volume, and its cloud's Nova is older than Zed"
        if len(server.shape.disks) > 1:
            return "Nova keeps roots alone, and it has more disks"
        if server.status in STARTED_BY:
            return f"its server is {server.status.lower()}: power it on first"
        return ""

    async def pause(self, machine: UUID) -> bool:
        server = await self._actions.until(machine, lambda _: True, POWER)
        if server.power is PowerState.ON and server.status != PAUSED:
            await self._actions.act(machine, {"pause": None})
            await self._actions.until(machine, lambda each: each.status == PAUSED, POWER)
        return server.power is PowerState.ON

    async def resume(self, machine: UUID) -> None:
        server = await self._actions.until(machine, lambda _: True, KEEP)
        if server.status == PAUSED:
            await self._actions.going_on(machine)

    async def create(self, machine: UUID, name: str) -> None:
        """It returns when the image is there, as long as Nova takes to send it to Glance."""
        server = await self._actions.must(machine)
        if server.power is PowerState.ON and server.status != PAUSED:
            raise ProviderError(f"machine {machine} was resumed by other means")
        token = uuid4().hex
        await self._store(server, name, replace(server.tagged.tag, token=token))
        before = await self._images.of(machine, name)
        await self._images.delete([each for each in before if each.tagged.tag.token != token])

    async def _store(self, server: Server, name: str, tag: OwnerTag) -> None:
        image, token = _image_of(server, name, replace(tag, note="")), tag.token
        if server.has_root_volume:
            try:
                await self._volumes.keep(server, image)
                await self._images.until_stored(server, name, token)
            finally:
                await self._volumes.clear(server)
        else:
            await self._actions.act(server.machine, {"createImage": image})
            await self._images.until_stored(server, name, token)
        await self._actions.until(server.machine, lambda _: True, KEEP)

    async def store_former(self, shape: KeptRoot, tag: OwnerTag) -> None:
        """The root of a server that is stopped for that, and stays so: it is replaced. One that
        cannot be stored runs again. It does nothing where this was done already.
        """
        machine = node_uuid(tag.cluster, shape.node)
        server, _ = await self._actions.going_on(machine)
        self._around.refuse_others(
            Key(Kind.MACHINE, self._around.host.name, shape.node), server.tagged, tag
        )
        before = await self._images.begun(machine, shape.snapshot, tag.token)
        if before and server.power is not PowerState.ON:
            await self._images.until_stored(server, shape.snapshot, tag.token)
            return
        await self._images.delete(before)  # it ran since
        if not server.shape.disks or server.shape.disks[0].volume != shape.volume:
            raise Gone(f"server {server.id} has another root by now", hint="Plan again.")
        async with self._stopped(machine):
            await self._store(await self._actions.must(machine), shape.snapshot, tag)

    async def list(self, machine: UUID) -> Mapping[str, Mapping[str, KeptState]]:
        """Those of the root that it has by now: another image is another root, and one to which it
        returned is the same.
        """
        server = await self._actions.must(machine)
        if server.shape.kind is NodeKind.BAREMETAL:
            return {}
        root = StoredRoot.of(server.shape.disks[0].volume)
        return {
            str(replace(root, former=None)): {
                each.shape.snapshot: each.state
                async for each in paced(await self._images.all(**{MACHINE: str(machine)}))
                if each.is_ready and not is_former_root(each.shape.snapshot)
                if StoredRoot.of(each.shape.volume).is_like(root)
            }
        }

    async def blocker(self, machine: UUID, name: str) -> str:  # noqa: ARG002  (any state can be restored)
        await self._actions.must(machine)
        return ""

    async def restore(self, machine: UUID, name: str) -> None:
        """Nova makes the root again of the image. It starts the server for that, and stops it."""
        server = await self._actions.must(machine)
        if server.power is PowerState.ON:
            raise ProviderError(f"machine {machine} runs: its snapshot cannot be restored")
        images = await self._images.of(machine, name)
        kept = next((each for each in images if each.status == READY), None)
        if kept is None:
            raise Gone(f"machine {machine} has no state {name}")
        async with self._rebuilding(machine):
            how: How = {"microversion": IMAGED} if server.has_root_volume else {}
            await self._actions.act(machine, {"rebuild": {"imageRef": kept.id}}, **how)
            await self._actions.until(machine, lambda each: each.power is not PowerState.ON, KEEP)

    async def delete(self, machine: UUID, name: str) -> None:
        await self._images.delete(await self._images.of(machine, name))


@understood
class KeptRootDriver:
    """Of Kind.SNAPSHOT: what a plan knows of the same images, so that they go with their nodes."""

    kind = Kind.SNAPSHOT

    def __init__(self, around: Around, snapshots: ServerSnapshots) -> None:
        self._around, self._images, self._snapshots = around, SnapshotImages(around), snapshots

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        only = {} if cluster is None else {CLUSTER: str(cluster)}
        found = {
            (each.tagged.tag.cluster, each.tagged.name): each
            async for each in paced(await self._images.all(**only))
        }
        return [
            self._around.observed(self.kind, each.shape, each.tagged, fault=each.fault)
            for each in found.values()
        ]

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Of former roots; users make snapshots."""
        shape = resource.shape
        assert isinstance(shape, KeptRoot), "keys of snapshots have their shapes"
        if is_former_root(shape.snapshot):
            await self._snapshots.store_former(shape, tag)
            return
        raise Gone(
            f"{resource.key} is not in cloud {self._around.api.name} any more", hint="Plan again."
        )

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Nothing of it can change."""

    async def delete(self, observed: Observed) -> None:
        images = await self._images.all(**{CLUSTER: str(observed.tag.cluster)})
        await self._images.delete([e for e in images if e.tagged.name == observed.key.name])


def _image_of(server: Server, name: str, tag: OwnerTag) -> dict[str, object]:
    """What Nova is asked for."""
    node = server.tagged.name
    called = f"nospoon-{tag.name}-{node}-{name}"
    return {
        "name": called,
        "metadata": {
            **properties(Tagged(tag, f"{node}.{name}")),
            NAME: name,
            MACHINE: str(server.machine),
            NODE: node,
            ON: YES if server.power is PowerState.ON else NO,
            ROOT: server.shape.disks[0].volume,
            CALLED: called,
            FIRMWARE: FIRMWARES[server.shape.firmware],  # which an image of others may not say
        },
    }


def _read(record: Mapping[str, object]) -> _Kept | None:
    """None for an image of another kind, and one that others made."""
    found = kept_properties(record, "id", "status", "name", "created_at", FIRMWARE)
    tagged = of_properties(found)
    if tagged is None or not is_of_server(record) or found.get(CALLED) != found.get("name"):
        return None
    try:
        at = datetime.fromisoformat(found["created_at"]).timestamp()
        return _Kept(
            id=found["id"],
            status=found["status"],
            machine=UUID(found[MACHINE]),
            shape=KeptRoot(found[NODE], found[NAME], found[ROOT]),
            state=KeptState(at, on=found[ON] == YES),
            tagged=tagged,
            firmware=BY_NAME[found[FIRMWARE]],
        )
    except (KeyError, ValueError):
        return None
