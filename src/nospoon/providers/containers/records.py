"""What is written beside each thing: whose it is, and its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from uuid import UUID

import msgspec

from nospoon.model.connections import CONTAINERS
from nospoon.model.resources import earlier
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import Image, Pool, Volume
from nospoon.model.resources.tags import OwnerTag

LONGEST_RECORD = 1 << 20
"""Characters of a line: a machine has 24 disks and NICs at most, and what it says of each is short.
"""
MACHINE = "/machine.json"
"""After the directory of a container: its record."""
OnPool = Pool | Image | Volume | Machine


@dataclass(frozen=True, slots=True)
class Record:
    """`name` of the resource; `tag` and shape as they were written. `ids`: of a root, first and
    count of those of the host that its files belong to.
    """

    name: str
    tag: OwnerTag
    pool: Pool | None = None
    image: Image | None = None
    volume: Volume | None = None
    machine: Machine | None = None
    ids: tuple[int, int] = (0, 0)

    @property
    def shape(self) -> OnPool | None:
        return self.pool or self.image or self.volume or self.machine


def record(name: str, tag: OwnerTag, shape: OnPool, *, ids: tuple[int, int] = (0, 0)) -> bytes:
    """In one line."""
    match shape:
        case Pool():
            made = Record(name, tag, pool=shape)
        case Image():
            made = Record(name, tag, image=shape)
        case Volume():
            made = Record(name, tag, volume=shape, ids=ids)
        case Machine():
            made = Record(name, tag, machine=shape)
    return msgspec.json.encode(made)


@dataclass(frozen=True, slots=True)
class Running:
    """The processes of a container: its monitor, and its init, 0 while it starts or ends."""

    monitor: int
    init: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a host has, by paths below the directory of pools. What cannot be read is ignored.
    `machines`: UUID -> path of its directory; `pools`: those of the records that are pools'.
    """

    records: Mapping[str, Record] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    running: Mapping[str, Running] = field(default_factory=dict)
    machines: Mapping[UUID, str] = field(default_factory=dict)
    pools: Mapping[str, Record] = field(default_factory=dict)


_RECORD = msgspec.json.Decoder(Record)


def _read(text: str) -> Record:
    try:
        return _RECORD.decode(text)
    except msgspec.ValidationError:
        record = msgspec.json.decode(text, type=dict[str, object])
        if record.get("machine") is not None:
            record["machine"] = earlier.renewed(record["machine"], CONTAINERS)
        return msgspec.convert(record, Record)


def parse(text: str) -> Seen:
    """What `scripts.LOOK` wrote. There may be thousands of records: run it in a thread. Lines are
    taken one by one, and none of any length: other threads wait for each call.
    """
    records: dict[str, Record] = {}
    sizes: dict[str, int] = {}
    running: dict[str, Running] = {}
    for line in StringIO(text):
        if len(line) > LONGEST_RECORD:
            continue
        word, _, rest = line.rstrip("\n").partition(" ")
        path, _, value = rest.partition(" ")
        try:
            match word:
                case "record":
                    found = _read(value)
                    if found.tag.is_plausible(found.name):
                        records[path] = found
                case "size":
                    sizes[path] = int(value)
                case "runs":
                    monitor, init = value.split()
                    running[path] = Running(int(monitor), int(init))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
    machines = {
        each.machine.uuid: path.removesuffix(MACHINE)
        for path, each in records.items()
        if each.machine is not None and path.endswith(MACHINE)
    }
    pools = {path: each for path, each in records.items() if each.pool is not None}
    return Seen(records, sizes, running, machines, pools)
