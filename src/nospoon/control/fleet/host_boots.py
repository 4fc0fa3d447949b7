"""Notices that hosts have rebooted, for the BMCs of their machines.

A machine that is found off may have been stopped by its host, which shuts down or has done so. Its
host is asked which boot it is: the BMC learns it only from one that runs and does not shut down.
A remote host without `ssh`, where no commands can be run, is not asked.

A reboot also ends networks, their rules and DHCP servers, without which machines do not start. They
are started again before BMCs know of the reboot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import structlog

from nospoon.control.fleet.hosts import HostInUse, Hosts
from nospoon.errors import Gone, NospoonError
from nospoon.model.cluster import Host
from nospoon.model.machine import MachineChange, MachineEvent, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.providers.base import Driver
from nospoon.runtime import boots
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()
NOTIFY_AT_ONCE = 8
"""BMCs that are notified before others have their turn."""

Identity = tuple[str, ...]


class HostBoots:
    """`notify`: takes a machine and the id of the boot of its host; `is_new`: whether its BMC knows
    another boot. `drivers_of`: those of a host. One question to a host at a time is for all
    machines that wait for its answer.
    """

    def __init__(
        self,
        hosts: Hosts,
        tasks: Tasks,
        notify: Callable[[UUID, str], None],
        *,
        is_new: Callable[[UUID, str], bool],
        drivers_of: Callable[[Host], Mapping[Kind, Driver]],
    ) -> None:
        self._hosts, self._tasks, self._notify = hosts, tasks, notify
        self._is_new, self._drivers_of = is_new, drivers_of
        self._waiting: dict[Identity, set[UUID]] = {}
        self._asked: set[Identity] = set()
        self._begun = False

    def begin(self) -> None:
        """All BMCs are served: notify them from now on, beginning with what was noted before."""
        self._begun = True
        for machines in list(self._waiting.values()):
            self._ask(self._hosts.host_of(next(iter(machines))))

    def note(self, event: MachineEvent) -> None:
        """A machine that was looked at, or that is off now, waits for what its host says."""
        if event.change is not MachineChange.OBSERVED and event.power is not PowerState.OFF:
            return
        try:
            home = self._hosts.host_of(event.uuid)
        except Gone:
            return
        if not home.host.runs_commands:
            return
        self._waiting.setdefault(_identity(home.host), set()).add(event.uuid)
        if self._begun:
            self._ask(home)

    def _ask(self, home: HostInUse) -> None:
        identity = _identity(home.host)
        if identity not in self._asked:
            self._asked.add(identity)
            self._tasks.start(self._confirm(home), name=f"confirm the boot of {home.host.name}")

    async def _confirm(self, home: HostInUse) -> None:
        identity = _identity(home.host)
        try:
            while machines := self._waiting.pop(identity, None):
                boot = await _boot_of(home)
                if not boot:
                    log.info("host shuts down", host=home.host.name, machines=len(machines))
                    continue
                if await self._is_any_new(machines, boot):
                    await self._start_networks(self._hosts.making_networks(home.host))
                for number, machine in enumerate(machines, 1):
                    self._notify(machine, boot)
                    if not number % NOTIFY_AT_ONCE:
                        await asyncio.sleep(0)
        except NospoonError as error:  # it is asked again when its machines are seen again
            log.warning("boot of host not known", host=home.host.name, why=str(error))
        finally:
            self._asked.discard(identity)

    async def _is_any_new(self, machines: Iterable[UUID], boot: str) -> bool:
        async for machine in paced(machines):
            if self._is_new(machine, boot):
                return True
        return False

    async def _start_networks(self, host: Host) -> None:
        """What ended with the former boot, as it was tagged and defined there. What cannot be
        started keeps no BMC from hearing of the boot: not every machine needs it.
        """
        drivers = self._drivers_of(host)
        for kind in (each for each in (Kind.NETWORK, Kind.NETBOOT) if each in drivers):
            try:
                seen = await drivers[kind].observe(None)
            except NospoonError as error:
                log.warning("not looked at after the reboot", what=f"{kind}s", why=str(error))
                continue
            for found in seen:
                if found.fault and found.key.place == host.name:
                    await _start(drivers[kind], found)


async def _start(driver: Driver, found: Observed) -> None:
    try:
        await driver.create(Resource(found.key, found.shape), found.tag)
    except NospoonError as error:
        log.warning("not started after the reboot", what=str(found.key), why=str(error))
    else:
        log.info("started after the reboot", what=str(found.key))


def _identity(host: Host) -> Identity:
    return host.name, *host.place


async def _boot_of(home: HostInUse) -> str:
    """No shutdown ends simulated machines one by one: the end of this process does."""
    if not home.host.declares.is_real:
        return boots.here()
    return await boots.steady(home.runner)
