"""Hosts in use: one connection each, their events, and power over the machines on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import structlog

from nospoon.errors import Gone, NospoonError, ProviderError
from nospoon.model.boot import BootPlan
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host
from nospoon.model.declared import CallLimits, Console, ConsoleLog, Uuids
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.machine import MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.secure_boot import KeyDatabase
from nospoon.providers.base import Connection, DiskSnapshots, Driver, Drives, MachineDriver
from nospoon.runtime import clock
from nospoon.runtime.paced import paced
from nospoon.runtime.runner import Runner, runner_for
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()

Connect = Callable[[Host], Connection]
OnEvent = Callable[[MachineEvent], None]
Port = TypeVar("Port")
RECONNECT_DELAY = 2.0
"""Seconds before a watch that broke is begun again."""
EVENTS_AT_ONCE = 8
"""Taken before others have their turn."""
MOST_UNSETTLED = 20_000
"""Machines that are no node's whose last events are kept: of an `up` that makes them. A host may
report any others.
"""
IDLE = 300.0
"""Seconds for which a connection is kept that no machine needs: the next plan may want it."""


@dataclass(slots=True)
class HostInUse:
    """A host that some cluster uses, under the name that the cluster gives it.

    `asked`: when someone last wanted it, on the monotonic clock. `held`: operations that change
    something there now.
    """

    host: Host
    connection: Connection
    runner: Runner
    capabilities: Capabilities | None = None
    watch: asyncio.Task[None] | None = None
    asked: float = 0.0
    held: int = 0


class Hosts:
    """Knows which connection serves which machine, and its last known state."""

    def __init__(self, connect: Connect, tasks: Tasks, on_event: OnEvent, *, sockets: Path) -> None:
        self._connect, self._tasks, self._on_event = connect, tasks, on_event
        self._sockets = sockets
        self._in_use: dict[tuple[str, ...], HostInUse] = {}
        self._homes: dict[UUID, HostInUse] = {}
        self._last: dict[UUID, MachineEvent] = {}
        self._unsettled: dict[UUID, None] = {}
        """Those of them that have no home, the oldest first."""
        self._watchers: dict[UUID, asyncio.Event] = {}

    def use(self, host: Host) -> HostInUse:
        """The host's connection; opened when it is first used, watched when a machine is there."""
        identity = (host.name, *host.place)
        found = self._in_use.get(identity)
        if found is None:
            found = HostInUse(host, self._connect(host), runner_for(host.ssh, self._sockets))
            self._in_use[identity] = found
        elif found.host != host:
            found.host = host
            found.connection.configure(host)
        found.asked = clock.monotonic()
        return found

    @contextmanager
    def held(self, drivers: Mapping[tuple[str, Kind], Driver]) -> Iterator[None]:
        """The connections of these drivers, by the names of their hosts, stay open meanwhile."""
        held = self._used_by(drivers)
        for each in held:
            each.held += 1
        try:
            yield
        finally:
            for each in held:
                each.held -= 1
                each.asked = clock.monotonic()

    def _used_by(self, drivers: Mapping[tuple[str, Kind], Driver]) -> Sequence[HostInUse]:
        names = {name for name, _ in drivers}
        wanted = {id(each) for each in drivers.values()}
        return [
            used
            for used in self._in_use.values()
            if used.host.name in names and not wanted.isdisjoint(_drivers(used))
        ]

    def calls(self, drivers: Mapping[tuple[str, Kind], Driver]) -> Mapping[str, CallLimits]:
        """How the hosts of these drivers may be called, by their names."""
        used = (each.host for each in self._used_by(drivers))
        return {each.name: each.declares.calls for each in used}

    def ways(self, drivers: Mapping[tuple[str, Kind], Driver]) -> frozenset[str]:
        """The `ssh` settings of the hosts of these drivers."""
        return frozenset(each.host.ssh for each in self._used_by(drivers))

    async def capabilities(self, host: Host) -> Capabilities:
        """What the host can do; asked once, and again after it was away or while KVM is untried."""
        used = self.use(host)
        known = used.capabilities
        if known is None or used.watch is None or not known.accelerator:
            await used.connection.check()
            known = used.capabilities = await used.connection.capabilities()
        return known

    async def facts(self, host: Host, *, pools: str, named: Collection[str] = ()) -> HostFacts:
        """What the plan must know of a host. `pools`: directory there in which pools are made;
        `named`: of others, that are looked for.
        """
        await self.capabilities(host)
        return await self.use(host).connection.survey(pools, named)

    async def adoptable(self, host: Host) -> tuple[Adoptable, ...] | None:
        """Machines of others there, and those of them that are nodes; None: there can be none."""
        return await self.use(host).connection.adoptable()

    def identity(self, host: Host) -> str:
        """The machine behind a host, as far as someone asked it; else the host's own name."""
        return self.identity_at((host.name, *host.place))

    def identity_at(self, place: tuple[str, ...]) -> str:
        """The same by the host's name and where it leads; from any thread."""
        used = self._in_use.get(place)
        can = used.capabilities if used is not None else None
        return (can.identity if can is not None else "") or place[0]

    def names_of(self, identities: Collection[str]) -> frozenset[str]:
        """Of hosts that lead to one of these machines; one that was not asked has its name's."""
        asked = (place[0] for place in self._in_use if self.identity_at(place) in identities)
        return frozenset((*identities, *asked))

    def settle(self, machine: UUID, host: Host) -> None:
        """From now on this machine is on that host."""
        home = self._homes[machine] = self.use(host)
        self._unsettled.pop(machine, None)
        if home.watch is None:
            home.watch = self._tasks.start(self._watch(home), name=f"watch {host.name}")

    def is_at(self, host: Host, machine: UUID) -> bool:
        """Whether a machine lives on this host, with this login at it."""
        home = self._homes.get(machine)
        return home is not None and (home.host.name, home.host.place) == (host.name, host.place)

    def forget(self, machine: UUID) -> None:
        self._homes.pop(machine, None)
        self._last.pop(machine, None)
        self._unsettled.pop(machine, None)
        self._watchers.pop(machine, None)

    def driver(self, machine: UUID) -> MachineDriver:
        """The driver of a machine's host. Raises `Gone` when no one knows the machine."""
        home = self._homes.get(machine)
        if home is None:
            raise Gone(f"machine {machine} is on no host that is in use")
        return home.connection.machine_driver

    def console(self, machine: UUID) -> MachineDriver:
        """As `driver`, where there are consoles. Raises `Gone` where there are none."""
        host = self.host_of(machine).host
        if host.declares.console is Console.NONE:
            raise Gone(f"machines of host {host.name} have no serial console")
        return self.driver(machine)

    def host_of(self, machine: UUID) -> HostInUse:
        home = self._homes.get(machine)
        if home is None:
            raise Gone(f"machine {machine} is on no host that is in use")
        return home

    def making_networks(self, host: Host) -> Host:
        """The host in use that makes the networks of this one's machines; itself if none does."""
        if not host.declares.shares_networks:
            return host
        used = (each.host for each in self._in_use.values())
        wanted = (host.network_place, host.ssh)
        there = (each for each in used if (each.name, each.ssh) == wanted)
        return next((each for each in there if each.declares.has_bridges), host)

    def logged_at(self, ssh: str) -> set[UUID]:
        """The machines that live where this `ssh` setting leads, and whose consoles are logged
        there.
        """
        return {
            machine
            for machine, home in self._homes.items()
            if home.host.ssh == ssh and _logs(home)  # most of many are simulated, and on no `ssh`
        }

    def is_logged_at(self, ssh: str, machine: UUID) -> bool:
        """Whether this machine is one of them."""
        home = self._homes.get(machine)
        return home is not None and home.host.ssh == ssh and _logs(home)

    def is_on(self, ssh: str, machine: UUID) -> bool:
        """Whether this machine does."""
        home = self._homes.get(machine)
        return home is not None and home.host.ssh == ssh

    def ssh_of(self, machine: UUID) -> str | None:
        """The `ssh` setting of a machine's host, None where no one knows the machine."""
        home = self._homes.get(machine)
        return home.host.ssh if home is not None else None

    def last(self, machine: UUID) -> MachineEvent | None:
        """The last event of a machine: its state without asking anybody."""
        return self._last.get(machine)

    async def until(self, machine: UUID, power: PowerState) -> None:
        """Return when the machine is observed in this state; bound it with a timeout."""
        changed = self._watchers.setdefault(machine, asyncio.Event())
        while (last := self._last.get(machine)) is None or last.power is not power:
            changed.clear()
            await changed.wait()

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        return await self.driver(machine).power(machine, command, boot)

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        order = self.driver(machine).boot_order
        if order is not None:  # else its boot script asks
            await order.set_boot(machine, boot)

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        keys = self.driver(machine).firmware_keys
        return await keys.key_databases(machine) if keys is not None else ()

    def drives(self, machine: UUID) -> Drives:
        """The CD drive of a machine. Raises `ProviderError` where it can have none."""
        return self._port(machine, self.driver(machine).drives, "take no virtual media")

    def snapshots(self, machine: UUID) -> DiskSnapshots:
        """Of a machine. Raises `ProviderError` where there are none."""
        return self._port(machine, self.driver(machine).snapshots, "have no snapshots")

    def _port(self, machine: UUID, port: Port | None, lack: str) -> Port:
        if port is None:
            name = self.host_of(machine).host.name
            raise ProviderError(
                f"machines of host {name} {lack}",
                hint="Use a host whose connection has it: `nospoon host list`.",
            )
        return port

    async def look(self, host: Host, machines: Collection[UUID] | None = None) -> None:
        """Look at machines of a host now, in one call; used where some were just made. None: all;
        the others are watched.
        """
        used = self.use(host)
        async for event in paced(await used.connection.machine_driver.machines()):
            if machines is None or event.uuid in machines:
                self._take(event, used)

    async def look_at_all(self, *, patience: float) -> None:
        """Look at every host in use; one that does not answer in time is told of by its watch."""
        in_use = list(self._in_use.values())
        await asyncio.gather(*(self._look_patiently(each, patience) for each in in_use))

    async def _look_patiently(self, used: HostInUse, patience: float) -> None:
        try:
            async with asyncio.timeout(patience):
                async for event in paced(await used.connection.machine_driver.machines()):
                    self._take(event, used)
        except (TimeoutError, NospoonError) as error:
            log.warning("host does not answer yet", host=used.host.name, why=str(error))

    async def close(self) -> None:
        for used in self._in_use.values():
            await used.connection.close()

    async def tidy(self) -> None:
        """For ever, close connections that no machine needs and no one asked for of late."""
        while True:
            await asyncio.sleep(IDLE / 5)
            await self.close_idle(IDLE)

    async def close_idle(self, seconds: float) -> None:
        """Close the connections that no machine and no operation needs, and that no one asked for
        in so many seconds.
        """
        since = clock.monotonic() - seconds
        needed = {id(home) for home in self._homes.values()}
        async for identity, used in paced(list(self._in_use.items())):
            if id(used) not in needed and not used.held and used.asked <= since:
                del self._in_use[identity]
                log.info("connection closed: no machine needs it", host=used.host.name)
                await _let_go(used)

    async def _watch(self, used: HostInUse) -> None:
        while True:
            try:
                seen = 0
                async for event in used.connection.machine_driver.watch():
                    self._take(event, used)
                    seen += 1
                    if not seen % EVENTS_AT_ONCE:
                        await asyncio.sleep(0)
            except NospoonError as error:
                log.warning("watch broke", host=used.host.name, error=str(error))
                used.capabilities = None
            await asyncio.sleep(RECONNECT_DELAY)

    def _take(self, event: MachineEvent, used: HostInUse) -> None:
        """Of a machine that is on another host, nothing that this one says counts; nor by which
        UUID its guest knows it, where nospoon chose that: boot scripts are given for it.
        """
        if self._homes.get(event.uuid) not in (used, None):
            return
        if used.host.declares.uuids is Uuids.CHOSEN and event.smbios is not None:
            event = replace(event, smbios=None)
        self._last[event.uuid] = event
        if event.uuid not in self._homes:
            self._keep_unsettled(event.uuid)
        if event.uuid in self._watchers:
            self._watchers[event.uuid].set()
        self._on_event(event)

    def _keep_unsettled(self, machine: UUID) -> None:
        self._unsettled.pop(machine, None)
        self._unsettled[machine] = None
        if len(self._unsettled) > MOST_UNSETTLED:
            oldest = next(iter(self._unsettled))
            del self._unsettled[oldest], self._last[oldest]


def _logs(home: HostInUse) -> bool:
    return home.host.declares.console_log is ConsoleLog.HOST


def _drivers(used: HostInUse) -> Iterator[int]:
    return (id(each) for each in used.connection.drivers.values())


async def _let_go(used: HostInUse) -> None:
    if used.watch is not None:
        used.watch.cancel()
        await asyncio.wait([used.watch])
    try:
        await used.connection.close()
    except NospoonError as error:
        log.warning("connection did not close", host=used.host.name, why=str(error))
