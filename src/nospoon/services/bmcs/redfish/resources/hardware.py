"""A system's parts: processors, memory, storage, and secure boot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nospoon.model.cluster import Arch
from nospoon.services.bmcs.redfish.messages.bodies import OK, ref, resource

if TYPE_CHECKING:
    from nospoon.model.resources.machines import MachineDisk
    from nospoon.services.bmcs.served import Served

MIB = 1 << 20
CONTROLLER = "0"
RAID_TYPES = ("RAID0", "RAID1", "RAID5", "RAID6", "RAID10")
PROTOCOLS = {"sata": "SATA", "scsi": "SAS", "virtio": "PCIe", "usb": "USB"}
ARCHITECTURES = {Arch.X86_64: ("x86", "x86-64"), Arch.AARCH64: ("ARM", "ARM-A64")}


def _system(served: Served) -> str:
    return f"Systems/{served.bmc.uuid}"


def _drives(served: Served) -> str:
    return f"Chassis/{served.bmc.uuid}/Drives"


def processors(served: Served) -> list[str]:
    """One socket; the machine's CPUs are its cores."""
    del served
    return ["CPU0"]


def processor(served: Served, member: str) -> dict[str, object] | None:
    """Processor."""
    if member not in processors(served):
        return None
    architecture, instructions = ARCHITECTURES[served.config.machine.arch]
    cpus = served.config.machine.cpus
    return {
        **resource("Processor", f"{_system(served)}/Processors/{member}", member, member),
        "ProcessorType": "CPU",
        "ProcessorArchitecture": architecture,
        "InstructionSet": instructions,
        **_maker(served),
        "Socket": member,
        "TotalCores": cpus,
        "TotalThreads": cpus,
        "Status": OK,
    }


def memories(served: Served) -> list[str]:
    """One module with all of it."""
    del served
    return ["DIMM0"]


def memory(served: Served, member: str) -> dict[str, object] | None:
    """Memory."""
    if member not in memories(served):
        return None
    device = {"MemoryDeviceType": "DDR4"} if served.config.machine.has_firmware else {}
    return {
        **resource("Memory", f"{_system(served)}/Memory/{member}", member, member),
        "MemoryType": "DRAM",
        **device,
        "CapacityMiB": served.config.machine.memory // MIB,
        **_maker(served),
        "Status": OK,
    }


def storages(served: Served) -> list[str]:
    """One subsystem, where there is a disk."""
    return [CONTROLLER] if served.config.machine.disks else []


def drives(served: Served) -> list[str]:
    """By their place in the machine."""
    return [str(index) for index in range(len(served.config.machine.disks))]


def storage(served: Served, member: str) -> dict[str, object] | None:
    """Storage: the disks, and the volume that each of them is."""
    if member not in storages(served):
        return None
    path = f"{_system(served)}/Storage/{member}"
    return {
        **resource("Storage", path, member, "Storage"),
        "Drives": [ref(f"{_drives(served)}/{index}") for index in drives(served)],
        "Drives@odata.count": len(served.config.machine.disks),
        "Volumes": ref(f"{path}/Volumes"),
        "Controllers": ref(f"{path}/Controllers"),
        "Status": OK,
    }


def controllers(served: Served) -> list[str]:
    """One for all disks."""
    return storages(served)


def controller(served: Served, member: str) -> dict[str, object] | None:
    """StorageController: every disk is a volume, and clients make further ones."""
    if member not in storages(served):
        return None
    path = f"{_system(served)}/Storage/{CONTROLLER}/Controllers/{member}"
    machine = served.config.machine
    buses = sorted({PROTOCOLS[disk.bus] for disk in machine.disks})
    return {
        **resource("StorageController", path, member, "Storage Controller"),
        **_maker(served),
        **({"SupportedDeviceProtocols": buses} if machine.has_firmware else {}),
        **({"SupportedRAIDTypes": list(RAID_TYPES)} if machine.takes_volumes else {}),
        "Status": OK,
    }


def drive(served: Served, member: str) -> dict[str, object] | None:
    """Drive: a disk by its place."""
    if member not in drives(served):
        return None
    index, path = int(member), f"{_system(served)}/Storage/{CONTROLLER}"
    disk = served.config.machine.disks[index]
    return {
        **resource("Drive", f"{_drives(served)}/{member}", member, disk.volume),
        "CapacityBytes": size_of(served, index),
        **(_disk(disk) if served.config.machine.has_firmware else {"Model": disk.file_system}),
        "FailurePredicted": False,
        "Status": OK,
        "Links": {"Volumes": [ref(f"{path}/Volumes/{member}")]},
    }


def _maker(served: Served) -> dict[str, object]:
    """Manufacturer of what QEMU emulates: a container has its host's own."""
    return {"Manufacturer": "QEMU"} if served.config.machine.has_firmware else {}


def _disk(disk: MachineDisk) -> dict[str, object]:
    """Drive of a machine that has a bus."""
    return {
        "Protocol": PROTOCOLS[disk.bus],
        **_medium(disk.rotation_rate),
        "BlockSizeBytes": 512,
        "SerialNumber": disk.serial,
        "Manufacturer": "QEMU",
        "Model": "QEMU HARDDISK",
    }


def _medium(rate: int) -> dict[str, object]:
    """Drive, MediaType and RotationSpeedRPM; one that tells its guest nothing counts as SSD."""
    return {"MediaType": "HDD", "RotationSpeedRPM": rate} if rate > 1 else {"MediaType": "SSD"}


def size_of(served: Served, index: int) -> int | None:
    sizes = served.bmc.disk_sizes
    return sizes[index] if index < len(sizes) else None
