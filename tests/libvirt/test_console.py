"""The console of a real machine, of which there is one."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from nospoon.errors import Conflict
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import PowerCommand
from nospoon.providers.base import ConsoleStream, MachineDriver
from nospoon.providers.libvirt import LibvirtConnection
from nospoon.testing.conformance import Rack

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
        cancelled += opening.cancel()
        if not opening.cancelled() and opening.done():
            await opening.result().close()
        async with asyncio.timeout(10):
            console = await attached(machines, rack.uuid)
        await console.close()
    assert cancelled
