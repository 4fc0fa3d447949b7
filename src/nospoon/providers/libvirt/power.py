"""Power of libvirt domains: commands, and the order that running ones boot in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

import libvirt
import structlog

from nospoon.errors import ProviderError
from nospoon.model.boot import BootPlan
from nospoon.model.machine import MachineChange, Outcome, PowerCommand, PowerState
from nospoon.providers.libvirt.bindings import Connect, Domain
from nospoon.providers.libvirt.boots import Boots, Started
from nospoon.providers.libvirt.faults import OPERATION_INVALID
from nospoon.providers.libvirt.hypervisor import Hypervisor, ignoring
from nospoon.providers.libvirt.monitor import PAUSE_REASONS, run_state
from nospoon.providers.libvirt.presence import Presence
from nospoon.providers.libvirt.roster import Roster
from nospoon.providers.libvirt.states import POWER

log = structlog.get_logger()
TOLD_SECONDS = 2.0
"""The event of a stop takes milliseconds."""
RUNNING = frozenset({PowerState.ON, PowerState.FAILED})


def power_of(domain: Domain) -> tuple[PowerState, str]:
    """And why it failed."""
    state = domain.state()[0]
    if state == libvirt.VIR_DOMAIN_PAUSED:
        why = PAUSE_REASONS.get(run_state(domain), "")
        return (PowerState.FAILED if why else PowerState.ON), why
    return POWER.get(state, PowerState.UNKNOWN), ""


class DomainPower:
    """Of the machines of one host. `locks`: a machine's calls come one after the other."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        roster: Roster,
        presence: Presence,
        boots: Boots,
        locks: Mapping[UUID, asyncio.Lock],
    ) -> None:
        self._hypervisor, self._roster, self._presence = hypervisor, roster, presence
        self._boots, self._locks = boots, locks

    async def obey(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        await self._presence.ready()
        async with self._locks[machine]:
            if command is PowerCommand.ON:
                started = await self._boots.start_if_off(machine, boot)
                if started is not None:
                    return Outcome.CHANGED if started is Started.BOOTED else Outcome.CONTINUED
            power = await self._state(machine)
            on = power is PowerState.ON
            match command, on:
                case (PowerCommand.OFF | PowerCommand.SOFT, False) if power is PowerState.OFF:
                    return Outcome.UNCHANGED
                case (PowerCommand.OFF, _):
                    await self._switch_off(machine)
                case (PowerCommand.ON, True):
                    return await self._resume(machine)
                case (PowerCommand.CYCLE, _) | (PowerCommand.ON, False):
                    if power is not PowerState.OFF:
                        await self._stop(machine)
                    await self._boots.start(machine, boot)
                case (PowerCommand.RESET, False) if power is PowerState.FAILED:
                    await self._stop(machine)
                    await self._boots.start(machine, boot)
                case (PowerCommand.RESET, True):
                    await self._reset(machine, boot)
                case (PowerCommand.SOFT, True):
                    button = libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN
                    await self._do(machine, "stop", lambda d: d.shutdownFlags(button))
                case (PowerCommand.DIAG, True):
                    await self._do(machine, "interrupt", lambda domain: domain.injectNMI(0))
                case _:
                    raise ProviderError(
                        f"host {self._hypervisor.host}: machine {self._roster.named(machine)} is "
                        f"{power}: it cannot do {command}"
                    )
        return Outcome.CHANGED

    async def _state(self, machine: UUID) -> PowerState:
        def look(connect: Connect) -> PowerState:
            return power_of(self._roster.find(connect, machine))[0]

        return await self._hypervisor.ask(look, f"look at machine {machine}")

    async def _do(self, machine: UUID, verb: str, act: Callable[[Domain], object]) -> None:
        await self._hypervisor.work(
            lambda connect: act(self._roster.find(connect, machine)),
            f"{verb} machine {self._roster.named(machine)}",
        )

    async def _reset(self, machine: UUID, boot: BootPlan) -> None:
        """What a reset cannot bring about, a start does."""
        if await self._boots.needs_start(machine, boot):
            await self._stop(machine)
            await self._boots.start(machine, boot)
            return
        await self._tell(machine, boot)
        await self._do(machine, "reset", lambda domain: domain.reset(0))

    async def _switch_off(self, machine: UUID) -> None:
        """A libvirtd that was restarted may not tell of it (seen with 9.0): then we do."""
        with self._presence.feed.listen() as told:
            await self._stop(machine)
            try:
                async with asyncio.timeout(TOLD_SECONDS):
                    while (event := await told.get()).uuid != machine or event.power in RUNNING:
                        pass
            except TimeoutError:
                log.warning("a stop was not reported; going on", machine=str(machine))
                self._presence.publish(machine, MachineChange.STOPPED, PowerState.OFF)

    async def _stop(self, machine: UUID) -> None:
        def destroy(domain: Domain) -> None:
            with ignoring(OPERATION_INVALID):  # it is off already
                domain.destroy()

        await self._do(machine, "stop", destroy)

    async def _resume(self, machine: UUID) -> Outcome:
        """Running is what ON asks for; one that another paused continues."""

        def resume(connect: Connect) -> Outcome:
            domain = self._roster.find(connect, machine)
            if domain.state()[0] != libvirt.VIR_DOMAIN_PAUSED:
                return Outcome.UNCHANGED
            domain.resume()
            return Outcome.CONTINUED

        named = self._roster.named(machine)
        return await self._hypervisor.work(resume, f"start machine {named}")

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        await self._presence.ready()
        async with self._locks[machine]:
            if await self._state(machine) is not PowerState.OFF:
                await self._tell(machine, boot)

    async def _tell(self, machine: UUID, boot: BootPlan) -> None:
        if not self._boots.by_script(machine):
            await self._boots.tell(machine, boot)
