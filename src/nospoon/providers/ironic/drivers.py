"""Drivers of what Ironic has records of: one bulk call looks at all, one call each makes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from nospoon.errors import Conflict, Gone, NotOurs, ProviderError
from nospoon.model.ironic import (
    IronicConnector,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicTarget,
    Settings,
)
from nospoon.model.resources.bmcs import Secrets
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.resource import Enrolled, InIronic, Observed, Resource, Shape
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.enrollment.enrol import login, values
from nospoon.providers.answers import text_of
from nospoon.providers.ironic import records
from nospoon.providers.ironic.api import Api
from nospoon.providers.ironic.records import TAG, Record
from nospoon.providers.polling import LEAST
from nospoon.providers.understood import understood
from nospoon.runtime import clock

FAILED = " failed"
"""How the states end in which a node stays when something failed."""


LONGEST_WHY = 1000
"""Characters of what Ironic says of a failure: it may list 20,000 nodes, each with a megabyte."""
OWNER = "owner"
PORTS_FREE = frozenset({"enroll", "inspecting", "inspect wait", "manageable"})
"""States of a node in which Ironic lets its ports change."""
PORTS_CHANGE, GOES = "nospoon changes its ports", "nospoon removes it"
"""Why we put nodes in maintenance for a while. Where it stayed so, something came in between."""
OFF_SECONDS = 120.0
SecretsOf = Callable[[UUID], Awaitable[Secrets]]


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of things in Ironic: its name in paths, and how records are read."""

    kind: Kind
    path: str
    shape: Callable[[Record], Enrolled]


NODES = Collection(Kind.IRONIC_NODE, "nodes", records.node_shape)
PORTGROUPS = Collection(Kind.IRONIC_PORTGROUP, "portgroups", records.portgroup_shape)
CONNECTORS = Collection(Kind.IRONIC_CONNECTOR, "volume/connectors", records.connector_shape)
TARGETS = Collection(Kind.IRONIC_TARGET, "volume/targets", records.target_shape)
PORTS = Collection(Kind.IRONIC_PORT, "ports", records.port_shape)


@dataclass(frozen=True, slots=True)
class Around:
    """What all drivers of one Ironic share. `force`: nodes in use are removed, too."""

    api: Api
    deployment: str
    secrets: SecretsOf
    force: bool = False


@understood
class _Records:
    """Looks at one collection, and makes, changes and removes single things in it."""

    collection: Collection

    def __init__(self, around: Around) -> None:
        self._around, self._api = around, around.api

    @property
    def kind(self) -> Kind:
        return self.collection.kind

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        read = partial(self._read, cluster)
        return await self._api.listed(
            self.collection.path, read=read, query="&detail=true", parts=_parts
        )

    def _read(self, cluster: UUID | None, record: Record) -> Observed | None:
        """None for what is not of this deployment, or of another cluster."""
        tag = records.tag_of(record)
        if tag is None or tag.deployment != self._around.deployment:
            return None
        return self._observed(record, tag) if cluster in (None, tag.cluster) else None

    def _observed(self, record: Record, tag: OwnerTag) -> Observed:
        key = Key(self.kind, IRONIC, text_of(records.noted(record, "key")))
        shape = self.collection.shape(record)
        return Observed(key, shape, tag)

    async def _make(
        self, resource: Resource, tag: OwnerTag, more: Mapping[str, object], **notes: object
    ) -> None:
        """Post it; one of ours that is there already is brought to the shape."""
        shape = _of_a_record(resource.shape)
        own = {f"extra/{TAG}": self._tag(resource, tag, **notes)}
        made = records.body(shape.settings, {"uuid": str(shape.uuid), **more, **own})
        try:
            await self._api.post(f"/{self.collection.path}", made)
        except Conflict as error:
            await self._take_over(resource, tag, more, str(error), **notes)

    async def _take_over(
        self, resource: Resource, tag: OwnerTag, more: Mapping[str, object], why: str,
        **notes: object,
    ) -> None:  # fmt: skip
        shape = _of_a_record(resource.shape)
        try:
            there = await self._record(shape.uuid, shape.settings)
        except Gone:
            raise NotOurs(
                f"{resource.key} cannot be made: {why}",
                hint="Something of that name or address is in Ironic and is not managed by "
                'nospoon: it is left unchanged. Give `ironic: {name: "{cluster}-{node}"}`, or '
                "another MAC. What an earlier "
                "cluster of yours left there is shown by `nospoon orphans FILE`, and taken "
                "back with `id:` of that cluster in the file. A portgroup that gets another name "
                "gets its `address` by a second `up`: take it out for the first.",
            ) from None
        await self._bring(there, resource, tag, more, **notes)

    async def _bring(
        self, there: Record, resource: Resource, tag: OwnerTag, more: Mapping[str, object],
        **notes: object,
    ) -> None:  # fmt: skip
        """Patch what is there to the shape; what has no nospoon tag is let be. What others of
        our drivers noted stays.
        """
        self._must_be_ours(there, resource.key, tag.cluster)
        shape = _of_a_record(resource.shape)
        changes = records.operations(there, shape.settings, more)
        changes += records.notes(self._tag(resource, tag, **notes))
        # interfaces of another driver fit no more: those that are not named go to its defaults
        other = any(each["path"] == "/driver" for each in changes)
        query = "?reset_interfaces=True" if other else ""
        await self._api.patch(f"/{self.collection.path}/{shape.uuid}{query}", changes)

    def _tag(self, resource: Resource, tag: OwnerTag, **notes: object) -> dict[str, object]:
        shape = _of_a_record(resource.shape)
        ours = [each.name for each in shape.settings]
        return records.tag_body(tag, key=resource.key.name, ours=ours, **notes)

    def _must_be_ours(self, there: Record, key: Key, cluster: UUID) -> None:
        tag = records.tag_of(there)
        if tag is None or (tag.deployment, tag.cluster) != (self._around.deployment, cluster):
            raise NotOurs(
                f"{key}: {text_of(there['uuid'])} in Ironic is not managed by nospoon: left "
                "unchanged"
            )

    async def _record(self, uuid: UUID, wanted: Settings = ()) -> Record:
        """What is kept of it, to bring it to these settings."""
        read = partial(records.kept, values(wanted))
        return await self._api.get(f"/{self.collection.path}/{uuid}", read=read)

    async def delete(self, observed: Observed) -> None:
        uuid = _of_a_record(observed.shape).uuid
        try:
            self._must_be_ours(await self._record(uuid), observed.key, observed.tag.cluster)
            await self._api.delete(f"/{self.collection.path}/{uuid}")
        except Gone:
            return


