"""The console of a real machine, of which there is one."""

from __future__ import annotations

import asyncio
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import libvirt
import pytest

from nospoon.errors import Conflict, ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import PowerCommand
from nospoon.providers.base import ConsoleStream, MachineDriver
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.providers.libvirt.console import same_run
from nospoon.testing.libvirtd import OwnLibvirt
from nospoon.testing.racks import Rack

pytestmark = [pytest.mark.libvirt, pytest.mark.boots]

DISK = BootPlan(now=(BootDevice.DISK,), after=(BootDevice.DISK,))


async def attached(machines: MachineDriver, machine: UUID) -> ConsoleStream:
    """Once nobody else is."""
    while True:
        try:
            return await machines.console(machine)
        except Conflict:
            await asyncio.sleep(0.05)


async def test_who_is_cancelled_while_it_opens_leaves_it_to_others(
    rack: Rack, connection: LibvirtConnection
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, DISK)
    cancelled = 0
    for milliseconds in (0, 1, 2, 4, 8, 16):
        opening = asyncio.create_task(machines.console(rack.uuid))  # noqa: TID251  (to be cancelled)
        await asyncio.sleep(milliseconds / 1000)
        opening.cancel()
        try:
            await (await opening).close()
        except asyncio.CancelledError:
            cancelled += 1
        async with asyncio.timeout(60):
            console = await attached(machines, rack.uuid)
        await console.close()
    assert cancelled, "each was open before it was cancelled"


ROUNDS, MANY = 10, 64


def terminal_of(uri: str, machine: UUID) -> str:
    """The pseudo-terminal that QEMU holds for the serial port of a machine that runs."""
    with libvirt.open(uri) as connect:
        described = connect.lookupByUUID(machine.bytes).XMLDesc(0)
    source = ET.fromstring(described).find("devices/serial/source")
    assert source is not None
    return source.get("path", "")


@contextmanager
def taken(path: str) -> Iterator[int]:
    """A stranger's pseudo-terminal of the same name: its other end. The kernel gives the lowest
    number that is free; somebody else may be quicker.
    """
    ends: list[int] = []
    try:
        while len(ends) < MANY and path not in [os.ttyname(end) for end in ends[1::2]]:
            ends += os.openpty()
        yield ends[-2]
    finally:
        for end in ends:
            os.close(end)


async def test_whoever_takes_the_terminal_of_a_machine_that_stopped_is_not_listened_to(
    rack: Rack, connection: LibvirtConnection, own_libvirt: OwnLibvirt
) -> None:
    machines = connection.machine_driver
    for _ in range(ROUNDS):  # in some of them libvirt holds it for one that runs still
        await machines.power(rack.uuid, PowerCommand.ON, DISK)
        path = terminal_of(own_libvirt.uri, rack.uuid)
        console = await attached(machines, rack.uuid)
        async with asyncio.TaskGroup() as group:
            group.create_task(machines.power(rack.uuid, PowerCommand.OFF, DISK))
            while await console.read():
                pass
            await console.close()
            with taken(path), pytest.raises(ProviderError):
                await machines.console(rack.uuid)


async def test_a_console_is_of_the_run_of_the_machine_for_which_it_was_opened(
    rack: Rack, connection: LibvirtConnection, own_libvirt: OwnLibvirt
) -> None:
    machines = connection.machine_driver
    await machines.power(rack.uuid, PowerCommand.ON, DISK)
    with libvirt.open(own_libvirt.uri) as connect:
        domain = connect.lookupByUUID(rack.uuid.bytes)
        run = domain.ID()
        same_run(domain, run)
        await machines.power(rack.uuid, PowerCommand.OFF, DISK)
        with pytest.raises(ProviderError, match="the machine stopped"):
            same_run(domain, run)
        await machines.power(rack.uuid, PowerCommand.ON, DISK)
        with pytest.raises(ProviderError, match="was restarted"):
            same_run(connect.lookupByUUID(rack.uuid.bytes), run)
