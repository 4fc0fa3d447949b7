"""Consoles whose hosts hang when the daemon ends: they are left side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

from nospoon.providers.base import ConsoleStream
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService

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
    async with asyncio.timeout(10):
        await service.close()
    assert stuck.closing == COUNT
