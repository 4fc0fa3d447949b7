"""What a guest writes into its UEFI variables, which look like an image of QEMU's then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4
from xml.etree import ElementTree as ET

import libvirt
import pytest
from tests.libvirt.trap import Trap, a_trap, image_over

from nospoon.errors import ProviderError
from nospoon.model.cluster import Firmware
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.testing.libvirtd import OwnLibvirt
from nospoon.testing.racks import PLAN, Bench, Rack, make, rack_for

pytestmark = pytest.mark.libvirt


def write_over(file: Path, backing: Path) -> None:
    """As root of the guest does."""
    with file.open("r+b") as opened:
        opened.write(image_over(backing))


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[Trap]:
    with a_trap(tmp_path) as made:
        yield made


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
