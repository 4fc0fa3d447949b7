"""What happens to the servers of a project: what we do, and what others do and looks find out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from uuid import UUID

import structlog

from nospoon.errors import HostUnreachable
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.providers.feed import EventFeed
from nospoon.providers.openstack.around import Around
from nospoon.providers.openstack.console_records import ConsoleRecords
from nospoon.providers.openstack.looks import SOON, Looks
from nospoon.providers.openstack.roster import Roster, Server, is_building
from nospoon.runtime import clock
from nospoon.runtime.paced import paced

log = structlog.get_logger()
SELDOM = 20
"""Pauses from one look at all servers to the next, while nothing changes; see `SOON`."""
CHANGES = {
    PowerState.ON: MachineChange.STARTED,
    PowerState.OFF: MachineChange.SHUTDOWN,
    PowerState.FAILED: MachineChange.FAILED,
}


class Watched:
    """`serve`: is called when a watch begins, once there are nodes."""

    def __init__(
        self,
        around: Around,
        roster: Roster,
        consoles: ConsoleRecords,
        serve: Callable[[], object],
    ) -> None:
        self._around, self._roster, self._consoles = around, roster, consoles
        self._serve = serve
        self.looks = Looks(around, roster, self._hear)
        self._feed = EventFeed()
        self._known: dict[UUID, MachineEvent] = {}

    async def machines(self) -> Sequence[MachineEvent]:
        events = [
            each.event(MachineChange.OBSERVED)
            async for each in paced(await self._roster.servers())
            if not is_building(each) and self._around.at_home(each.machine)
        ]
        self._known |= {each.uuid: each for each in events}
        return events

    async def watch(self) -> AsyncIterator[MachineEvent]:
        self._serve()
        with self._feed.listen() as queue:
            looked = clock.monotonic()
            await self.looks.since(looked)
            for event in await self.machines():
                yield event
            away = False
            while True:
                looks = SOON if self.looks.is_restless else SELDOM
                left = looked + looks * self._around.pause - clock.monotonic()
                heard = await _next(queue, left)
                if heard is not None:
                    yield heard
                    continue
                before, looked = looked, clock.monotonic()
                try:
                    await self.looks.since(before)
                    await self._consoles.read_due(list(self._known.values()))
                except HostUnreachable as error:
                    name = self._around.api.name
                    log.warning("cloud does not answer", cloud=name, why=str(error))
                    for each in [] if away else list(self._known.values()):
                        yield replace(
                            each, change=MachineChange.UNREACHABLE, power=PowerState.UNKNOWN
                        )
                    away = True
                    continue
                if away:
                    away = False
                    for event in await self.machines():
                        yield event

    async def _hear(self, servers: Collection[Server], gone: Collection[UUID]) -> None:
        """What happened that we did not do."""
        async for each in paced(servers):
            before = self._known.get(each.machine)
            if each.task or is_building(each) or before is None or before.power is each.power:
                continue  # what is made here is published where it is made
            event = each.event(CHANGES.get(each.power, MachineChange.OBSERVED))
            if event.power is PowerState.ON:
                self._consoles.begins(each.machine)
            self.publish(event)
        for machine, known in list(self._known.items()) if gone else ():
            if known.smbios in gone:
                del self._known[machine]
                self._feed.publish(
                    replace(known, change=MachineChange.UNDEFINED, power=PowerState.ABSENT)
                )

    def publish(self, event: MachineEvent) -> None:
        self._known[event.uuid] = event
        self._feed.publish(event)

    def let_go(self, machine: UUID) -> None:
        """It is no node any more."""
        if self._known.pop(machine, None) is not None:
            gone = MachineEvent(machine, MachineChange.UNDEFINED, PowerState.ABSENT)
            self._feed.publish(gone)
        self._consoles.forget(machine)


async def _next(queue: asyncio.Queue[MachineEvent], seconds: float) -> MachineEvent | None:
    """None where there is none within these seconds, or none are left."""
    if seconds <= 0:
        return None
    try:
        async with asyncio.timeout(seconds):
            return await queue.get()
    except TimeoutError:
        return None
