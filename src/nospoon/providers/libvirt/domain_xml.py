"""Machines as libvirt domains: shape to XML. `domain_parse` is the way back.

https://libvirt.org/formatdomain.html. Boot order is by device: the persistent order is the one in
the XML; what one boot follows instead is said to QEMU when it starts (`boot_order`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from string import ascii_lowercase
from xml.etree import ElementTree as ET

from nospoon.model.boot import BootDevice
from nospoon.model.cluster import Arch, Firmware, Switch
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.providers.libvirt.elements import element, leaf, written
from nospoon.providers.libvirt.ends import rendered_ends
from nospoon.providers.libvirt.owner import Owner, domain_name, owner_element
from nospoon.providers.libvirt.storage_xml import (
    disk_file,
    earlier_disk_file,
    nvram_path,
    seed_file,
)

MACHINE_TYPES = {Arch.X86_64: "q35", Arch.AARCH64: "virt"}
CDROM_BUS = {Arch.X86_64: "sata", Arch.AARCH64: "scsi"}
TPM_MODEL = {Arch.X86_64: "tpm-crb", Arch.AARCH64: "tpm-tis"}
DISK_PREFIX = {"virtio": "vd", "sata": "sd", "scsi": "sd", "usb": "sd"}
CLEAN_TRAFFIC = "clean-traffic"
"""A filter that libvirt comes with (https://libvirt.org/formatnwfilter.html): MAC, IPv4 and ARP of
a NIC are its own, and nothing else passes.
"""
SECURE_FEATURES = {Firmware.UEFI: "no", Firmware.UEFI_SECURE: "yes"}


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a machine is set up: its pool's directory, the record of its console, our ISO.

    `accelerator` is "kvm" or "tcg"; `boot_iso` and `medium`, which is in its drive, paths there.
    `earlier`: its volumes that lie in files named as earlier versions did; `nvram`: where its
    variables are while it runs with them there, "" for the usual place.
    """

    pool_path: str
    record: str
    accelerator: str = "tcg"
    boot_iso: str = ""
    medium: str = ""
    earlier: frozenset[str] = frozenset()
    nvram: str = ""


def render_domain(machine: Machine, owner: Owner, stage: Stage) -> str:
    """The XML of a domain."""
    kib = str(-(-machine.memory // 1024))
    return written(
        element(
            "domain",
            leaf("name", domain_name(owner.pool, owner.name)),
            leaf("uuid", str(machine.uuid)),
            element("metadata", owner_element(owner)),
            leaf("memory", kib, unit="KiB"),
            leaf("vcpu", str(machine.cpus)),
            _sysinfo(machine),
            _firmware_settings(machine),
            _os(machine, owner.name, stage),
            _features(machine),
            _cpu(machine.arch, stage),
            element("clock", offset="utc"),
            *rendered_ends(),
            element("devices", *_devices(machine, owner, stage)),
            type="kvm" if stage.accelerator == "kvm" else "qemu",
        )
    )


def _sysinfo(machine: Machine) -> ET.Element:
    entries = {
        "manufacturer": "nospoon",
        "product": "virtual bare metal",
        "serial": machine.serial_number,
        "uuid": str(machine.uuid),
    }
    system = element("system", *(leaf("entry", text, name=key) for key, text in entries.items()))
    return element("sysinfo", system, type="smbios")


def _firmware_settings(machine: Machine) -> ET.Element | None:
    """OVMF tries IPv6 for two minutes before it leaves the network for the disk; most of our
    networks have none (edk2, OvmfPkg/RUNTIME_CONFIG: opt/org.tianocore/IPv6Support).
    """
    if machine.firmware is Firmware.BIOS or machine.ipv6:
        return None
    entry = leaf("entry", "no", name="opt/org.tianocore/IPv6Support")
    return element("sysinfo", entry, type="fwcfg")


def _os(machine: Machine, node: str, stage: Stage) -> ET.Element:
    kind = leaf("type", "hvm", arch=machine.arch, machine=MACHINE_TYPES[machine.arch])
    smbios = element("smbios", mode="sysinfo")
    if machine.firmware is Firmware.BIOS:
        return element("os", kind, element("bios", useserial="yes"), smbios)
    secure = SECURE_FEATURES[machine.firmware]
    features = [element("feature", enabled=secure, name="secure-boot")]
    if machine.firmware is Firmware.UEFI_SECURE:
        features.append(element("feature", enabled="yes", name="enrolled-keys"))
    place = stage.nvram or nvram_path(stage.pool_path, node, machine.firmware)
    nvram = leaf("nvram", place)
    return element("os", kind, element("firmware", *features), nvram, smbios, firmware="efi")


def _features(machine: Machine) -> ET.Element:
    if machine.arch is Arch.AARCH64:
        return element("features", element("acpi"), element("gic", version="2"))
    secure = machine.firmware is Firmware.UEFI_SECURE
    smm = element("smm", state="on") if secure else None
    return element("features", element("acpi"), element("apic"), smm)


def _cpu(arch: Arch, stage: Stage) -> ET.Element:
    """Under TCG on ARM a fixed model: edk2 of 2022 stops on `max` with its 52-bit addresses."""
    if stage.accelerator == "kvm":
        return element("cpu", mode="host-passthrough")
    if arch is Arch.AARCH64:
        return element("cpu", leaf("model", "cortex-a72"), mode="custom", match="exact")
    return element("cpu", mode="maximum")


SEED_PLACE = 999
"""Of a seed in the boot order: nothing boots it."""


def _devices(machine: Machine, owner: Owner, stage: Stage) -> Iterator[ET.Element]:
    yield element("controller", type="usb", model="none")
    buses = {disk.bus for disk in machine.disks} | {CDROM_BUS[machine.arch]}
    if "scsi" in buses or machine.seed:
        yield element("controller", type="scsi", model="virtio-scsi")
    orders = boot_indices(machine)
    names = _target_names()
    for number, disk in enumerate(machine.disks):
        target = next_name(names, disk.bus)
        source = _source(disk, owner.pool, stage)
        yield _disk(disk, source, target, orders.get(("disk", number)))
    yield _cdrom(machine, stage, names, orders.get(("cdrom", 0)))
    if machine.seed:
        place = SEED_PLACE if machine.firmware is not Firmware.BIOS else None
        yield _seed(f"{stage.pool_path}/{seed_file(owner.name, machine.seed)}", names, place)
    for number, nic in enumerate(machine.nics):
        rom = machine.firmware is not Firmware.UEFI_SECURE and machine.arch is Arch.X86_64
        yield _nic(nic, orders.get(("nic", number)), rom=rom)
    yield element("serial", element("log", file=stage.record, append="on"), type="pty")
    yield element("console", type="pty")
    if machine.tpm:
        backend = element("backend", type="emulator", version="2.0")
        yield element("tpm", backend, model=TPM_MODEL[machine.arch])
    yield element("rng", leaf("backend", "/dev/urandom", model="random"), model="virtio")
    yield element("memballoon", model="none")


def boot_indices(machine: Machine) -> dict[tuple[str, int], int]:
    """(device class, number within it) -> place in the persistent order, from 1."""
    classes = {
        BootDevice.DISK: [("disk", number) for number in range(len(machine.disks))],
        BootDevice.NETWORK: [("nic", number) for number in range(len(machine.nics))],
        BootDevice.CDROM: [("cdrom", 0)],
        BootDevice.SETUP: [],
        BootDevice.HTTP: [],
    }
    order = list(machine.boot_order)
    if machine.asks:
        order = [BootDevice.CDROM, *(each for each in order if each is not BootDevice.CDROM)]
    devices = [device for each in order for device in classes[each]]
    return {device: place for place, device in enumerate(devices, 1)}


def _target_names() -> dict[str, Iterator[str]]:
    """Prefix -> its names vda, vdb … in turn."""
    return {prefix: map(prefix.__add__, ascii_lowercase) for prefix in ("vd", "sd")}


def next_name(names: dict[str, Iterator[str]], bus: str) -> str:
    """The next free target name of a bus. Raises StopIteration past 26 devices."""
    return next(names[DISK_PREFIX[bus]])


def _boot(place: int | None) -> ET.Element | None:
    return element("boot", order=str(place)) if place is not None else None


def _disk(disk: MachineDisk, source: ET.Element, target: str, place: int | None) -> ET.Element:
    rate = {"rotation_rate": str(disk.rotation_rate)} if disk.rotation_rate else {}
    return element(
        "disk",
        element("driver", name="qemu", type=disk.format, cache=disk.cache, discard=disk.discard),
        source,
        element("target", dev=target, bus=disk.bus, **rate),
        leaf("serial", disk.serial) if disk.serial else None,
        _boot(place),
        type="volume" if disk.existing else "file",
        device="disk",
    )


def _source(disk: MachineDisk, own_pool: str, stage: Stage) -> ET.Element:
    """Of an existing volume libvirt finds the place when the machine starts, whatever it is in."""
    if disk.existing:
        pool, _, volume = disk.volume.partition("/")
        return element("source", pool=pool, volume=volume)
    named = disk.volume in stage.earlier
    file = earlier_disk_file(disk.volume) if named else disk_file(own_pool, disk.volume)
    return element("source", file=f"{stage.pool_path}/{file}")


def _cdrom(
    machine: Machine, stage: Stage, names: dict[str, Iterator[str]], place: int | None
) -> ET.Element:
    bus = CDROM_BUS[machine.arch]
    medium = stage.boot_iso if machine.asks else stage.medium
    return element(
        "disk",
        element("driver", name="qemu", type="raw"),
        element("source", file=medium) if medium else None,
        element("target", dev=next_name(names, bus), bus=bus),
        element("readonly"),
        _boot(place),
        type="file",
        device="cdrom",
    )


def _seed(path: str, names: dict[str, Iterator[str]], place: int | None) -> ET.Element:
    """A CD drive of its own for what cloud-init reads: the other one is the BMC's. Debian's kernel
    for clouds has no driver of AHCI (CONFIG_SATA_AHCI), and one of virtio-scsi. It has a `place`
    behind all that boots: OVMF shows loaders the devices of the boot order alone
    (ConnectDevicesFromQemu, OvmfPkg/Library/QemuBootOrderLib).
    """
    bus = "scsi"
    return element(
        "disk",
        element("driver", name="qemu", type="raw"),
        element("source", file=path),
        element("target", dev=next_name(names, bus), bus=bus),
        element("readonly"),
        _boot(place),
        type="file",
        device="cdrom",
    )


def _nic(nic: MachineNic, place: int | None, *, rom: bool) -> ET.Element:
    """QEMU's NICs carry iPXE, unsigned. OVMF runs it all the same, for it trusts its host's ROMs;
    but no loader would get past it, so under secure boot the firmware's own PXE does the work, as
    it does on ARM, where they carry none.
    """
    return element(
        "interface",
        element("mac", address=nic.mac),
        element("source", bridge=nic.network) if nic.network else None,
        element("virtualport", type="openvswitch") if nic.switch is Switch.OVS else None,
        _vlan(nic),
        _filter(nic),
        element("target", dev=nic.port) if nic.port else None,
        element("model", type=nic.model),
        _boot(place),
        None if rom else element("rom", enabled="no"),
        type="bridge" if nic.network else "user",
    )


def _filter(nic: MachineNic) -> ET.Element | None:
    """Its MAC is libvirt's to fill in. Without an address libvirt learns the first that the guest
    uses.
    """
    if nic.sends_from is None:
        return None
    told = [element("parameter", name="IP", value=each) for each in nic.senders]
    return element("filterref", *told, filter=CLEAN_TRAFFIC)


def _vlan(nic: MachineNic) -> ET.Element | None:
    """formatdomain.html, "Setting VLAN tag": an access port, or a trunk with a native VLAN. Where
    there is none, VLAN 0 lets frames without a tag through (ovs-vswitchd.conf.db(5), trunks).
    """
    if not nic.trunk:
        return element("vlan", element("tag", id=str(nic.vlan))) if nic.vlan is not None else None
    tagged = [element("tag", id=str(each)) for each in nic.trunk]
    native = (
        element("tag", id=str(nic.vlan), nativeMode="untagged")
        if nic.vlan is not None
        else element("tag", id="0")
    )
    return element("vlan", native, *tagged, trunk="yes")
