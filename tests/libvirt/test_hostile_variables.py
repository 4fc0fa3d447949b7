"""What a guest writes into its UEFI variables, which look like an image of QEMU's then."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import libvirt
import pytest

from nospoon.errors import ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.resources import Key, Kind, Machine, Observed, OwnerTag, Resource
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.testing.conformance import PLAN, Bench, Rack, make, rack_for
from nospoon.testing.libvirtd import OwnLibvirt

pytestmark = pytest.mark.libvirt
HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII8x")
"""Of qcow2, version 3 (QEMU, docs/interop/qcow2.txt)."""


def image_over(backing: Path) -> bytes:
    """A qcow2 image on top of that file, whose format it leaves open, so that it is looked at."""
    name = str(backing).encode()
    size = HEADER.size
    head = HEADER.pack(
        b"QFI\xfb", 3, size, len(name), 16, 1 << 20, 0, 1, 3 << 16, 1 << 16, 1, 0, 0, 0, 0, 0, 4,
        size,
    )  # fmt: skip
    return head + name


def write_over(file: Path, backing: Path) -> None:
    """As root of the guest does."""
    with file.open("r+b") as opened:
        opened.write(image_over(backing))


class Trap:
    """A FIFO that says whether a process opened it, and lets that go on at once: what has opened
    one to read waits until then.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.opened = path, False
        os.mkfifo(path)
        self._ended = Event()
        self._thread = Thread(target=self._look_on)
        self._thread.start()

    def _look_on(self) -> None:
        while not self._ended.wait(0.005):
            with suppress(OSError):  # ENXIO: no process reads
                os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
                self.opened = True

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    """Before what may open it, so that the end of that finds it open."""
    made = Trap(tmp_path / "fifo")
    yield made
    made.close()


async def made(bench: Bench, firmware: Firmware) -> Rack:
    """A machine with this firmware, which has started once and is off."""
    rack = rack_for(bench)
    shape = rack.machine.shape
    assert isinstance(shape, Machine)
    shape = replace(shape, firmware=firmware, disks=shape.disks[:1], nics=())
    rack = replace(rack, machine=replace(rack.machine, shape=shape))
    await make(bench, rack.pool, rack.blank, rack.machine)
    machines = bench.connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, PLAN)
    await machines.power(rack.uuid, PowerCommand.OFF, PLAN)
    return rack


def variables_of(connect: Any, rack: Rack) -> Path:
    root = ET.fromstring(connect.lookupByUUID(rack.uuid.bytes).XMLDesc(0))
    return Path(root.findtext("os/nvram") or "")


@pytest.mark.parametrize("firmware", [Firmware.UEFI, Firmware.UEFI_SECURE])
async def test_libvirt_opens_nothing_that_variables_name(
    trap: Trap, bench: Bench, own_libvirt: OwnLibvirt, firmware: Firmware
) -> None:
    rack = await made(bench, firmware)
    connect = libvirt.open(own_libvirt.uri)
    file = variables_of(connect, rack)
    write_over(file, trap.path)
    snapshots = bench.connection.machine_driver.snapshots
    assert snapshots is not None
    await snapshots.create(rack.uuid, "kept")
    pool = connect.storagePoolLookupByName(rack.pool.key.name)
    pool.refresh(0)
    connect.close()
    assert not trap.opened


async def test_a_file_beside_that_of_an_adopted_machine_is_not_looked_at(
    trap: Trap, connection: LibvirtConnection, own_libvirt: OwnLibvirt, tmp_path: Path
) -> None:
    """libvirt has those of all machines in one directory."""
    tmp_path.chmod(0o755)
    connect = libvirt.open(own_libvirt.uri)
    domain = connect.defineXML(
        f"<domain type='qemu'><name>theirs</name><uuid>{uuid4()}</uuid>"
        "<memory unit='MiB'>256</memory><os firmware='efi'><type machine='q35'>hvm</type>"
        f"<nvram>{tmp_path}/theirs.fd</nvram></os><features><acpi/></features></domain>"
    )
    domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
    domain.destroy()
    key, tag = Key(Kind.MACHINE, "here", "theirs"), OwnerTag("kit", uuid4(), token="t")
    (machine,) = [each.machine for each in await connection.adoptable() if each.name == "theirs"]
    machines = connection.machine_driver
    await machines.claim(Resource(key, machine), tag)
    hostile = tmp_path / "hostile.fd"
    hostile.write_bytes(image_over(trap.path))
    try:
        assert len(await machines.firmware_keys.key_databases(machine.uuid)) == 4
        write_over(tmp_path / "theirs.fd", trap.path)
        with pytest.raises(ProviderError, match="not a firmware volume"):
            await machines.firmware_keys.key_databases(machine.uuid)
    finally:
        await machines.release(Observed(key, machine, tag))
        domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)
        connect.close()
    assert not trap.opened
