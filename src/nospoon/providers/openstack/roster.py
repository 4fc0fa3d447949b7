"""The servers of a project that are nodes, as Nova lists them, and what state each is in.

https://docs.openstack.org/api-ref/compute/#servers-servers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.connections import CLOUD
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.names import is_name
from nospoon.model.resources import earlier
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import node_uuid
from nospoon.providers.answers import MAX_TOLD, number_of, text_of
from nospoon.providers.openstack.api import MOST_LISTED, Service
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.shown import Metadata, ServerShown
from nospoon.providers.openstack.tags import (
    PREFIX,
    Tagged,
    described,
    in_pieces,
    of_description,
    of_properties,
    properties,
    whole,
)
from nospoon.runtime.paced import paced
from nospoon.runtime.shared import Shared

MACHINE, MADE = f"{PREFIX}uuid", f"{PREFIX}made"
RELAYS = f"{PREFIX}relays"
"""Of a server that is a relay; what it is, is in pieces beside it."""
CLAIM = f"{PREFIX}claim"
"""Of a server that others made: whose node it is, in one value, which is written and taken
away in one call.
"""
ASKS = "asks"
"""With a claim: the server boots by our boot image what its disk does not have."""
RESCUED = "RESCUE"
SHUT_DOWN = 4
"""`power_state` of a guest that ended: Nova leaves a rescued server in its status then."""
SHAPE = "shape"
GIB, MIB = 1 << 30, 1 << 20
MOST_METADATA, LONGEST_NAME, LONGEST_TIME = 256, 255, 40
"""Values of a server's metadata that are looked at, and characters of a name, a time or a word."""
MOST_DISKS = 64
SKEW = timedelta(seconds=5)
"""By which clocks of Nova's services may differ."""
GONE = frozenset({"DELETED", "SOFT_DELETED"})
MachineOf = Callable[[UUID], UUID]
"""Id of a server that others made -> UUID of the node that it is, or would be."""
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
    """A server that is a node. `id`: Nova's, which its guest sees as UUID (SMBIOS). `machine`: UUID
    of its node.
    `task`: what Nova is doing with it, "" for nothing. `cpus`, `memory` (bytes): of its flavor.
    `made`: it was made to the end. `has_root_volume`: it boots a volume. `attached`: volumes that
    it has. `image`: id of that of which Nova made it, "" for none.
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
    has_root_volume: bool = False
    attached: int = 0
    image: str = ""

    @property
    def volumes(self) -> int:
        """Of those disks with which nospoon made it."""
        return min(self.attached, len(self.shape.disks))

    @property
    def volume_space(self) -> int:
        """Bytes of these: Cinder has them in whole GiB."""
        return sum(-(-disk.size // GIB) * GIB for disk in self.shape.disks) if self.volumes else 0

    @property
    def is_rescued(self) -> bool:
        return self.status == RESCUED

    def event(self, change: MachineChange, reason: str = "") -> MachineEvent:
        why = reason or self.fault
        return MachineEvent(self.machine, change, self.power, why, smbios=self.id)


def _rank(server: Server) -> tuple[bool, bool, str]:
    return not server.made, server.power is PowerState.FAILED, str(server.id)


def is_building(server: Server) -> bool:
    return server.status == "BUILD"


class Roster:
    """Lists servers, and remembers which is which machine's."""

    def __init__(self, around: Around) -> None:
        self._around = around
        self._ids: dict[UUID, UUID] = {}
        self._twins: dict[UUID, list[UUID]] = {}
        self._listing = Shared(self.servers)

    async def servers(self, cluster: UUID | None = None) -> list[Server]:
        """All of nospoon, one for each machine, in one call for each thousand of the project's."""
        listed = self._around.api.listed(
            Service.NOVA, "/servers/detail", read=self._read, parts=_parts
        )
        own = [each async for each in listed if self._around.is_own(each.tagged, None)]
        found = await self._one_each(own)
        self._ids = {each.machine: each.id for each in found}
        return [each for each in found if cluster in (None, each.tagged.tag.cluster)]

    async def changed(self, since: str) -> tuple[list[Server], set[UUID], str]:
        """Servers that changed from a time on, the ids of those that went, and from when on to ask
        next; "" asks for everything that is there.
        """
        is_all, before = not since, set(self._ids.values())
        query = {} if is_all else {"changes-since": _a_little_before(since)}
        listed = self._around.api.listed(
            Service.NOVA, "/servers/detail", query, read=self._look, parts=lambda at: _parts(at[0])
        )
        found, gone = list[Server](), set[UUID]()
        async for server, went, updated in listed:
            since = max(since, updated)
            if went is not None:
                gone.add(went)
            elif server is not None and self._around.is_own(server.tagged, None):
                found.append(server)
        if is_all:
            found = await self._one_each(found)
        else:
            twins = {id_ for ids in self._twins.values() for id_ in ids}
            found = [each for each in found if each.id not in twins]
        now = {each.machine: each.id for each in found}
        if is_all:
            gone |= before - set(now.values())
        is_replaced = is_all or len(self._ids) + len(now) > MOST_LISTED
        self._ids = now if is_replaced else self._ids | now
        return found, gone, since

    async def of(self, machine: UUID) -> Server | None:
        """The server of a machine as it is now; None where there is none."""
        id_ = await self.id_of(machine)
        if id_ is None:
            return None
        server = await self._around.api.get(Service.NOVA, f"/servers/{id_}", read=self.read_one)
        if server is None or server.machine != machine:
            self._ids.pop(machine, None)
            return None
        return server if self._around.is_own(server.tagged, None) else None

    async def id_of(self, machine: UUID) -> UUID | None:
        """The id of a machine's server, as it was seen last; None where none was seen."""
        if machine not in self._ids:
            await self._listing()
        return self._ids.get(machine)

    def twins(self, machine: UUID) -> Sequence[UUID]:
        """Ids of further servers of a machine, as the last list of all has them: a cloud may make
        one long after whoever asked for it has given up, and asked again.
        """
        return tuple(self._twins.get(machine, ()))

    def twins_went(self, machine: UUID) -> None:
        self._twins.pop(machine, None)

    async def _one_each(self, found: Sequence[Server]) -> list[Server]:
        """Of several of a machine, the one that is made to the end, or may be."""
        first, twins = dict[UUID, Server](), dict[UUID, list[UUID]]()
        async for each in paced(found):
            before = first.setdefault(each.machine, each)
            if before is not each:
                better, other = sorted((before, each), key=_rank)
                first[each.machine] = better
                twins.setdefault(each.machine, []).append(other.id)
        self._twins = twins
        return list(first.values())

    def know(self, machine: UUID, server: UUID) -> None:
        """This server was just made for a machine."""
        self._ids[machine] = server

    def read_one(self, answer: Mapping[str, ServerShown]) -> Server | None:
        """What Nova shows of one server."""
        return self._read(answer["server"])

    def _read(self, record: ServerShown) -> Server | None:
        return read(record, self._around.machine_of)

    def _look(self, record: ServerShown) -> tuple[Server | None, UUID | None, str]:
        """A node's server, or the id of one that went, and when its record changed."""
        went = UUID(record["id"]) if text_of(record["status"]) in GONE else None
        return self._read(record), went, text_of(record["updated"])[:LONGEST_TIME]


