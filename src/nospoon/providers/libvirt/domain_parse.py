"""libvirt domains as machines: XML to shape, so that what someone edited shows as a difference.

Parsing never fails for a domain that libvirt accepts: a value that we have no word for comes out
as text that equals nothing we would write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from uuid import UUID
from xml.etree import ElementTree as ET

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Switch
from nospoon.model.mac import is_mac
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.providers.libvirt.domain_xml import CLEAN_TRAFFIC
from nospoon.providers.libvirt.elements import attribute_of, text_of
from nospoon.providers.libvirt.owner import Owner
from nospoon.providers.libvirt.storage_xml import ADDED, BOOT_ISO, EARLIER_DISK, SEED, disk_name

UNITS = {"b": 1, "bytes": 1, "KiB": 1 << 10, "k": 1 << 10, "MiB": 1 << 20, "M": 1 << 20,
         "GiB": 1 << 30, "G": 1 << 30, "TiB": 1 << 40, "T": 1 << 40}  # fmt: skip


BOOT_CLASSES = {
    "hd": BootDevice.DISK, "network": BootDevice.NETWORK, "cdrom": BootDevice.CDROM,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bootable:
    """A device that firmware can boot: its class, QEMU's id of it (live XML only), its place."""

    device: BootDevice
    alias: str
    place: int | None


def parse_domain(root: ET.Element, owner: Owner, *, pool_path: str, boot_iso: str) -> Machine:
    """The shape of a domain of ours. `boot_iso`: path of the ISO that it should have now."""
    return Machine(
        uuid=UUID(text_of(root, "uuid")),
        cpus=_cpus(root),
        memory=_memory(root),
        arch=Arch(attribute_of(root, "os/type", "arch", Arch.X86_64)),
        firmware=parse_firmware(root),
        tpm=root.find("devices/tpm") is not None,
        disks=tuple(_disks(root, owner.pool, pool_path)),
        nics=tuple(nics_of(root)),
        boot_order=boot_order(root, owner),
        boot=_boot(root, boot_iso),
        ipv6=_looks_for_ipv6(root),
        adopted=text_of(root, "name") if owner.adopted else "",
        kind=owner.kind,
        seed=_seed(root, owner.name),
    )


def _seed(root: ET.Element, node: str) -> str:
    """Digest of what cloud-init reads in it, by the name of the file; "" where it has none."""
    found = (_seed_in(disk) for disk in root.iterfind("devices/disk"))
    return next((each["digest"] for each in found if each and each["node"] == node), "")


def is_seed(disk: ET.Element) -> bool:
    """Whether it is the CD drive with what cloud-init reads, which is no BMC's."""
    return _seed_in(disk) is not None


def _seed_in(disk: ET.Element) -> re.Match[str] | None:
    return SEED.match(PurePosixPath(attribute_of(disk, "source", "file")).name)


def unlinked(root: ET.Element) -> Iterator[ET.Element]:
    """The NICs whose link is down: their guests see no carrier."""
    for nic in root.iterfind("devices/interface"):
        if attribute_of(nic, "link", "state") == "down":
            yield nic


def _looks_for_ipv6(root: ET.Element) -> bool:
    told = {each.get("name"): each.text for each in root.iterfind("sysinfo[@type='fwcfg']/entry")}
    uefi = parse_firmware(root) is not Firmware.BIOS
    return uefi and told.get("opt/org.tianocore/IPv6Support") != "no"


def _cpus(root: ET.Element) -> int:
    """What the guest starts with: `current` where it is less than the most that it may get."""
    vcpu = root.find("vcpu")
    if vcpu is None:
        return 1
    return int(vcpu.get("current") or vcpu.text or 1)


def _memory(root: ET.Element) -> int:
    unit = attribute_of(root, "memory", "unit", "KiB")
    return int(text_of(root, "memory", "0")) * UNITS.get(unit, 1 << 10)


