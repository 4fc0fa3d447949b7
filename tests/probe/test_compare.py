"""Declared against found: every difference shows, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nospoon.model.cluster import Firmware
from nospoon.model.resources.machines import MachineDisk, MachineNic
from nospoon.probe.compare import Finding, compare
from nospoon.probe.record import Record, decode
from nospoon.testing.probed import FOUND, MACHINE, SIZES, body


def found(**changes: Any) -> Record:
    record = decode(body(**changes))
    assert record is not None
    return record


def wrong(**changes: Any) -> list[Finding]:
    return [one for one in compare(MACHINE, SIZES, found(**changes)) if not one.ok]


def test_a_machine_as_declared_has_only_good_findings() -> None:
    findings = compare(MACHINE, SIZES, found())
    assert [one.field for one in findings if not one.ok] == []
    assert [one.field for one in findings] == [
        *("uuid", "serial", "arch", "firmware", "secure boot", "tpm", "cpus", "memory"),
        *("disk 0", "nic 0"),
    ]


DISK, NIC = FOUND["disks"][0], FOUND["nics"][0]


@pytest.mark.parametrize(
    ("change", "field", "declared", "seen"),
    [
        ({"uuid": "0" * 8}, "uuid", str(MACHINE.uuid), "0" * 8),
        ({"serial": ""}, "serial", MACHINE.serial_number, ""),
        ({"arch": "aarch64"}, "arch", "x86_64", "aarch64"),
        ({"firmware": "uefi"}, "firmware", "bios", "uefi"),
        ({"secure_boot": True}, "secure boot", "no", "yes"),
        ({"tpm": True}, "tpm", "no", "yes"),
        ({"cpus": 4}, "cpus", "2", "4"),
        ({"memory": 512 << 20}, "memory", "256 MiB", "512 MiB"),
        ({"memory_mapped": 100 << 20}, "memory", "256 MiB", "100 MiB"),
        ({"disks": []}, "disk 0", "1073741824 bytes, virtio, serial SER1", "missing"),
        (
            {"disks": [{**DISK, "size": 2 << 30}]},
            "disk 0",
            "1073741824 bytes, virtio, serial SER1",
            "2147483648 bytes, virtio, serial SER1",
        ),
        (
            {"disks": [{**DISK, "bus": "sata"}]},
            "disk 0",
            "1073741824 bytes, virtio, serial SER1",
            "1073741824 bytes, sata, serial SER1",
        ),
        (
            {"disks": [DISK, {**DISK, "name": "vdb", "serial": ""}]},
            "disk vdb",
            "none",
            "1073741824 bytes, virtio, serial none",
        ),
        ({"nics": []}, "nic 0", "02:00:00:00:00:01, virtio", "missing"),
        (
            {"nics": [{**NIC, "driver": "e1000"}]},
            "nic 0",
            "02:00:00:00:00:01, virtio",
            "02:00:00:00:00:01, e1000",
        ),
        (
            {"nics": [NIC, {**NIC, "name": "eth1", "mac": "02:00:00:00:00:99"}]},
            "nic eth1",
            "none",
            "02:00:00:00:00:99, virtio",
        ),
    ],
)
def test_one_difference_gives_one_finding(
    change: dict[str, Any], field: str, declared: str, seen: str
) -> None:
    assert wrong(**change) == [Finding(field, declared, seen, ok=False)]


@pytest.mark.parametrize("mapped", [256 << 20, 250 << 20, 220 << 20])
def test_what_firmware_keeps_for_itself_is_no_difference(mapped: int) -> None:
    assert wrong(memory_mapped=mapped) == []


def test_without_a_memory_map_linux_may_have_taken_its_share() -> None:
    four = replace(MACHINE, memory=4 << 30)
    left = (4 << 30) - (200 << 20)
    seen = found(memory=4 << 30, memory_mapped=left, memory_usable=left)
    assert [one.field for one in compare(four, SIZES, seen) if not one.ok] == []
    mapped = found(memory=4 << 30, memory_mapped=left, memory_usable=left - 1)
    assert [one.field for one in compare(four, SIZES, mapped) if not one.ok] == ["memory"]


def test_without_smbios_the_memory_map_decides() -> None:
    assert wrong(memory=0) == []
    assert [one.field for one in wrong(memory=0, memory_mapped=128 << 20)] == ["memory"]


def test_disks_are_told_apart_by_serial_not_by_order() -> None:
    second = MachineDisk(volume="v1", bus="virtio", serial="SER2")
    machine = replace(MACHINE, disks=(second, *MACHINE.disks))
    disks = [DISK, {**DISK, "name": "vdb", "serial": "SER2", "size": 5 << 30}]
    findings = compare(machine, {**SIZES, "v1": 5 << 30}, found(disks=disks))
    assert all(one.ok for one in findings)


@pytest.mark.parametrize(
    ("rate", "rotational", "good"),
    [
        (7200, True, True),
        (7200, False, False),
        (7200, None, False),
        (1, False, True),
        (1, True, False),
        (0, True, True),
        (0, None, True),
    ],
)
def test_a_disk_that_tells_whether_it_rotates_is_held_to_it(
    rate: int,
    rotational: bool | None,  # noqa: FBT001
    good: bool,  # noqa: FBT001
) -> None:
    machine = replace(MACHINE, disks=(replace(MACHINE.disks[0], rotation_rate=rate),))
    findings = compare(machine, SIZES, found(disks=[{**DISK, "rotational": rotational}]))
    assert [one.field for one in findings if not one.ok] == ([] if good else ["disk 0"])


def test_what_a_cloud_chooses_is_not_compared() -> None:
    disks = (MachineDisk("m0-0", "virtio", serial="", size=1 << 30),)
    machine = replace(MACHINE, disks=disks, flavor="metal.tiny")
    seen = found(serial="of the cloud", disks=[{**DISK, "serial": "QM00005"}])
    assert [one for one in compare(machine, {}, seen) if not one.ok] == []
    second = found(disks=[DISK, {**DISK, "name": "vdb", "serial": ""}])
    (one,) = [one for one in compare(machine, {}, second) if not one.ok]
    assert (one.field, one.declared) == ("disk vdb", "none")


def test_mac_addresses_are_compared_without_case() -> None:
    machine = replace(
        MACHINE, nics=(MachineNic(mac="02:AB:00:00:00:01", network="", model="virtio"),)
    )
    findings = compare(machine, SIZES, found(nics=[{**NIC, "mac": "02:ab:00:00:00:01"}]))
    assert all(one.ok for one in findings)


def test_secure_boot_is_declared_by_the_firmware() -> None:
    machine = replace(MACHINE, firmware=Firmware.UEFI_SECURE)
    good = compare(machine, SIZES, found(firmware="uefi", secure_boot=True))
    assert all(one.ok for one in good)
    bad = compare(machine, SIZES, found(firmware="uefi"))
    assert [one.field for one in bad if not one.ok] == ["secure boot"]
