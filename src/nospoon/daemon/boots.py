"""What each machine boots now, by its BMC; a machine that our image booted goes on to its disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import structlog

from nospoon.control.fleet.hosts import Hosts
from nospoon.errors import NospoonError
from nospoon.model.boot import NO_OVERRIDE, BootDevice, BootPlan, next_boot
from nospoon.model.machine import PowerCommand
from nospoon.model.resources.machines import Machine
from nospoon.runtime.tasks import Tasks
from nospoon.services.bmcs.service import BmcService

log = structlog.get_logger()
DISK_ALONE = BootPlan((BootDevice.DISK,), (BootDevice.DISK,))


@dataclass(frozen=True, slots=True)
class Boots:
    """Of all machines of a daemon."""

    bmcs: BmcService
    hosts: Hosts
    tasks: Tasks
    _leaving: set[UUID] = field(default_factory=set)

    def plan_of(self, machine: Machine) -> BootPlan:
        served = self.bmcs.status(machine.uuid)
        if served is None:
            return next_boot(machine.boot_order, NO_OVERRIDE)
        return served.aggregate.boot

    def start_disk(self, uuid: UUID) -> None:
        """A machine that boots by our image goes on to its disk, which that cannot boot."""
        if uuid not in self._leaving:
            self._leaving.add(uuid)
            self.tasks.start(self._starting_disk(uuid), name=f"start the disk of machine {uuid}")

    async def _starting_disk(self, uuid: UUID) -> None:
        try:
            await self.hosts.power(uuid, PowerCommand.RESET, DISK_ALONE)
        except NospoonError as error:
            log.warning("a machine does not start its disk", uuid=str(uuid), why=str(error))
        finally:
            self._leaving.discard(uuid)

    def http_uri_of(self, uuid: UUID) -> str:
        """The URI that a machine boots now, "" when it does not boot by HTTP."""
        served = self.bmcs.status(uuid)
        return served.aggregate.http_boot if served is not None else ""
