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
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    in_pieces,
    of_properties,
    properties,
    whole,
)

MACHINE = f"{PREFIX}uuid"
SHAPE = "shape"
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
        listed = self._around.api.listed(Service.NOVA, "/servers/detail")
        found = [self.read(each) async for each in listed]
        return [each for each in found if each and self._around.is_own(each.tagged, cluster)]

    async def changed(self, since: str) -> tuple[list[Mapping[str, Any]], str]:
        """What changed from a time on, of the whole project, deleted servers too, and from when on
        to ask next; "" asks for everything that is there.
        """
        query = {"changes-since": since} if since else {}
        listed = self._around.api.listed(Service.NOVA, "/servers/detail", **query)
        records = [each async for each in listed]
        return records, max([since, *(str(each["updated"]) for each in records)])

    async def of(self, machine: UUID) -> Server | None:
        """The server of a machine as it is now; None where there is none."""
        if machine not in self._ids:
            await self.servers()
        id_ = self._ids.get(machine)
        answer = await self._around.api.get(Service.NOVA, f"/servers/{id_}") if id_ else None
        server = self.read(answer["server"]) if answer is not None else None
        return server if server is not None and self._around.is_own(server.tagged, None) else None

    def read(self, record: Mapping[str, Any]) -> Server | None:
        """None for a server of others, or one that is gone."""
        metadata = record.get("metadata", {})
        tagged = of_properties(metadata)
        if tagged is None or MACHINE not in metadata:
            return None
        try:
            machine = UUID(metadata[MACHINE])
            shape = msgspec.json.decode(whole(SHAPE, metadata), type=Machine)
        except (ValueError, msgspec.DecodeError):
            return None
        status = str(record["status"])
        if status in GONE:
            if self._ids.get(machine) == UUID(record["id"]):
                del self._ids[machine]
            return None
        flavor = record.get("flavor", {})
        self._ids[machine] = UUID(record["id"])
        return Server(
            id=UUID(record["id"]),
            machine=machine,
            tagged=tagged,
            shape=replace(shape, flavor=str(flavor.get("original_name", shape.flavor))),
            power=POWERS.get(status, PowerState.OFF),
            status=status,
            task=str(record.get("OS-EXT-STS:task_state") or ""),
            fault=str(record.get("fault", {}).get("message", "")) if status == "ERROR" else "",
            cpus=int(flavor.get("vcpus", shape.cpus)),
            memory=int(flavor.get("ram", shape.memory >> 20)) << 20,
        )


def metadata(name: str, shape: Machine, tag: OwnerTag) -> dict[str, str]:
    """What a server of nospoon carries."""
    tagged = in_pieces(SHAPE, msgspec.json.encode(shape).decode())
    return {MACHINE: str(shape.uuid), **properties(Tagged(tag, name)), **tagged}