def parse_firmware(root: ET.Element) -> Firmware:
    """`firmware='efi'` and its features, or a loader that someone named by hand."""
    loader = root.find("os/loader")
    uefi = attribute_of(root, "os", "firmware") == "efi" or (
        loader is not None and loader.get("type") == "pflash"
    )
    if not uefi:
        return Firmware.BIOS
    features = {
        each.get("name"): each.get("enabled") for each in root.iterfind("os/firmware/feature")
    }
    asked = features.get("secure-boot") == "yes"
    return Firmware.UEFI_SECURE if asked else Firmware.UEFI


def _disks(root: ET.Element, pool: str, pool_path: str) -> Iterator[MachineDisk]:
    for disk in root.iterfind("devices/disk"):
        if disk.get("device", "disk") == "disk" and not is_added(disk):
            yield MachineDisk(
                volume=_volume(disk, pool, pool_path),
                bus=attribute_of(disk, "target", "bus"),
                serial=text_of(disk, "serial"),
                cache=attribute_of(disk, "driver", "cache", "default"),
                discard=attribute_of(disk, "driver", "discard", "default"),
                format=attribute_of(disk, "driver", "type", "raw"),
                rotation_rate=int(attribute_of(disk, "target", "rotation_rate", "0")),
            )


def is_added(disk: ET.Element) -> bool:
    """Whether a disk is none of the shape, but a volume that a BMC client made."""
    return ADDED.match(PurePosixPath(attribute_of(disk, "source", "file")).name) is not None


def _volume(disk: ET.Element, pool: str, pool_path: str) -> str:
    """Name of the volume in our pool, POOL/VOLUME of another one; a path elsewhere stays a path."""
    if theirs := attribute_of(disk, "source", "pool"):
        return f"{theirs}/{attribute_of(disk, 'source', 'volume')}"
    path = attribute_of(disk, "source", "file") or attribute_of(disk, "source", "dev")
    place = PurePosixPath(path)
    if str(place.parent) != pool_path:
        return path
    earlier = EARLIER_DISK.match(place.name)
    return disk_name(place.name, pool) or (earlier["name"] if earlier else path)


def nics_of(root: ET.Element) -> Iterator[MachineNic]:
    """Its interfaces, in their order."""
    for nic in root.iterfind("devices/interface"):
        sends_from, virtual_ips = _filter(nic)
        source = nic.find("source")
        bridge = "" if source is None else source.get("bridge") or source.get("network") or "?"
        mac = attribute_of(nic, "mac", "address").lower()
        yield MachineNic(
            mac=mac if is_mac(mac) else "",
            network=bridge,
            model=attribute_of(nic, "model", "type"),
            port=_port(attribute_of(nic, "target", "dev")),
            switch=_switch(nic),
            vlan=_access_vlan(nic),
            trunk=_trunk(nic),
            sends_from=sends_from,
            virtual_ips=virtual_ips,
        )


def _filter(nic: ET.Element) -> tuple[str | None, tuple[str, ...]]:
    """From which address it may send, and from which others; of a filter that we would not write,
    its name and parameters, and no others.
    """
    found = nic.find("filterref")
    if found is None:
        return None, ()
    told = [(each.get("name", ""), each.get("value", "")) for each in found.iterfind("parameter")]
    match found.get("filter", ""), told:
        case (str(name), []) if name == CLEAN_TRAFFIC:
            return "", ()
        case (str(name), [("IP", address), *others]) if name == CLEAN_TRAFFIC and all(
            what == "IP" and value for what, value in told
        ):
            return address, tuple(value for _, value in others)
        case (name, _):
            return f"{name}({', '.join(f'{what}={value}' for what, value in told)})", ()


def _switch(nic: ET.Element) -> Switch:
    ovs = attribute_of(nic, "virtualport", "type") == "openvswitch"
    return Switch.OVS if ovs else Switch.BRIDGE


def _access_vlan(nic: ET.Element) -> int | None:
    """The only one of an access port, or the native one of a trunk."""
    tags = list(nic.iterfind("vlan/tag"))
    untagged = tags if not _is_trunk(nic) else [tag for tag in tags if tag.get("nativeMode")]
    return int(untagged[0].get("id", "0")) if untagged else None