def _a_little_before(moment: str) -> str:
    """What Nova's services write has the times of their own clocks, and is seen after others'."""
    try:
        return (datetime.fromisoformat(moment) - SKEW).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return moment


def _parts(server: Server | None) -> int:
    return 0 if server is None else server.shape.parts


def read(record: ServerShown, machine_of: MachineOf) -> Server | None:
    """None for a server that is no node, or one that is gone."""
    metadata = record.get("metadata", {})
    status = text_of(record["status"])
    if len(metadata) > MOST_METADATA or status in GONE:
        return None
    found = _made(metadata) if MACHINE in metadata else _claimed(record, machine_of)
    if found is None:
        return None
    tagged, shape = found
    flavor = record.get("flavor", {})
    if not shape.adopted:
        called = text_of(flavor.get("original_name", shape.flavor))[:LONGEST_NAME]
        shape = replace(shape, flavor=called)
    fault = text_of(record.get("fault", {}).get("message", "")) if status == "ERROR" else ""
    return Server(
        id=UUID(record["id"]),
        machine=shape.uuid,
        tagged=tagged,
        shape=shape,
        power=_power(record, status),
        status=status[:LONGEST_TIME],
        task=text_of(record.get("OS-EXT-STS:task_state") or "")[:LONGEST_TIME],
        fault=fault[:MAX_TOLD],
        cpus=number_of(flavor.get("vcpus", shape.cpus)),
        memory=number_of(flavor.get("ram", shape.memory // MIB)) * MIB,
        made=MADE in metadata or bool(shape.adopted),
        has_root_volume=not record.get("image"),
        attached=len(record.get("os-extended-volumes:volumes_attached", ())),
        image=image_of(record) or "",
    )


def image_of(record: ServerShown) -> str | None:
    """The id of that of which Nova made a server, None for none."""
    image = record.get("image")
    return text_of(image["id"])[:LONGEST_NAME] if image else None


def _power(record: ServerShown, status: str) -> PowerState:
    if status == RESCUED and record.get("OS-EXT-STS:power_state") == SHUT_DOWN:
        return PowerState.OFF
    return POWERS.get(status, PowerState.OFF)


def _made(metadata: Metadata) -> tuple[Tagged, Machine] | None:
    """What nospoon wrote when it made a server."""
    tagged = of_properties(metadata)
    if tagged is None:
        return None
    try:
        machine = UUID(metadata[MACHINE])
        shape = earlier.machine(whole(SHAPE, metadata), CLOUD)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    if machine != node_uuid(tagged.tag.cluster, tagged.name) or machine != shape.uuid:
        return None  # others wrote that
    return tagged, shape


def _claimed(record: ServerShown, machine_of: MachineOf) -> tuple[Tagged, Machine] | None:
    """Whose node a server of others is, and what it is now, but for its NICs."""
    tagged = of_description(record.get("metadata", {}).get(CLAIM))
    firmware, _, asks = ("" if tagged is None else tagged.more).partition("+")
    if tagged is None or firmware not in set(Firmware) or asks not in {"", ASKS}:
        return None  # others wrote that
    if not is_name(tagged.name):
        return None
    shape = owners_machine(record, Firmware(firmware), machine_of)
    return tagged, replace(shape, boot=CLOUD.boot_of(asks=asks == ASKS))


def claim_of(tag: OwnerTag, name: str, shape: Machine) -> dict[str, str]:
    """What a server of others carries while it is a node."""
    more = f"{shape.firmware}+{ASKS}" if shape.asks else str(shape.firmware)
    return {CLAIM: described(Tagged(tag, name, more))}


def owners_machine(record: ServerShown, firmware: Firmware, machine_of: MachineOf) -> Machine:
    """What a server of others is. Its NICs are Neutron's, its firmware is its image's."""
    flavor = record.get("flavor", {})
    return Machine(
        uuid=machine_of(UUID(record["id"])),
        cpus=number_of(flavor.get("vcpus", 0)),
        memory=number_of(flavor.get("ram", 0)) * MIB,
        arch=Arch.X86_64,
        firmware=firmware,
        tpm=False,
        disks=tuple(_owners_disks(record)),
        nics=(),
        boot_order=(BootDevice.DISK,),
        boot=BootMethod.NONE,
        adopted=text_of(record["name"])[:LONGEST_NAME],
    )


def _owners_disks(record: ServerShown) -> Iterator[MachineDisk]:
    """That of its image, then its flavor's, then its volumes."""
    if record.get("image"):
        yield MachineDisk("nova/root", "virtio", "")
    if record.get("flavor", {}).get("ephemeral"):
        yield MachineDisk("nova/ephemeral", "virtio", "")
    for each in record.get("os-extended-volumes:volumes_attached", [])[:MOST_DISKS]:
        yield MachineDisk(f"cinder/{text_of(each['id'])}"[:LONGEST_NAME], "virtio", "")


def owners_sizes(record: ServerShown) -> tuple[int, ...]:
    """Of the same disks in bytes; 0 for volumes, which Nova does not know."""
    flavor = record.get("flavor", {})
    of = {
        "nova/root": number_of(flavor.get("disk", 0)),
        "nova/ephemeral": number_of(flavor.get("ephemeral", 0)),
    }
    return tuple(of.get(each.volume, 0) * GIB for each in _owners_disks(record))


def metadata(name: str, shape: Machine, tag: OwnerTag) -> dict[str, str]:
    """What a server of nospoon carries."""
    tagged = in_pieces(SHAPE, msgspec.json.encode(shape).decode())
    return {MACHINE: str(shape.uuid), **properties(Tagged(tag, name)), **tagged}