@understood
class NodeDriver(_Records):
    """Nodes, with the credentials of their BMCs and their traits."""

    collection = NODES

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Ironic lets most callers give an owner only to a node that is there already."""
        node = _node(resource)
        more, notes = await self._secret(node), _notes(node)
        settings = tuple(each for each in node.settings if each.name != OWNER)
        first = replace(resource, shape=replace(node, settings=settings))
        await self._make(first, tag, more, **notes)
        made = await self._record(node.uuid, node.settings)
        if settings != node.settings:
            await self._bring(made, resource, tag, more, **notes)
        await self._traits(node, made)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        node = _node(desired)
        there = await self._record(node.uuid, node.settings)
        await self._traits(node, there)
        await self._bring(there, desired, tag, await self._secret(node), **_notes(node))

    async def _secret(self, node: IronicNode) -> dict[str, str]:
        """Ironic shows no passwords: they are written each time anything is."""
        told = login(values(node.settings), await self._around.secrets(node.uuid))
        return {f"driver_info/{name}": value for name, value in told.items()}

    async def _traits(self, node: IronicNode, there: Record) -> None:
        """Those that others gave it stay."""
        known = set(there.get("traits") or ())
        wanted = known - set(records.own_traits(there)) | set(node.traits)
        if wanted != known:
            await self._api.put(f"/nodes/{node.uuid}/traits", {"traits": sorted(wanted)})


@understood
class PortgroupDriver(_Records):
    """Portgroups."""

    collection = PORTGROUPS

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, IronicPortgroup), "portgroup keys have portgroup shapes"
        await self._make(resource, tag, {"node_uuid": str(shape.node)})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        shape = desired.shape
        assert isinstance(shape, IronicPortgroup), "portgroup keys have portgroup shapes"
        async with _maintained(self._api, shape.node):
            there = await self._record(shape.uuid, shape.settings)
            await self._bring(there, desired, tag, {})


@understood
class PortDriver(_Records):
    """Ports."""

    collection = PORTS

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        port = _port(resource)
        more = {"node_uuid": str(port.node)}
        group = {"portgroup_uuid": str(port.portgroup)} if port.portgroup else {}
        await self._make(resource, tag, {**more, **group})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        port = _port(desired)
        group = str(port.portgroup) if port.portgroup else None
        async with _maintained(self._api, port.node):
            there = await self._record(port.uuid, port.settings)
            moves, address = there.get("portgroup_uuid") != group, values(port.settings)["address"]
            if moves and there["address"] != address:
                # first: together with another address Ironic takes no other group
                self._must_be_ours(there, desired.key, tag.cluster)
                to = {"op": "replace", "path": "/address", "value": address}
                await self._api.patch(f"/ports/{port.uuid}", [to])
                there = await self._record(port.uuid, port.settings)
            await self._bring(there, desired, tag, {"portgroup_uuid": group} if moves else {})


@understood
class VolumeDriver(_Records):
    """Volume connectors or targets. Ironic lets them change and go while their node is off."""

    def __init__(self, around: Around, collection: Collection) -> None:
        super().__init__(around)
        self.collection = collection

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        shape = resource.shape
        assert isinstance(shape, IronicConnector | IronicTarget), "volume keys have volume shapes"
        await self._make(resource, tag, {"node_uuid": str(shape.node)})

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        shape = desired.shape
        assert isinstance(shape, IronicConnector | IronicTarget), "volume keys have volume shapes"
        await self._refuse_running(shape.node, desired.key)
        there = await self._record(shape.uuid, shape.settings)
        await self._bring(there, desired, tag, {})

    async def delete(self, observed: Observed) -> None:
        shape = observed.shape
        assert isinstance(shape, IronicConnector | IronicTarget), "volume keys have volume shapes"
        if self._around.force:
            await self._switch_off(shape.node)
        else:
            await self._refuse_running(shape.node, observed.key)
        await super().delete(observed)

    async def _refuse_running(self, node: UUID, key: Key) -> None:
        if await self._is_on(node):
            raise Conflict(
                f"{key}: Ironic lets volumes change and go only while their node is off",
                hint="Power it off, and run this again; `nospoon down --force` does both.",
            )

    async def _switch_off(self, node: UUID) -> None:
        if not await self._is_on(node):
            return
        await self._api.put(f"/nodes/{node}/states/power", {"target": "power off"})
        end = clock.monotonic() + OFF_SECONDS
        while await self._is_on(node):
            if clock.monotonic() > end:
                raise ProviderError(
                    f"node {node} is still on {OFF_SECONDS:.0f} s after Ironic was to power it off",
                    hint="`nospoon node power NODE off` does, if its BMC can; then run this again.",
                )
            await asyncio.sleep(LEAST)  # Ironic tells no one: it is asked

    async def _is_on(self, node: UUID) -> bool:
        try:
            fields = "power_state,target_power_state"
            record = await self._api.get(f"/nodes/{node}?fields={fields}", read=_power)
        except Gone:
            return False
        return bool(record["is_on"])


def _power(record: Record) -> Record:
    return {"is_on": record["power_state"] == "power on"}


def _upkeep(record: Record) -> Record:
    """Whether a node is in maintenance, why, and how far it is."""
    why = text_of(record.get("maintenance_reason") or "")
    return {
        "maintenance": bool(record["maintenance"]),
        "maintenance_reason": why[:LONGEST_WHY],
        "provision_state": text_of(record["provision_state"])[:LONGEST_WHY],
    }


@asynccontextmanager
async def _maintained(api: Api, node: UUID) -> AsyncIterator[None]:
    """The node in maintenance meanwhile: Ironic lets ports of nodes that are past enrolment change
    only then.

    One that was in maintenance before stays so.
    """
    fields = "maintenance,maintenance_reason,provision_state"
    record = await api.get(f"/nodes/{node}?fields={fields}", read=_upkeep)
    left = left_in_maintenance(record)
    if not left and (record["maintenance"] or record["provision_state"] in PORTS_FREE):
        yield
        return
    if not left:
        await api.put(f"/nodes/{node}/maintenance", {"reason": PORTS_CHANGE})
    try:
        yield
    finally:
        await api.delete(f"/nodes/{node}/maintenance")


def left_in_maintenance(record: Record) -> bool:
    """Whether it was put there by us, for a while that was not heard to its end."""
    return bool(record.get("maintenance")) and record.get("maintenance_reason") in {
        PORTS_CHANGE,
        GOES,
    }


def fault_of(record: Record) -> str:
    """Why a node, though there, does not do what it is for, "" where it does."""
    if record.get("maintenance"):
        why = text_of(record.get("maintenance_reason") or "no reason given")
        return f"in maintenance: {why[:LONGEST_WHY]}"
    if (state := text_of(record.get("provision_state", ""))).endswith(FAILED):
        why = text_of(record.get("last_error") or "no reason given")
        return f"{state[:LONGEST_WHY]}: {why[:LONGEST_WHY]}"
    return ""


def _parts(seen: Observed) -> int:
    """Settings and traits that are kept of it."""
    shape = _of_a_record(seen.shape)
    return len(shape.settings) + len(getattr(shape, "traits", ()))


def _of_a_record(shape: Shape) -> InIronic:
    assert isinstance(shape, InIronic), "it is a record of Ironic"
    return shape


def _node(resource: Resource) -> IronicNode:
    if not isinstance(resource.shape, IronicNode):
        raise ProviderError(f"{resource.key} is not a node of Ironic")
    return resource.shape


def _notes(node: IronicNode) -> dict[str, object]:
    return {"credentials": node.credentials_key, "traits": list(node.traits)}


def _port(resource: Resource) -> IronicPort:
    if not isinstance(resource.shape, IronicPort):
        raise ProviderError(f"{resource.key} is not a port of Ironic")
    return resource.shape
