"""Servers that others made, as nodes: which can be, and how they become and stop being ones.

All that is changed of such a server is one value of its metadata, and its power.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from nospoon.errors import Gone, NotOurs, ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.host_facts import Adoptable
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.answers import text_of
from nospoon.providers.openstack.api import Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.images import FIRMWARES
from nospoon.providers.openstack.roster import (
    CLAIM,
    GONE,
    RELAYS,
    Server,
    claim_of,
    owners_machine,
    owners_sizes,
    read,
)
from nospoon.providers.openstack.shown import ServerShown
from nospoon.providers.openstack.tags import LONGEST_VALUE
from nospoon.runtime.paced import paced

FIRMWARE = "hw_firmware_type"
NIC = "virtio"


def of_its_owner(name: str, what: str, hint: str) -> ProviderError:
    """What is refused of a server that others made."""
    return ProviderError(f"server {name} is an adopted machine: {what}", hint=hint)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What is kept of a server: `server`: as a node, None for one that is none; `shape` of any."""

    id: UUID
    server: Server | None
    shape: Machine
    sizes: tuple[int, ...]
    image: str
    status: str


class OwnersServers:
    """Those of a project, as others made them; remembers which id each would have as a node."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._ids: dict[UUID, UUID] = {}

    async def adoptable(self) -> tuple[Adoptable, ...]:
        """Every server of the project as a machine, those that nospoon made too, by name."""
        found = await self._list()
        plugged = await nics(self._around) if found else {}
        firmwares = await self._firmwares() if found else {}
        known = [self._adoptable(each, plugged, firmwares) async for each in paced(found)]
        return tuple(sorted(known, key=lambda each: (each.name, each.machine.uuid.int)))

    async def _list(self) -> list[_Listed]:
        listed = self._around.api.listed(
            Service.NOVA, "/servers/detail", read=self._listed, parts=_parts
        )
        found = [each async for each in listed]
        self._ids = {each.shape.uuid: each.id for each in found}
        return found

    def _listed(self, record: ServerShown) -> _Listed | None:
        status = text_of(record["status"])
        if status in GONE or RELAYS in record.get("metadata", {}):
            return None
        image = record.get("image")
        return _Listed(
            id=UUID(record["id"]),
            server=read(record, self._around.machine_of),
            shape=owners_machine(record, Firmware.BIOS, self._around.machine_of),
            sizes=owners_sizes(record),
            image=text_of(image["id"])[:LONGEST_VALUE] if image else "",
            status=status,
        )

    def _shown(self, answer: Mapping[str, ServerShown]) -> _Listed | None:
        return self._listed(answer["server"])

    def _adoptable(
        self,
        each: _Listed,
        plugged: Mapping[UUID, Sequence[MachineNic]],
        firmwares: Mapping[str, Firmware],
    ) -> Adoptable:
        server = each.server
        if server is not None and not server.shape.adopted:
            machine = replace(server.shape, adopted=each.shape.adopted)
            return Adoptable(machine, tag=server.tagged.tag, made=True, node=server.tagged.name)
        noted = server.shape.firmware if server is not None else None
        machine = replace(
            each.shape,
            firmware=noted or firmwares.get(each.image, Firmware.BIOS),
            nics=tuple(plugged.get(each.id, ())),
        )
        return Adoptable(
            machine,
            sizes=each.sizes,
            tag=server.tagged.tag if server is not None else None,
            hindrance=self._hindrance(each),
            node=server.tagged.name if server is not None else "",
            id=str(each.id),
        )

    def _hindrance(self, each: _Listed) -> str:
        """Why it cannot be a node."""
        if each.server is not None and each.server.tagged.tag.deployment != self._around.deployment:
            return "another nospoon has it. Release it there first."
        return "Nova is still building it." if each.status == "BUILD" else ""

    async def _firmwares(self) -> Mapping[str, Firmware]:
        """Image -> firmware of its servers, of those that say so: Nova's default is BIOS."""
        words = {word: firmware for firmware, word in FIRMWARES.items()}
        listed = self._around.api.listed(Service.GLANCE, "/images", read=_image)
        return {id_: words[word] async for id_, word in listed if word in words}

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        """Raises `Gone`, `NotOurs`. Of two that claim it at once, the last one has it, and the
        other finds that out here.
        """
        machine = resource.shape
        assert isinstance(machine, Machine), "only machines are claimed"
        if machine.uuid not in self._ids:
            await self._list()
        if machine.uuid not in self._ids:
            raise Gone(f"there is no server {machine.adopted} any more")
        path = f"/servers/{self._ids[machine.uuid]}"
        await self._check(path, machine, tag)
        body = {"metadata": claim_of(tag, resource.key.name, machine)}
        await self._around.api.call(Service.NOVA, "POST", f"{path}/metadata", body)
        await self._check(path, machine, tag)

    async def _check(self, path: str, machine: Machine, tag: OwnerTag) -> None:
        """Raises `Gone`, or `NotOurs` where another cluster has it."""
        found = await self._around.api.get(Service.NOVA, path, read=self._shown)
        if found is None:
            raise Gone(f"there is no server {machine.adopted} any more")
        if found.server is not None and not self._around.is_own(found.server.tagged, tag.cluster):
            raise NotOurs(f"server {machine.adopted} is a node of another cluster")

    def check(self, server: Server, tag: OwnerTag) -> None:
        """Raises `NotOurs` where another cluster has it."""
        if not self._around.is_own(server.tagged, tag.cluster):
            raise NotOurs(f"server {server.shape.adopted} is a node of another cluster")

    async def release(self, server: Server, tag: OwnerTag) -> None:
        """Gone already is no error. Raises `NotOurs`."""
        self.check(server, tag)
        path = f"/servers/{server.id}/metadata/{CLAIM}"
        with contextlib.suppress(Gone):
            await self._around.api.call(Service.NOVA, "DELETE", path)


def _parts(listed: _Listed) -> int:
    return listed.shape.parts + (listed.server.shape.parts if listed.server is not None else 0)


async def nics(around: Around) -> Mapping[UUID, Sequence[MachineNic]]:
    """Server -> its NICs as Neutron has them, by MAC: Nova names those with addresses alone."""
    found: dict[UUID, list[MachineNic]] = {}
    async for each in around.ports():
        with contextlib.suppress(ValueError):  # of no server
            nic = MachineNic(each.mac, each.network, NIC)
            found.setdefault(UUID(each.device), []).append(nic)
    return {key: sorted(some, key=lambda nic: nic.mac) for key, some in found.items()}


def _image(record: Mapping[str, object]) -> tuple[str, str] | None:
    if FIRMWARE not in record:
        return None
    return text_of(record["id"])[:LONGEST_VALUE], text_of(record[FIRMWARE])[:LONGEST_VALUE]
