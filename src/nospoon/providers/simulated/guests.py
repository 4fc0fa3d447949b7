"""What runs on a machine that booted from the network or a medium, and what it can do there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from nospoon.model.agent import Agents
from nospoon.model.cluster import Firmware
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.probe.record import FoundDisk, FoundNic, Record
from nospoon.protocols.agent.inventory import Disk, Hardware
from nospoon.providers.simulated.world import World


class Hands(Protocol):
    """What a guest can do to its machine. A machine that is no more is no error."""

    def say(self, machine: UUID, text: str) -> None:
        """A line on its console."""

    def write(self, machine: UUID, image: str) -> None:
        """Its first disk holds this image now, "" for nothing."""

    def power_off_by_guest(self, machine: UUID) -> None: ...

    def reset_by_guest(self, machine: UUID) -> None: ...

    def boot_disk(self, machine: UUID) -> None:
        """Go on from what was booted to the disk, as boot scripts do."""


@dataclass(frozen=True, slots=True)
class Guest:
    """One boot of one machine. `cmdline`: what the medium gave to its kernel; None: it booted from
    the network. `image`: what its disk holds.
    """

    machine: UUID
    hardware: Hardware
    behaviour: Agents
    hands: Hands
    image: str = ""
    cmdline: str | None = field(default=None, repr=False)


def hardware(machine: Machine, world: World, *, medium: bool) -> Hardware:
    """What a ramdisk finds there; `medium`: it did not come by the first NIC."""
    macs = tuple(nic.mac for nic in machine.nics)
    return Hardware(
        cpus=machine.cpus,
        memory=machine.memory,
        arch=str(machine.arch),
        uefi=machine.firmware is not Firmware.BIOS,
        macs=macs,
        disks=tuple(_disk(machine, each, world) for each in machine.disks),
        serial=str(machine.uuid),
        boot_mac=macs[0] if macs and not medium else "",
    )


def record(machine: Machine, world: World) -> Record:
    """What the probe finds there. No firmware takes memory, and networks give no addresses."""
    return Record(
        version=1,
        uuid=str(machine.uuid),
        serial=machine.serial_number,
        product="simulated machine",
        manufacturer="nospoon",
        arch=str(machine.arch),
        firmware="bios" if machine.firmware is Firmware.BIOS else "uefi",
        secure_boot=machine.firmware is Firmware.UEFI_SECURE,
        tpm=machine.tpm,
        cpus=machine.cpus,
        memory=machine.memory,
        memory_mapped=machine.memory,
        memory_usable=machine.memory,
        disks=tuple(
            _found(number, machine, disk, world) for number, disk in enumerate(machine.disks)
        ),
        nics=tuple(
            FoundNic(f"eth{number}", nic.mac, nic.model, link=True)
            for number, nic in enumerate(machine.nics)
        ),
        kernel="simulated",
        uptime=0.0,
        cmdline="",
    )


def _found(number: int, machine: Machine, disk: MachineDisk, world: World) -> FoundDisk:
    seen = _disk(machine, disk, world)
    return FoundDisk(f"disk{number}", seen.size, seen.serial, seen.bus, seen.rotational)


def _disk(machine: Machine, disk: MachineDisk, world: World) -> Disk:
    volume = world.volume_of(machine.uuid, disk.volume)
    size = volume.size if volume is not None else 0
    return Disk(size, disk.serial, disk.bus, rotational=disk.rotation_rate > 1)


class Guests(Protocol):
    """Runs them."""

    def booted(self, guest: Guest) -> None:
        """Its ramdisk is up."""

    def ended(self, machine: UUID) -> None:
        """The machine is off, or boots again; nothing if nothing ran."""
