"""A record as the probe printed it on a q35 machine of QEMU 7.2, and the machine it ran on."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic

MACHINE = Machine(
    uuid=UUID("11111111-2222-3333-4444-555555555555"),
    cpus=2,
    memory=256 << 20,
    arch=Arch.X86_64,
    firmware=Firmware.BIOS,
    tpm=False,
    disks=(MachineDisk(volume="v0", bus="virtio", serial="SER1"),),
    nics=(MachineNic(mac="02:00:00:00:00:01", network="br0", model="virtio"),),
    boot_order=(BootDevice.NETWORK,),
    boot=BootMethod.NATIVE,
)
SIZES = {"v0": 1 << 30}
FOUND: dict[str, Any] = {
    "version": 1,
    "uuid": "11111111-2222-3333-4444-555555555555",
    "serial": "NS111111112222",
    "product": "Standard PC (Q35 + ICH9, 2009)",
    "manufacturer": "QEMU",
    "arch": "x86_64",
    "firmware": "bios",
    "secure_boot": False,
    "tpm": False,
    "cpus": 2,
    "memory": 268435456,
    "memory_mapped": 267897856,
    "memory_usable": 213475328,
    "disks": [
        {"name": "vda", "size": 1073741824, "serial": "SER1", "bus": "virtio", "rotational": True}
    ],
    "nics": [
        {
            "name": "eth0",
            "mac": "02:00:00:00:00:01",
            "driver": "virtio_net",
            "link": True,
            "ipv6": [],
        },
    ],
    "kernel": "6.1.0-56-amd64",
    "uptime": 3.57,
    "cmdline": "console=ttyS0,115200 quiet panic=10 nospoon.after=poweroff",
}


def body(**changes: object) -> bytes:
    return json.dumps({**FOUND, **changes}).encode()
