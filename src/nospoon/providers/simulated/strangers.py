"""Machines on a simulated host that someone else made: those that its settings name."""

from __future__ import annotations

from dataclasses import replace
from uuid import NAMESPACE_URL, UUID, uuid5

from nospoon.errors import Gone, NotOurs
from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.host_facts import Adoptable
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan import identity
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.providers.simulated.world import Made
from nospoon.runtime.paced import paced

DISK_SIZE = 10 << 30


async def found(around: Surroundings) -> tuple[Adoptable, ...]:
    """Those that are named, and all machines that nospoon made there, by name. A file names tens of
    thousands: others have turns in between.
    """
    host = around.host
    machines = [_machine(host, name) async for name in paced(around.simulation.machines)]
    named = {each.uuid: each for each in machines}
    there = _machines(around)
    for each, machine in there.values():
        if machine.adopted and each.tag is None and machine.uuid not in named:
            around.world.take_away(each)
    missing = [machine for uuid, machine in named.items() if uuid not in there]
    async for machine in paced(missing):
        made = Made(Key(Kind.MACHINE, host, machine.adopted), machine, None)
        if around.world.find(Resource(made.key, machine)) is None:  # others looked meanwhile
            around.world.put(made)
    known = sorted(_machines(around).values(), key=lambda each: each[0].key.name)
    return tuple([_adoptable(each, machine, around) async for each, machine in paced(known)])


def _machines(around: Surroundings) -> dict[UUID, tuple[Made, Machine]]:
    made = around.world.made[Kind.MACHINE].values()
    return {each.shape.uuid: (each, each.shape) for each in made if isinstance(each.shape, Machine)}


def claim(around: Surroundings, resource: Resource, tag: OwnerTag) -> None:
    """Raises `Gone`, `NotOurs`."""
    assert isinstance(resource.shape, Machine), "only machines are claimed"
    there = around.world.find(resource)
    if there is None:
        raise Gone(f"there is no machine {resource.shape.adopted} any more")
    if there.tag is not None and not _same(there.tag, tag):
        raise NotOurs(f"{resource.shape.adopted} is a node of another cluster")
    around.world.put(Made(resource.key, resource.shape, tag))


def release(around: Surroundings, observed: Observed) -> None:
    """Gone already is no error."""
    there = around.world.find(Resource(observed.key, observed.shape))
    if there is None or there.tag is None or not isinstance(there.shape, Machine):
        return
    if not _same(there.tag, observed.tag):
        raise NotOurs(f"{observed.key} is no longer managed by nospoon: it is left unchanged")
    machine = there.shape
    around.world.put(Made(Key(Kind.MACHINE, around.host, machine.adopted), machine, None))
    around.world.running[machine.uuid].medium = ""


def _same(one: OwnerTag, other: OwnerTag) -> bool:
    return (one.deployment, one.cluster) == (other.deployment, other.cluster)


def _adoptable(made: Made, machine: Machine, around: Surroundings) -> Adoptable:
    if not machine.adopted:
        return Adoptable(replace(machine, adopted=made.key.name), tag=made.tag, made=True)
    other = made.tag is not None and made.tag.deployment != around.deployment
    return Adoptable(
        machine,
        sizes=(DISK_SIZE,),
        tag=made.tag,
        hindrance="another nospoon has it. Release it there first." if other else "",
        node=made.key.name if made.tag is not None else "",
    )


def _machine(host: str, name: str) -> Machine:
    uuid = _uuid(host, name)
    return Machine(
        uuid=uuid,
        cpus=2,
        memory=2 << 30,
        arch=Arch.X86_64,
        firmware=Firmware.UEFI,
        tpm=False,
        disks=(MachineDisk(f"/simulated/{name}.qcow2", "virtio", ""),),
        nics=(MachineNic(identity.mac_address(uuid, 0), "default", "virtio"),),
        boot_order=(BootDevice.DISK, BootDevice.NETWORK),
        boot=BootMethod.NATIVE,
        adopted=name,
    )


def _uuid(host: str, name: str) -> UUID:
    return uuid5(NAMESPACE_URL, f"nospoon:simulated:{host}:{name}")
