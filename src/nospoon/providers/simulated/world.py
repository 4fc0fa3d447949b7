"""What exists on a simulated host, as plain values that can be dumped and loaded again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from uuid import UUID

import msgspec

from nospoon.model.boot import BootDevice
from nospoon.model.connections import IN_MEMORY
from nospoon.model.decoders import meet
from nospoon.model.machine import PowerState
from nospoon.model.resources import earlier
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Resource, Shape
from nospoon.model.resources.storage import Image, Volume
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.sharing import Shared
from nospoon.plan.order.kinds import KINDS

MADE = (Kind.POOL, Kind.IMAGE, Kind.NETWORK, Kind.VOLUME, Kind.MACHINE)
SHAPES: dict[Kind, type[Shape]] = {kind: KINDS[kind].shape for kind in MADE}
"""The kinds that a simulated host can make."""


@dataclass(frozen=True, slots=True)
class Made:
    """A resource that exists. `tag` None: it is someone else's."""

    key: Key
    shape: Shape
    tag: OwnerTag | None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a snapshot keeps of a machine: what it booted, how often, and what its disk held; when,
    in Unix seconds, whether it was on, and which disks it had.
    """

    booted: BootDevice | None
    boots: int
    image: str = ""
    at: float = 0
    on: bool = False
    disks: tuple[str, ...] = ()


@dataclass(slots=True)
class Running:
    """Runtime state of one machine. `after`: what it boots when its guest resets itself.

    `cmdline`: what the medium passes to its kernel. `kept`: name of a snapshot -> what it keeps.
    `image`: what a guest wrote on the first disk. `live`: what it has since it was started, where
    its definition was changed after that.
    """

    power: PowerState = PowerState.OFF
    after: tuple[BootDevice, ...] = ()
    next: tuple[BootDevice, ...] = ()
    booted: BootDevice | None = None
    boots: int = 0
    medium: str = ""
    cmdline: str = field(default="", repr=False)
    paused: bool = False
    image: str = ""
    kept: dict[str, Kept] = field(default_factory=dict)
    live: Machine | None = None


@dataclass(slots=True)
class World:
    """Everything on one simulated host, found by its kind and the name that the host knows it by.

    `version` rises with every change, so that who keeps it knows when to. `boot`: id of the boot of
    the machine that runs it (random(4), boot_id), "" when it is not kept.
    """

    made: defaultdict[Kind, dict[str, Made]] = field(default_factory=lambda: defaultdict(dict))
    running: dict[UUID, Running] = field(default_factory=dict)
    version: int = 0
    boot: str = ""

    def dump(self) -> bytes:
        """The whole state as JSON; `load` reads it again."""
        return Snapshot.of(self).encoded()

    @classmethod
    def load(cls, data: bytes) -> World:
        """A world from what `dump` wrote. Raises `msgspec.ValidationError` for anything else."""
        words = Shared()
        raw = msgspec.convert(words.text(msgspec.json.decode(data)), type=_Dumped)
        running = {uuid: _running(state) for uuid, state in raw.running}
        world = cls(running=running, boot=raw.boot)
        for each in raw.made:
            key = msgspec.convert(earlier.renewed_key(each.key), Key)
            world.put(Made(key, _shape(key.kind, each.shape), words.one(each.tag)))
        return world

    def begin(self, boot: str) -> bool:
        """It goes on in this boot; all machines are off in another one. Returns whether it is."""
        before, self.boot = self.boot, boot
        if before in {"", boot}:
            return False
        for state in self.running.values():
            state.power, state.live, state.paused = PowerState.OFF, None, False
        self.version += 1
        return True

    def put(self, made: Made) -> None:
        self.version += 1
        self.made[made.key.kind][native_name(made.key, made.shape)] = made
        if isinstance(made.shape, Machine):
            self.running.setdefault(made.shape.uuid, Running())

    def take_away(self, made: Made) -> None:
        self.version += 1
        self.made[made.key.kind].pop(native_name(made.key, made.shape), None)
        if isinstance(made.shape, Machine):
            self.running.pop(made.shape.uuid, None)

    def disks_in_use(self, machine: UUID) -> frozenset[str]:
        """The volumes with which a machine runs."""
        made, running = self.named(Kind.MACHINE, str(machine)), self.running.get(machine)
        if made is None or running is None or running.power is PowerState.OFF:
            return frozenset()
        shape = running.live or made.shape
        assert isinstance(shape, Machine), "machine keys have machine shapes"
        return frozenset(disk.volume for disk in shape.disks)

    def volume_of(self, machine: UUID, name: str) -> Volume | None:
        """The volume that a machine has by this name: it is in a pool of the machine's cluster."""
        owner = self.named(Kind.MACHINE, str(machine))
        if owner is None or owner.tag is None:
            return None
        for pool in self.made[Kind.POOL].values():
            if pool.tag is not None and pool.tag.cluster == owner.tag.cluster:
                found = self.named(Kind.VOLUME, f"{pool.key.name}/{name}")
                if found is not None and isinstance(found.shape, Volume):
                    return found.shape
        return None

    def find(self, resource: Resource) -> Made | None:
        return self.named(resource.key.kind, native_name(resource.key, resource.shape))

    def named(self, kind: Kind, name: str) -> Made | None:
        """What has this name on the host."""
        return self.made[kind].get(name)

    @property
    def size(self) -> int:
        """How many things exist."""
        return sum(map(len, self.made.values()))

    def all(self) -> Iterator[Made]:
        """What exists, kind by kind."""
        return chain.from_iterable(each.values() for each in self.made.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a world held at one moment, to be encoded at leisure in another thread."""

    made: list[Made]
    running: list[tuple[UUID, Running]]
    boot: str

    @classmethod
    def of(cls, world: World) -> Snapshot:
        return cls(list(world.all()), list(world.running.items()), world.boot)

    def encoded(self) -> bytes:
        """Piece by piece: one call for thousands of machines would hold up every other thread.

        Threads take turns between bytecodes, of which `map` within `join` would have none.
        """
        made = b",".join([_JSON.encode(each) for each in self.made])
        running = b",".join([_JSON.encode(each) for each in self.running])
        boot = _JSON.encode(self.boot)
        return b'{"made":[' + made + b'],"running":[' + running + b'],"boot":' + boot + b"}"


_JSON = msgspec.json.Encoder()


class _DumpedThing(msgspec.Struct):
    key: dict[str, str]
    shape: dict[str, object]
    tag: OwnerTag | None


class _Dumped(msgspec.Struct):
    made: list[_DumpedThing]
    running: list[tuple[UUID, dict[str, object]]]
    boot: str = ""


meet(_Dumped, Running, *SHAPES.values())


def _shape(kind: Kind, record: dict[str, object]) -> Shape:
    """Of whichever version."""
    if kind is Kind.MACHINE:
        return earlier.of_record(record, IN_MEMORY)
    found = earlier.renewed_link(record) if kind is Kind.NETWORK else record
    return msgspec.convert(found, type=SHAPES[kind])


def _running(record: dict[str, object]) -> Running:
    if record.get("live") is not None:
        record["live"] = earlier.renewed(record["live"], IN_MEMORY)
    return msgspec.convert(record, Running)


def native_name(key: Key, shape: Shape) -> str:
    """The name that must be unique on the host, whatever cluster it belongs to."""
    match shape:
        case Machine(uuid=uuid):
            return str(uuid)
        case Link(name=name):
            return name
        case Image(pool=pool) | Volume(pool=pool):
            return f"{pool}/{key.name}"
        case _:
            return key.name
