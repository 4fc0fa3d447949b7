"""What the tests of a connection need of it, and the small cluster that they make there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.declared import Declared, Sizes
from nospoon.model.host_facts import Adoptable
from nospoon.model.machine import MachineChange, MachineEvent
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.networks import Link, Port
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import BootImage, Image, Pool, Volume, boot_image
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.seed import Seed
from nospoon.plan import identity
from nospoon.providers.base import Connection

MEBI = 1 << 20
SEEDS = tuple(
    Seed("kit", "m0", ("ssh-ed25519 AAAA kit",), f"#cloud-config\n# {each}\n", "version: 2\n")
    for each in ("first", "second")
)
"""What the kit's machines are given for cloud-init, one after the other."""
ORDER = (BootDevice.DISK, BootDevice.NETWORK)
PLAN = BootPlan(now=ORDER, after=ORDER)


async def open_seed(digest: str) -> Seed:
    """One of the kit's seeds, as the daemon opens those of its clusters."""
    return next(each for each in SEEDS if each.digest == digest)


ASKED = "http://192.0.2.1:8069"
"""Where machines ask that boot a boot image."""


@dataclass(slots=True)
class Bench:
    """What the kit needs of a connection under test.

    `make_stranger` makes something under the name of that resource that is not ours, and says how
    to remove it again and whether it still is untouched; None where the kind cannot be taken.
    `remove_machine` removes a machine behind the connection's back. `read_seed` reads a file that
    cloud-init finds in a machine that runs, None where there is none to read; connections get
    their seeds by `open_seed`. `foreign`: the name of a machine there that nospoon did not make, ""
    where there is none. What is made there follows from what its `place` declares; where that is
    `Sizes.FLAVORS`, machines have this `flavor`, and where it makes no networks, they are on this
    `network`, "" for none; where it makes some, those of a plan are on it.
    """

    connection: Connection
    place: Host
    deployment: str
    pool_root: str
    image: Image
    make_stranger: Callable[[Resource], Awaitable[Stranger | None]]
    remove_machine: Callable[[Resource], Awaitable[None]]
    patience: float = 60.0
    read_seed: Callable[[Machine, str], Awaitable[str]] | None = None
    foreign: str = ""
    flavor: str = ""
    network: str = ""
    cluster: UUID = field(default_factory=uuid4)

    @property
    def host(self) -> str:
        return self.place.name

    @property
    def declares(self) -> Declared:
        return self.place.declares

    @property
    def kind(self) -> NodeKind:
        """What its nodes are: bare metal, where there can be any."""
        made = self.declares.node_kinds
        return NodeKind.BAREMETAL if NodeKind.BAREMETAL in made else min(made)

    @property
    def plugged(self) -> str:
        """What a machine is plugged into, "" for nothing."""
        made = self.declares.makes_networks
        return identity.bridge_name(self.cluster, "kit") if made else self.network

    @property
    def tag(self) -> OwnerTag:
        return OwnerTag(self.deployment, self.cluster, 1, "kit", name="the kit's", uid=1234)

    @property
    def pool(self) -> str:
        """The name of the cluster's pool, which has another name than the cluster: it is found by
        its owner.
        """
        return identity.pool_name(self.cluster, "kit")


@dataclass(frozen=True, slots=True)
class Stranger:
    """Something that is not ours, and how to see that it is untouched and to remove it."""

    untouched: Callable[[], Awaitable[bool]]
    remove: Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class AnyRack:
    """The resources of a one-machine cluster. `more`: what its machine needs besides."""

    link: Resource | None
    machine: Resource
    more: tuple[Resource, ...] = ()

    @property
    def all(self) -> tuple[Resource, ...]:
        link = (self.link,) if self.link is not None else ()
        return (*link, *self.more, self.machine)

    @property
    def uuid(self) -> UUID:
        assert isinstance(self.machine.shape, Machine)
        return self.machine.shape.uuid


@dataclass(frozen=True, kw_only=True)
class Rack(AnyRack):
    """That of a host with pools: an image and two volumes. A container has only the first, which is
    made from the image as well: `cloned` would be a second root, and is none of `all`.
    """

    pool: Resource
    image: Resource
    blank: Resource
    cloned: Resource

    @property
    def all(self) -> tuple[Resource, ...]:
        link = (self.link,) if self.link is not None else ()
        assert isinstance(self.machine.shape, Machine)
        cloned = () if self.machine.shape.kind is NodeKind.CONTAINER else (self.cloned,)
        return (self.pool, self.image, *link, self.blank, *cloned, self.machine)


def any_rack(bench: Bench) -> AnyRack:
    """What the kit makes, as the connection declares."""
    if bench.declares.has_pools:
        return rack_for(bench)
    disk = MachineDisk("m0-0", "virtio", serial="", size=1 << 30)
    machine = _machine(bench, (disk,), memory=512 * MEBI)
    more = []
    if bench.declares.has_boot_image:
        image = BootImage(Firmware.BIOS, ASKED)
        more.append(Resource(boot_image(bench.host, image.firmware, image.url), image))
    if bench.declares.has_ports:
        port = Port(bench.plugged, machine.nics[0].mac)
        more.append(Resource(Key(Kind.PORT, bench.host, "m0-0"), port))
    return AnyRack(
        link=_link(bench),
        more=tuple(more),
        machine=Resource(Key(Kind.MACHINE, bench.host, "m0"), machine),
    )


