"""The power of servers: Nova starts and stops them, and shelves and rescues some.

https://docs.openstack.org/api-ref/compute/#servers-run-an-action-servers-action
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import structlog

from nospoon.errors import ProviderError
from nospoon.model.boot import BootDevice, BootPlan
from nospoon.model.machine import MachineChange, Outcome, PowerCommand, PowerState
from nospoon.providers.openstack.actions import POWER, STARTED_BY, Actions, Settled
from nospoon.providers.openstack.adopted import of_its_owner
from nospoon.providers.openstack.console_records import ConsoleRecords
from nospoon.providers.openstack.rescue import Rescue
from nospoon.providers.openstack.roster import Server
from nospoon.providers.openstack.snapshots import KEEP
from nospoon.providers.openstack.watched import Watched

log = structlog.get_logger()
STARTS = 3
"""Tries to start a server."""
DISK = BootDevice.DISK
BOOT_ADDRESS = "Give its host a `boot_address` in the file, where it asks what to boot"
BOOTING = {PowerCommand.ON, PowerCommand.CYCLE, PowerCommand.RESET}


class Power:
    def __init__(
        self, actions: Actions, rescue: Rescue, watched: Watched, consoles: ConsoleRecords
    ) -> None:
        self._actions, self._rescue = actions, rescue
        self._watched, self._consoles = watched, consoles

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """`boot` is not needed where a boot image asks for it: a server of others boots its disk,
        or is rescued with the boot image.
        """
        server, was_paused = await self._actions.going_on(machine)
        await self._read_before(server, command)
        on = server.power is PowerState.ON
        if server.shape.adopted:
            asks = _asks(server, command, boot)
            if server.shape.asks and (asks or server.is_rescued):
                return await self._by_rescue(server, command, asks=asks)
        match command, on:
            case (PowerCommand.ON, True) if was_paused:
                return Outcome.CONTINUED
            case (PowerCommand.OFF | PowerCommand.SOFT, _) if server.shape.shelved:
                await self.put_away(server)
                return Outcome.CHANGED if on else Outcome.UNCHANGED
            case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                return Outcome.UNCHANGED
            case (PowerCommand.ON | PowerCommand.CYCLE, False):
                await self.power_on(server)
            case (PowerCommand.OFF, True):
                await self.power_off(server)
            case (PowerCommand.SOFT, True):
                await self._actions.act(machine, {"os-stop": None})
            case (PowerCommand.CYCLE, True):
                await self.power_on(await self.power_off(server))
            case (PowerCommand.RESET, True):
                with self._consoles.renewed(machine):
                    await self._actions.act(machine, {"reboot": {"type": "HARD"}})
                    now = await self._actions.until(
                        machine, lambda each: each.status == "ACTIVE", POWER
                    )
                self._watched.publish(now.event(MachineChange.RESET))
            case (PowerCommand.DIAG, True):
                await self._actions.act(machine, {"trigger_crash_dump": None})
            case _:
                raise ProviderError(f"machine {machine} is off: it cannot do {command}")
        return Outcome.CHANGED

    async def _read_before(self, server: Server, command: PowerCommand) -> None:
        """Its console, but where a command ends with that, or it says no more."""
        ends_so, is_over = command is PowerCommand.OFF, self._consoles.is_over(server.machine)
        if not (ends_so if _is_on(server) else is_over):
            await self._consoles.read(server)

    async def put_away(self, server: Server) -> None:
        """Off, and shelved, which goes on when this returns: Nova copies its root. One whose guest
        powered itself off is shelved, too.
        """
        now = await self.power_off(server)
        if now.status not in STARTED_BY:
            await self._actions.act(server.machine, {"shelve": None})

    async def take_out(self, machine: UUID) -> bool:
        """Of a server that is shelved, on its host and off: Nova changes no other ones. Whether it
        was shelved.
        """
        server = await self._actions.until(machine, lambda _: True, KEEP)
        is_away = server.status in STARTED_BY
        if is_away:
            await self.power_off(await self.power_on(server))
        return is_away

    @asynccontextmanager
    async def rebuilding(self, machine: UUID) -> AsyncIterator[None]:
        """Nova makes its root again meanwhile, and starts and stops it."""
        await self.take_out(machine)
        self._consoles.begins(machine)
        yield
        made = await self._actions.must(machine)
        if made.shape.shelved:
            await self.put_away(made)

    @asynccontextmanager
    async def stopped(self, machine: UUID) -> AsyncIterator[None]:
        """It is off meanwhile, and afterwards; where that fails, as it was."""
        server = await self._actions.must(machine)
        was_on = server.power is PowerState.ON
        await self.take_out(machine)
        server = await self.power_off(await self._actions.must(machine))
        try:
            yield
        except ProviderError:
            if was_on:
                await self.power_on(server)
            raise

    async def _by_rescue(self, server: Server, command: PowerCommand, *, asks: bool) -> Outcome:
        """Of a server of others that boots our image, or does when it `asks` what to boot."""
        machine, on = server.machine, server.power is PowerState.ON
        match command, on:
            case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                return Outcome.UNCHANGED
            case (PowerCommand.OFF | PowerCommand.SOFT, True):
                await self.power_off(await self._rescue.leave(machine))
            case (PowerCommand.ON | PowerCommand.CYCLE, _) | (PowerCommand.RESET, True):
                self._consoles.begins(machine)
                by = self._rescue.enter if asks else self._rescue.leave
                change = MachineChange.RESET if on else MachineChange.STARTED
                made = await by(machine)
                self._consoles.has_begun(machine)
                self._watched.publish(made.event(change))
            case (PowerCommand.DIAG, True):
                await self._actions.act(machine, {"trigger_crash_dump": None})
            case _:
                raise ProviderError(f"machine {machine} is off: it cannot do {command}")
        return Outcome.CHANGED

    async def power_on(self, server: Server) -> Server:
        """A start that fails on its host leaves the server off without a word, such as where Nova
        gave the port of one's serial console to another that started meanwhile: it is begun again.
        """
        machine = server.machine
        self._consoles.begins(machine)
        for left in reversed(range(STARTS)):
            if server.task:
                server = await self._actions.afterwards(machine, lambda _: True, KEEP)
            pauses = KEEP if server.status in STARTED_BY else POWER
            start = {STARTED_BY.get(server.status, "os-start"): None}
            await self._actions.toward(machine, start, _is_on)
            is_on = Settled(lambda each: each.power is PowerState.ON)
            server = await self._actions.afterwards(machine, is_on, pauses)
            if server.power is PowerState.ON:
                self._consoles.has_begun(machine)
                self._watched.publish(server.event(MachineChange.STARTED))
                return server
            log.warning("a server did not start", server=str(server.id), tries_left=left)
        raise ProviderError(
            f"server {server.id} did not start: it is {server.status} again after {STARTS} tries",
            hint="Nova's log of its host says why.",
        )

    async def power_off(self, server: Server) -> Server:
        server = await self.stop(server)
        await self._consoles.read(server)
        return server

    async def stop(self, server: Server) -> Server:
        machine = server.machine
        if server.power is PowerState.ON:
            await self._actions.toward(machine, {"os-stop": None}, _is_off)
        if server.power is PowerState.ON or server.task:
            server = await self._actions.afterwards(machine, _is_off, POWER)
        self._watched.publish(server.event(MachineChange.STOPPED))
        return server


def _asks(server: Server, command: PowerCommand, boot: BootPlan) -> bool:
    """Whether one of others is to boot something else than its disk. Raises `ProviderError` where
    it cannot.
    """
    is_on = server.power is PowerState.ON
    boots = command in BOOTING and not (is_on and command is PowerCommand.ON)
    asks = boots and boot.now[:1] not in {(), (DISK,)}
    if asks and not server.shape.asks:
        raise of_its_owner(
            server.shape.adopted,
            f"Nova boots its disk, not {boot.now[0]}",
            f"{BOOT_ADDRESS}, or set its boot device to disk: `nospoon node boot NODE disk`.",
        )
    return asks


def _is_on(server: Server) -> bool:
    return server.power is PowerState.ON


def _is_off(server: Server) -> bool:
    return server.power is not PowerState.ON
