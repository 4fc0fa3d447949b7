"""The servers of a project that nospoon made, as Nova lists them, and what state each is in.

https://docs.openstack.org/api-ref/compute/#servers-servers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import msgspec

from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.resources import Machine, OwnerTag
from nospoon.plan.identity import node_uuid
from nospoon.providers.answers import MAX_TOLD
from nospoon.providers.openstack.api import MOST_LISTED, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    in_pieces,
    of_properties,
    properties,
    whole,
)

MACHINE, MADE = f"{PREFIX}uuid", f"{PREFIX}made"
SHAPE = "shape"
MOST_METADATA, LONGEST_NAME, LONGEST_TIME = 256, 255, 40
"""Values of a server's metadata that are looked at, and characters of a name, a time or a word."""
GONE = frozenset({"DELETED", "SOFT_DELETED"})
POWERS = {
    "ACTIVE": PowerState.ON,
    "RESCUE": PowerState.ON,
    "PASSWORD": PowerState.ON,
    "REBOOT": PowerState.ON,
    "HARD_REBOOT": PowerState.ON,
    "PAUSED": PowerState.ON,
    "ERROR": PowerState.FAILED,
    "UNKNOWN": PowerState.UNKNOWN,
}
"""Status of a server -> power of its machine; whatever is not here has none."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that nospoon made. `id`: Nova's, which its guest sees as UUID (SMBIOS). `machine`:
    UUID of its node.
    `task`: what Nova is doing with it, "" for nothing. `cpus`, `memory` (bytes): of its flavor.
    `made`: it was made to the end.
    """

    id: UUID
    machine: UUID
    tagged: Tagged
    shape: Machine
    power: PowerState
    status: str
    task: str
    fault: str
    cpus: int
    memory: int
    made: bool

    def event(self, change: MachineChange, reason: str = "") -> MachineEvent:
        why = reason or self.fault
        return MachineEvent(self.machine, change, self.power, why, smbios=self.id)


class Roster:
    """Lists servers, and remembers which is which machine's."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._ids: dict[UUID, UUID] = {}

    async def servers(self, cluster: UUID | None = None) -> list[Server]:
        """All of nospoon, in one call for each thousand of the project's."""
        listed = self._around.api.listed(Service.NOVA, "/servers/detail", read=read)
        found = [each async for each in listed if self._around.is_own(each.tagged, None)]
        self._ids = {each.machine: each.id for each in found}
        return [each for each in found if cluster in (None, each.tagged.tag.cluster)]

    async def changed(self, since: str) -> tuple[list[Server], set[UUID], str]:
        """Servers that changed from a time on, the ids of those that went, and from when on to ask
        next; "" asks for everything that is there.
        """
        is_all = not since
        query = {} if is_all else {"changes-since": since}
        listed = self._around.api.listed(Service.NOVA, "/servers/detail", query, read=look)
        found, gone = list[Server](), set[UUID]()
        async for server, went, updated in listed:
            since = max(since, updated)
            if went is not None:
                gone.add(went)
            elif server is not None and self._around.is_own(server.tagged, None):
                found.append(server)
        now = {each.machine: each.id for each in found}
        is_replaced = is_all or len(self._ids) + len(now) > MOST_LISTED
        self._ids = now if is_replaced else self._ids | now
        return found, gone, since

    async def of(self, machine: UUID) -> Server | None:
        """The server of a machine as it is now; None where there is none."""
        if machine not in self._ids:
            await self.servers()
        id_ = self._ids.get(machine)
        if id_ is None:
            return None
        server = await self._around.api.get(Service.NOVA, f"/servers/{id_}", read=read_one)
        if server is None or server.machine != machine:
            self._ids.pop(machine, None)
            return None
        return server if self._around.is_own(server.tagged, None) else None


def look(record: Mapping[str, Any]) -> tuple[Server | None, UUID | None, str]:
    """A server of nospoon, or the id of one that went, and when its record changed."""
    went = UUID(record["id"]) if str(record["status"]) in GONE else None
    return read(record), went, str(record["updated"])[:LONGEST_TIME]


def read(record: Mapping[str, Any]) -> Server | None:
    """None for a server of others, or one that is gone."""
    metadata = record.get("metadata", {})
    status = str(record["status"])
    if MACHINE not in metadata or len(metadata) > MOST_METADATA or status in GONE:
        return None
    tagged = of_properties(metadata)
    if tagged is None:
        return None
    try:
        machine = UUID(metadata[MACHINE])
        shape = msgspec.json.decode(whole(SHAPE, metadata), type=Machine)
    except (ValueError, msgspec.DecodeError):
        return None
    if machine != node_uuid(tagged.tag.cluster, tagged.name) or machine != shape.uuid:
        return None  # others wrote that
    flavor = record.get("flavor", {})
    fault = str(record.get("fault", {}).get("message", "")) if status == "ERROR" else ""
    return Server(
        id=UUID(record["id"]),
        machine=machine,
        tagged=tagged,
        shape=replace(shape, flavor=str(flavor.get("original_name", shape.flavor))[:LONGEST_NAME]),
        power=POWERS.get(status, PowerState.OFF),
        status=status[:LONGEST_TIME],
        task=str(record.get("OS-EXT-STS:task_state") or "")[:LONGEST_TIME],
        fault=fault[:MAX_TOLD],
        cpus=int(flavor.get("vcpus", shape.cpus)),
        memory=int(flavor.get("ram", shape.memory >> 20)) << 20,
        made=MADE in metadata,
    )


def read_one(answer: Mapping[str, Any]) -> Server | None:
    """What Nova shows of one server."""
    return read(answer["server"])


def metadata(name: str, shape: Machine, tag: OwnerTag) -> dict[str, str]:
    """What a server of nospoon carries."""
    tagged = in_pieces(SHAPE, msgspec.json.encode(shape).decode())
    return {MACHINE: str(shape.uuid), **properties(Tagged(tag, name)), **tagged}