def _trunk(nic: ET.Element) -> tuple[int, ...]:
    """VLANs that are tagged: not the native one, nor 0, which stands for frames without a tag."""
    tags = nic.iterfind("vlan/tag") if _is_trunk(nic) else ()
    tagged = (int(tag.get("id", "0")) for tag in tags if not tag.get("nativeMode"))
    return tuple(sorted(filter(None, tagged)))


def _is_trunk(nic: ET.Element) -> bool:
    """libvirt takes several tags for a trunk, also where no one wrote so."""
    return attribute_of(nic, "vlan", "trunk") == "yes" or len(nic.findall("vlan/tag")) > 1


def _port(device: str) -> str:
    """A name that libvirt made up for one run of the machine is none of the shape."""
    return "" if device.startswith("vnet") else device


def bootables(root: ET.Element) -> list[Bootable]:
    """Every device that could be booted from, in the order of the XML."""
    disks = [
        Bootable(
            BootDevice.CDROM if disk.get("device") == "cdrom" else BootDevice.DISK,
            attribute_of(disk, "alias", "name"),
            _place(disk),
        )
        for disk in root.iterfind("devices/disk")
        if disk.get("device", "disk") in {"disk", "cdrom"} and not is_seed(disk)
    ]
    nics = [
        Bootable(BootDevice.NETWORK, attribute_of(nic, "alias", "name"), _place(nic))
        for nic in root.iterfind("devices/interface")
    ]
    return disks + nics


def _place(device: ET.Element) -> int | None:
    order = attribute_of(device, "boot", "order")
    return int(order) if order else None


def boot_order(root: ET.Element, owner: Owner) -> tuple[BootDevice, ...]:
    """The persistent order, by class of device. Our ISO, which is always first, is not in it.

    What was wanted is in the tag; it counts as long as the devices stand in that order.
    """
    found = bootables(root)
    placed = sorted((each.place, each.device) for each in found if each.place is not None)
    if owner.adopted:
        return tuple(dict.fromkeys(device for _, device in placed)) or _said_classes(root)
    order = tuple(dict.fromkeys(device for _, device in placed))
    present = {each.device for each in found}
    if has_boot_iso(root):
        order = tuple(device for device in order if device is not BootDevice.CDROM)
        present.discard(BootDevice.CDROM)
    wanted = tuple(device for device in owner.boot_order if device in present)
    return owner.boot_order if wanted == order else order


def own_order(root: ET.Element) -> list[Bootable]:
    """What a definition itself lets the machine boot. Written by class (formatdomain.html, "BIOS
    bootloader"; a disk where nothing is said), it means the first device of each class and no other
    (libvirt's qemuProcessPrepareDeviceBootorder).
    """
    found = bootables(root)
    placed = [(each.place, number) for number, each in enumerate(found) if each.place is not None]
    if placed:
        return [found[number] for _, number in sorted(placed)]
    of_each = ([each for each in found if each.device is kind][:1] for kind in _said_classes(root))
    return [device for first in of_each for device in first]


def _said_classes(root: ET.Element) -> tuple[BootDevice, ...]:
    said = (BOOT_CLASSES.get(each.get("dev", "")) for each in root.iterfind("os/boot"))
    return tuple(dict.fromkeys(each for each in said if each is not None)) or (BootDevice.DISK,)


def has_boot_iso(root: ET.Element) -> bool:
    """Whether it boots an ISO of ours, of today or an older one."""
    return BOOT_ISO.match(PurePosixPath(medium_of(root)).name) is not None


def medium_of(root: ET.Element) -> str:
    """Path of what is in the CD drive, "" when it is empty."""
    return next(
        (
            attribute_of(disk, "source", "file")
            for disk in root.iterfind("devices/disk")
            if disk.get("device") == "cdrom" and not is_seed(disk)
        ),
        "",
    )


def _boot(root: ET.Element, boot_iso: str) -> BootMethod:
    """By script with the ISO of today; one with an older ISO differs, and is brought up to it."""
    asks = bool(boot_iso) and medium_of(root) == boot_iso
    return BootMethod.SCRIPT if asks else BootMethod.NATIVE