def rack_for(bench: Bench) -> Rack:
    """A pool, an image, a link, two volumes and a machine with both."""
    pool_name = bench.pool
    image = replace(bench.image, pool=pool_name)

    def key(kind: Kind, name: str) -> Key:
        return Key(kind, bench.host, name)

    image_key = key(Kind.IMAGE, f"image-{image.sha256[:16]}")
    cloned = Volume(pool_name, size=max(16 * MEBI, image.virtual_size), image=image_key.name)
    uuid = identity.node_uuid(bench.cluster, "m0")
    is_container = bench.kind is NodeKind.CONTAINER
    first = Volume(pool_name, 8 * MEBI, image_key.name if is_container else "")
    disks = (
        MachineDisk("m0-0", "virtio", identity.disk_serial(uuid, 0)),
        MachineDisk("m0-1", "sata", identity.disk_serial(uuid, 1)),
    )
    machine = _machine(bench, disks[:1] if is_container else disks, memory=64 * MEBI)
    return Rack(
        pool=Resource(key(Kind.POOL, pool_name), Pool(f"{bench.pool_root}/{pool_name}")),
        image=Resource(image_key, image),
        link=_link(bench),
        blank=Resource(key(Kind.VOLUME, "m0-0"), first),
        cloned=Resource(key(Kind.VOLUME, "m0-1"), cloned),
        machine=Resource(key(Kind.MACHINE, "m0"), machine),
    )


def _machine(bench: Bench, disks: tuple[MachineDisk, ...], *, memory: int) -> Machine:
    """With one NIC."""
    uuid, declares = identity.node_uuid(bench.cluster, "m0"), bench.declares
    port = identity.port_name(uuid, 0) if bench.plugged else ""
    return Machine(
        uuid=uuid,
        cpus=1,
        memory=memory,
        arch=Arch.X86_64,
        firmware=Firmware.BIOS,
        tpm=False,
        disks=disks,
        nics=(MachineNic(identity.mac_address(uuid, 0), bench.plugged, "virtio", port=port),),
        boot_order=ORDER,
        boot=declares.boot_of(asks=bench.kind is NodeKind.BAREMETAL),
        flavor=bench.flavor if declares.sizes is Sizes.FLAVORS else "",
        kind=bench.kind,
        asks_at=ASKED if declares.has_boot_image and bench.kind is NodeKind.BAREMETAL else "",
    )


def _link(bench: Bench) -> Resource | None:
    if not bench.declares.makes_networks:
        return None
    return Resource(Key(Kind.NETWORK, bench.host, "kit"), Link(bench.plugged))


async def observe_all(bench: Bench, cluster: UUID | None = None) -> dict[Key, Observed]:
    """Everything of the cluster that the connection's drivers find."""
    found = [
        await driver.observe(cluster or bench.cluster)
        for driver in bench.connection.drivers.values()
    ]
    return {each.key: each for some in found for each in some}


async def observe_everything(bench: Bench) -> list[Observed]:
    """What the drivers find of every cluster of the deployment."""
    found = [await driver.observe(None) for driver in bench.connection.drivers.values()]
    return [each for some in found for each in some]


async def make(bench: Bench, *resources: Resource) -> None:
    for resource in resources:
        await bench.connection.drivers[resource.key.kind].create(resource, bench.tag)


async def remove_all(bench: Bench) -> None:
    """Delete whatever the connection finds, machines first."""
    found = await observe_all(bench)
    kinds = list(Kind)
    for each in sorted(found.values(), key=lambda each: -kinds.index(each.key.kind)):
        await bench.connection.drivers[each.key.kind].delete(each)


async def found(bench: Bench, resource: Resource) -> Observed:
    """What the driver of this resource finds of it now; fails when it finds nothing."""
    observed = await bench.connection.drivers[resource.key.kind].observe(bench.cluster)
    by_key = {each.key: each for each in observed}
    assert resource.key in by_key, f"{resource.key} is not there, but {sorted(map(str, by_key))}"
    return by_key[resource.key]


async def adoptable(bench: Bench) -> Adoptable:
    """The machine that nospoon did not make, as the connection finds it now."""
    machines = await bench.connection.adoptable()
    return next(each for each in machines or () if each.name == bench.foreign)


@asynccontextmanager
async def events_of(bench: Bench, machine: UUID) -> AsyncIterator[asyncio.Queue[MachineEvent]]:
    """A queue of the events of one machine, listening before the context begins."""
    queue: asyncio.Queue[MachineEvent] = asyncio.Queue()
    listening = asyncio.Event()

    async def listen() -> None:
        async for event in bench.connection.machine_driver.watch():
            listening.set()
            if event.uuid == machine:
                queue.put_nowait(event)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        async with asyncio.timeout(bench.patience):
            await listening.wait()
        yield queue
        task.cancel()


async def until(
    queue: asyncio.Queue[MachineEvent], change: MachineChange, patience: float
) -> MachineEvent:
    """The next event of that kind. Raises TimeoutError when none comes in time."""
    async with asyncio.timeout(patience):
        while True:
            event = await queue.get()
            if event.change is change:
                return event
