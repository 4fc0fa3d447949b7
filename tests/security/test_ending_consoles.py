"""Consoles whose hosts take their time: when they are opened, and left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest

from nospoon.errors import Conflict
from nospoon.providers.base import ConsoleStream
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import MOST_READERS, ConsoleService

COUNT = 3


class Stuck:
    """The consoles of machines whose guests do not read: libvirt takes 20 s to leave one."""

    def __init__(self) -> None:
        self.closing, self.all_closing = 0, asyncio.Event()

    async def console(self, _machine: UUID) -> ConsoleStream:
        return cast("ConsoleStream", self)

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def close(self) -> None:
        self.closing += 1
        if self.closing == COUNT:
            self.all_closing.set()
        await self.all_closing.wait()


async def test_stuck_consoles_are_closed_side_by_side(tmp_path: Path) -> None:
    stuck = Stuck()
    service = ConsoleService(lambda _: stuck, Records(tmp_path))
    for _ in range(COUNT):
        await service.attach(uuid4())
    async with asyncio.timeout(20):
        await service.close()
    assert stuck.closing == COUNT


class Slow:
    """Consoles of a host that takes its time: `gate` lets them be opened, and closed."""

    def __init__(self) -> None:
        self.gate, self.open = asyncio.Event(), 0

    async def console(self, _machine: UUID) -> ConsoleStream:
        await self.gate.wait()
        assert not self.open, "libvirt refuses a second one"
        self.open += 1
        return cast("ConsoleStream", self)

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def close(self) -> None:
        await self.gate.wait()
        self.open -= 1


async def test_who_opens_a_slow_console_again_and_again_does_not_fill_the_memory(
    tmp_path: Path,
) -> None:
    """Each activation of serial over LAN, with a deactivation before the next, waited in a task."""
    slow, machine = Slow(), uuid4()
    service = ConsoleService(lambda _: slow, Records(tmp_path))
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(service.attach(machine)) for _ in range(MOST_READERS)]
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await service.attach(machine)
        slow.gate.set()
    assert all(each.done() for each in waiting)
    await service.close()


async def test_a_console_is_opened_again_when_it_is_closed(tmp_path: Path) -> None:
    """Who attached while the last one left was told that it is in use."""
    slow, machine = Slow(), uuid4()
    slow.gate.set()
    service = ConsoleService(lambda _: slow, Records(tmp_path))
    attached = await service.attach(machine)
    slow.gate.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(attached.close())
        await asyncio.sleep(0)
        group.create_task(service.attach(machine))
        await asyncio.sleep(0)
        slow.gate.set()
    assert slow.open == 1
    await service.close()
