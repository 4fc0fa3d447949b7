"""Holds what a machine was declared to be against what the probe found on it.

PURE. Each field gives a `Finding`, the good ones too, so that a report can show that it looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nospoon.model.cluster import Firmware
from nospoon.model.resources.machines import Machine, MachineDisk
from nospoon.probe.record import FoundDisk, FoundNic, Record

MIB = 1 << 20
FIRMWARE_TAKES = 48 * MIB
"""What firmware keeps of the memory for itself: OVMF about 10 MiB, with secure boot and SMM more,
video and ACPI tables besides. Measured: 0.5 MiB with SeaBIOS, 6 MiB with OVMF.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One field of one machine: as declared, as found, and whether that is right."""

    field: str
    declared: str
    found: str
    ok: bool


def compare(machine: Machine, sizes: Mapping[str, int], found: Record) -> tuple[Finding, ...]:
    """Every field held against the record. `sizes`: bytes of each of the machine's volumes."""
    scalars = tuple(
        Finding(name, declared, seen, declared == seen)
        for name, of_machine, of_record in _SCALARS
        for declared, seen in [(of_machine(machine), of_record(found))]
        if declared  # what is not declared is its cloud's choice
    )
    return (
        *scalars,
        _memory(machine, found),
        *_disks(machine, sizes, found),
        *_nics(machine, found),
        *_ipv6(machine, found),
    )


_SCALARS: tuple[tuple[str, Callable[[Machine], str], Callable[[Record], str]], ...] = (
    ("uuid", lambda m: str(m.uuid), lambda r: r.uuid.lower()),
    ("serial", lambda m: m.serial_number, lambda r: r.serial),
    ("arch", lambda m: str(m.arch), lambda r: r.arch),
    (
        "firmware",
        lambda m: "bios" if m.firmware is Firmware.BIOS else "uefi",
        lambda r: r.firmware,
    ),
    (
        "secure boot",
        lambda m: _yes(yes=m.firmware is Firmware.UEFI_SECURE),
        lambda r: _yes(yes=r.secure_boot),
    ),
    ("tpm", lambda m: _yes(yes=m.tpm), lambda r: _yes(yes=r.tpm)),
    ("cpus", lambda m: str(m.cpus), lambda r: str(r.cpus)),
)


def _yes(*, yes: bool) -> str:
    return "yes" if yes else "no"


def _memory(machine: Machine, found: Record) -> Finding:
    """SMBIOS tells the exact size, if it is there; the memory map bears it out but for what the
    firmware took. Both must fit: a balloon or a hole would show in the second only.
    """
    exact = found.memory in (0, machine.memory)
    mapped = found.memory_mapped
    # without a memory map (ARM) the probe tells what Linux has left, and Linux takes for itself
    share = 64 if mapped > found.memory_usable else 16
    least = machine.memory - FIRMWARE_TAKES - machine.memory // share
    ok = exact and least <= mapped <= machine.memory
    seen = found.memory if found.memory and found.memory != machine.memory else mapped
    return Finding("memory", _mib(machine.memory), _mib(machine.memory if ok else seen), ok)


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB" if size % MIB == 0 else f"{size / MIB:.1f} MiB"


def _disks(machine: Machine, sizes: Mapping[str, int], found: Record) -> tuple[Finding, ...]:
    """Declared disks are looked for by serial, those without in their order; a disk that is not
    declared is a finding too.
    """
    by_serial = {disk.serial: disk for disk in found.disks}
    known = {disk.serial for disk in machine.disks if disk.serial}
    others = [disk for disk in found.disks if disk.serial not in known]
    declared = [
        _disk(
            number,
            disk,
            sizes.get(disk.volume, 0) or disk.size,
            by_serial.get(disk.serial) if disk.serial else (others.pop(0) if others else None),
        )
        for number, disk in enumerate(machine.disks)
    ]
    strange = [
        Finding(f"disk {disk.name}", "none", _disk_text(disk.size, disk.bus, disk.serial), ok=False)
        for disk in others
    ]
    return (*declared, *strange)


def _disk(number: int, disk: MachineDisk, size: int, found: FoundDisk | None) -> Finding:
    """Whether it rotates counts where the guest is told."""
    told = bool(disk.rotation_rate)
    rotational = disk.rotation_rate > 1 if told else None
    declared = _disk_text(size, disk.bus, disk.serial, rotational)
    seen = "missing"
    if found is not None:
        serial = found.serial if disk.serial else ""
        seen = _disk_text(found.size, found.bus, serial, found.rotational if told else None)
    return Finding(f"disk {number}", declared, seen, declared == seen)


def _disk_text(size: int, bus: str, serial: str, rotational: bool | None = None) -> str:  # noqa: FBT001
    words = {None: "", True: ", rotational", False: ", not rotational"}
    return f"{size} bytes, {bus}, serial {serial or 'none'}{words[rotational]}"


_MODEL_OF = {
    "virtio_net": "virtio",
    "e1000": "e1000",
    "e1000e": "e1000e",
    "8139cp": "rtl8139",
    "pcnet32": "pcnet",
    "vmxnet3": "vmxnet3",
    "ne2k-pci": "ne2k_pci",
}
"""Linux's driver -> QEMU's name of the NIC that it drives."""


def _nics(machine: Machine, found: Record) -> tuple[Finding, ...]:
    """Declared NICs are looked for by MAC; one that no one declared is a finding too."""
    seen = {nic.mac.lower(): _nic_text(nic) for nic in found.nics}
    wanted = {nic.mac.lower(): f"{nic.mac.lower()}, {nic.model}" for nic in machine.nics}
    declared = [
        Finding(f"nic {number}", text, seen.get(mac, "missing"), ok=seen.get(mac) == text)
        for number, (mac, text) in enumerate(wanted.items())
    ]
    strange = [
        Finding(f"nic {nic.name}", "none", _nic_text(nic), ok=False)
        for nic in found.nics
        if nic.mac.lower() not in wanted
    ]
    return (*declared, *strange)


def _ipv6(machine: Machine, found: Record) -> Iterator[Finding]:
    """On a network with IPv6 a guest has an address, its own or one that it was given."""
    if machine.ipv6:
        addresses = [address for nic in found.nics for address in nic.ipv6]
        ok = bool(addresses)
        yield Finding("ipv6", "an address", ", ".join(addresses) or "none", ok=ok)


def _nic_text(nic: FoundNic) -> str:
    return f"{nic.mac.lower()}, {_MODEL_OF.get(nic.driver, nic.driver)}"
