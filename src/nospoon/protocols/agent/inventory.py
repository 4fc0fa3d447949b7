"""What an agent finds of its machine: the inventory, as ironic-python-agent's hardware managers
give it, and Ironic's inspection hooks read it.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk; `size` in bytes."""

    size: int
    serial: str
    bus: str = "virtio"
    rotational: bool = False


@dataclass(frozen=True, slots=True)
class Hardware:
    """A machine's. `memory` in bytes; `arch` by Linux's name. It booted from the first NIC that
    `boot_mac` names, "" for none.
    """

    cpus: int
    memory: int
    arch: str
    uefi: bool
    macs: tuple[str, ...]
    disks: tuple[Disk, ...] = ()
    serial: str = ""
    boot_mac: str = ""


def report(hardware: Hardware) -> Json:
    """What is sent to `continue_inspection`."""
    disks = [_disk(index, disk) for index, disk in enumerate(hardware.disks)]
    return {
        "inventory": {
            "interfaces": [_interface(index, mac) for index, mac in enumerate(hardware.macs)],
            "cpu": _cpu(hardware),
            "disks": disks,
            "memory": {"total": hardware.memory, "physical_mb": hardware.memory // MIB},
            "bmc_address": None,
            "bmc_v6address": None,
            "system_vendor": {
                "product_name": "simulated machine",
                "serial_number": hardware.serial,
                "manufacturer": "nospoon",
            },
            "boot": {
                "current_boot_mode": "uefi" if hardware.uefi else "bios",
                "pxe_interface": hardware.boot_mac or None,
            },
            "hostname": "localhost",
        },
        "root_disk": disks[0] if disks else None,
        "boot_interface": hardware.boot_mac or None,
        "configuration": {"collectors": ["default"], "managers": [{"name": "generic"}]},
        "error": None,
    }


def _interface(index: int, mac: str) -> Json:
    return {
        "name": f"eth{index}",
        "mac_address": mac,
        "ipv4_address": None,
        "ipv6_address": None,
        "has_carrier": True,
        "lldp": None,
        "vendor": None,
        "product": None,
        "client_id": None,
        "biosdevname": None,
    }


def _cpu(hardware: Hardware) -> Json:
    return {
        "model_name": "simulated",
        "frequency": "2000.0",
        "count": hardware.cpus,
        "architecture": hardware.arch,
        "flags": [],
        "socket_count": 1,
    }


def _disk(index: int, disk: Disk) -> Json:
    letter = chr(ord("a") + index)
    return {
        "name": f"/dev/vd{letter}" if disk.bus == "virtio" else f"/dev/sd{letter}",
        "model": "simulated",
        "size": disk.size,
        "rotational": disk.rotational,
        "wwn": None,
        "wwn_with_extension": None,
        "wwn_vendor_extension": None,
        "serial": disk.serial,
        "vendor": "nospoon",
        "hctl": None,
        "by_path": None,
    }
