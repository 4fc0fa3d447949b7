"""Media take a while to reach a host, of whose few threads power commands need some."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import cast
from uuid import UUID, uuid4

from nospoon.providers.base import Medium
from nospoon.providers.libvirt.hypervisor import SLOW_THREADS, Hypervisor
from nospoon.providers.libvirt.media import DomainDrives
from nospoon.providers.libvirt.roster import Roster


class Slow:
    """A host that copies until `door` is open."""

    def __init__(self) -> None:
        self.door = asyncio.Event()
        self.running = self.most = self.done = 0

    async def work(self, _: object, __: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.door.wait()
        self.running -= 1
        self.done += 1

    def named(self, machine: UUID) -> str:
        return str(machine)


async def test_media_of_many_machines_leave_threads_for_power() -> None:
    """Clients of four BMCs who inserted large media held up power commands for all on the host."""
    host = Slow()
    drives = DomainDrives(cast("Hypervisor", host), cast("Roster", host), defaultdict(asyncio.Lock))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(SLOW_THREADS):
            group.create_task(drives.insert(uuid4(), Medium("/m", "0" * 64)))
            group.create_task(drives.eject(uuid4()))
        await asyncio.sleep(0)
        host.door.set()
    assert (host.most, host.done) == (1, 2 * SLOW_THREADS)
