"""Machines: containers with power, console and events."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Protocol
from uuid import UUID

import msgspec

from nospoon.errors import Gone, ProviderError
from nospoon.model.boot import BootPlan
from nospoon.model.machine import MachineChange, MachineEvent, Outcome, PowerCommand, PowerState
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.identity import pool_name
from nospoon.providers.base import ConsoleStream, OpenSeed
from nospoon.providers.containers import filters, links, scripts
from nospoon.providers.containers.host import ContainerHost
from nospoon.providers.containers.records import MACHINE, Record, Running, Seen, record
from nospoon.providers.containers.storage import Owned
from nospoon.providers.feed import EventFeed
from nospoon.runtime.clock import monotonic
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks

LOOKS_EVERY = 1.0
"""Seconds between two looks at what runs: liblxc's own events need a daemon for each directory."""
REST = 4.0
"""The same, as often as a look takes: of thousands of containers, a fifth of a processor."""


@dataclass(slots=True)
class _Known:
    """Containers as they were seen last; None before the first look, or while the host is away.
    `stopped`: those that were switched off, and are not seen to be off yet. `starting`: those that
    liblxc is starting, and that cannot be entered yet.
    """

    running: dict[UUID, Running | None] | None = None
    stopped: set[UUID] = field(default_factory=set)
    starting: set[UUID] = field(default_factory=set)


class Runtime(Protocol):
    """What starts and ends containers. `directory`: of a container on the host."""

    @property
    def host(self) -> ContainerHost: ...

    async def start(self, directory: str, machine: Machine, name: str, log: str) -> None:
        """On its root, after what one that was killed has left is removed. `name`: of the node;
        `log`: its console's. Raises `ProviderError` with the runtime's reason.
        """

    async def stop(self, directory: str, machine: Machine) -> None:
        """At once. One that does not run is no error; what it left is removed."""

    async def tend(self, directory: str) -> None:
        """One that runs without the process that starts it again when it reboots gets another."""

    async def shut_down(self, directory: str) -> None:
        """Ask its init, and do not wait."""

    async def console(self, directory: str) -> ConsoleStream:
        """Of one that runs."""


class MachineDriver(Owned):
    """`records`: directory on the host for logs of consoles."""

    boot_order = drives = snapshots = firmware_keys = adoption = None

    def __init__(
        self, runtime: Runtime, deployment: str, *, records: str, open_seed: OpenSeed
    ) -> None:
        super().__init__(Kind.MACHINE, runtime.host, deployment)
        self._runtime, self._records, self._open_seed = runtime, records, open_seed
        self._feed, self._known = EventFeed(), _Known()
        self._tasks = Tasks(f"containers {runtime.host.name}")
        self._locks: defaultdict[UUID, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._comparing = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        seen = await self.host.look()
        found = []
        async for directory in paced(seen.machines.values()):
            each = seen.records[f"{directory}{MACHINE}"]
            if each.machine is None or not self.is_managed(each, cluster):
                continue
            running = directory in seen.running
            live = seen.records.get(f"{directory}/live.json") if running else None
            observed = self.observed(each, each.machine)
            found.append(replace(observed, running=running, live=_differing(live, each.machine)))
        plugged = await links.seen(self.host.runner, found)
        return await filters.seen(self.host.runner, plugged)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        machine, name = resource.shape, resource.key.name
        assert isinstance(machine, Machine)
        seen = await self.host.look()
        directory = self._directory(seen, name, tag)
        before = seen.records.get(f"{self.host.relative(directory)}/machine.json")
        if before is None and await self._exists(directory):
            raise self.refuse(f"a container {PurePosixPath(directory).name}", directory)
        if before is not None and not self.same_owner(before, tag):
            raise self.refuse(f"a container {PurePosixPath(directory).name}", directory)
        if before is None and _is_named(seen, self.host.relative(directory)):
            raise self.refuse(f"a container {PurePosixPath(directory).name}", "another pool")
        async with self._locks[machine.uuid]:
            place = PurePosixPath(directory)
            work = directory if before is not None else f"{place.parent}/.making-{place.name}"
            if before is None:
                await self.host.sh(
                    'rm -rf "$1"; umask 077; mkdir -m 711 "$1"; mkdir "$1/rootfs"', work
                )
            if machine.seed:
                seed = await self._open_seed(machine.seed)
                await self.host.write(f"{work}/seed.json", msgspec.json.encode(seed.files))
            await self.host.write(f"{work}/machine.json", record(name, tag, machine))
            if before is None:
                await self.host.sh('mv "$1" "$2"', work, directory)
            if self.host.relative(directory) in seen.running:
                await links.plug(self.host.runner, machine)
        await self._look()

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        del observed
        await self.create(desired, tag)

    async def delete(self, observed: Observed) -> None:
        machine = observed.shape
        assert isinstance(machine, Machine)
        seen = await self.host.look()
        path = seen.machines.get(machine.uuid)
        if path is None:
            return
        each, directory = seen.records[f"{path}/machine.json"], self.host.path(path)
        if not self.same_owner(each, observed.tag):
            raise self.refuse(f"a container {observed.key.name}", directory)
        async with self._locks[machine.uuid]:
            await self._runtime.stop(directory, machine)
            await self.host.sh(scripts.REMOVE, directory)
        await self._look()

    def _directory(self, seen: Seen, name: str, tag: OwnerTag) -> str:
        """In its cluster's pool. Its name is that by which lxc-ls(1) lists it."""
        usual = pool_name(tag.cluster, tag.name)
        own = [(each.name, at) for at, each in seen.pools.items() if self.same_owner(each, tag)]
        if not own:
            raise ProviderError(
                f"host {self.host.name}: no pool {usual}", hint="Run `nospoon up` again."
            )
        pool, path = min(own, key=lambda each: (each[0] != usual, each))
        place = self.host.path(str(PurePosixPath(path).parent))
        return f"{place}/{pool.removeprefix('nospoon-')}-{name}"

    async def _exists(self, path: str) -> bool:
        return (await self.host.runner.run(["test", "-e", path], check=False)).status == 0

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """A container boots its root whatever `boot` says."""
        del boot
        async with self._locks[machine]:
            path, shape, name, running = await self._find(machine)
            directory = self.host.path(path)
            match command, running is not None:
                case (PowerCommand.ON, True) | (PowerCommand.OFF | PowerCommand.SOFT, False):
                    return Outcome.UNCHANGED
                case (PowerCommand.ON | PowerCommand.CYCLE, False):
                    await self._start(directory, shape, name)
                case (PowerCommand.OFF, True):
                    await self._stop(directory, shape)
                case (PowerCommand.CYCLE, True):
                    await self._stop(directory, shape)
                    await self._look()
                    await self._start(directory, shape, name)
                case (PowerCommand.RESET, True):
                    await self._reset(directory, shape, name)
                case (PowerCommand.SOFT, True):
                    await self._runtime.shut_down(directory)
                case _:
                    state = "off" if running is None else "a container"
                    raise ProviderError(
                        f"host {self.host.name}: machine {machine} is {state}: "
                        f"it cannot do {command}"
                    )
        await self._look()
        return Outcome.CHANGED

    async def _find(self, machine: UUID) -> tuple[str, Machine, str, Running | None]:
        """Its directory below that of pools, shape, node, and processes. Raises `Gone`."""
        seen = await self.host.look()
        path = seen.machines.get(machine)
        found = seen.records.get(f"{path}/machine.json")
        mine = found is not None and self.is_managed(found, None)
        if path is None or found is None or found.machine is None or not mine:
            raise Gone(f"host {self.host.name} has no machine {machine}")
        return path, found.machine, found.name, seen.running.get(path)

    async def _start(self, directory: str, machine: Machine, name: str) -> None:
        self._known.starting.add(machine.uuid)
        try:
            await self._runtime.start(directory, machine, name, self.console_record(machine.uuid))
        finally:
            self._known.starting.discard(machine.uuid)

    async def _stop(self, directory: str, machine: Machine) -> None:
        self._known.stopped.add(machine.uuid)
        await self._runtime.stop(directory, machine)

    async def _reset(self, directory: str, machine: Machine, name: str) -> None:
        """It is not seen to be off in between."""
        async with self._comparing:
            await self._stop(directory, machine)
            await self._start(directory, machine, name)
            known = self._known.running
            seen = await self.host.look()
            self._known.stopped.discard(machine.uuid)
            if known is not None:
                known[machine.uuid] = seen.running.get(self.host.relative(directory))
            self._publish(machine.uuid, MachineChange.RESET, PowerState.ON)

    async def machines(self) -> Sequence[MachineEvent]:
        seen = await self.host.look()
        return [
            MachineEvent(uuid, MachineChange.OBSERVED, _power(running))
            for uuid, running in (await self._running(seen)).items()
        ]

    async def watch(self) -> AsyncIterator[MachineEvent]:
        with self._feed.listen() as queue:
            if self._watching is None:
                self._watching = self._tasks.start(self._keep_watch(), name="look at containers")
            await self._look()
            known = self._known.running
            for uuid, running in dict(known or {}).items():
                yield MachineEvent(uuid, MachineChange.OBSERVED, _power(running))
            while True:
                yield await queue.get()

    async def _keep_watch(self) -> None:
        while True:
            began = monotonic()
            await self._look()
            await asyncio.sleep(max(LOOKS_EVERY, REST * (monotonic() - began)))

    async def _look(self) -> None:
        """Compare what is there with what was, and report what has changed. A host that is away
        is reported once.
        """
        async with self._comparing:
            try:
                seen = await self.host.look()
            except ProviderError as error:
                for uuid in self._known.running or {}:
                    self._publish(uuid, MachineChange.UNREACHABLE, PowerState.UNKNOWN, str(error))
                self._known.running = None
                return
            now = await self._running(seen)
            for uuid, running in now.items():
                if running is not None and not running.monitor:
                    await self._runtime.tend(self.host.path(seen.machines[uuid]))
            before, self._known.running = self._known.running, now
            for uuid, running in now.items():
                now[uuid] = _with_last_init((before or {}).get(uuid), running)
            if before is None:
                for uuid, running in now.items():
                    self._publish(uuid, MachineChange.OBSERVED, _power(running))
                return
            for uuid in before.keys() - now.keys():
                self._publish(uuid, MachineChange.UNDEFINED, PowerState.ABSENT)
            async for uuid, running in paced(now.items()):
                change = self._changed(uuid, before.get(uuid), running, new=uuid not in before)
                if change is not None:
                    self._publish(uuid, change, _power(running))

    def _changed(
        self, uuid: UUID, before: Running | None, now: Running | None, *, new: bool
    ) -> MachineChange | None:
        if new and now is None:
            return MachineChange.DEFINED
        if before is None and now is not None:
            return MachineChange.STARTED
        if before is not None and now is None:
            commanded = uuid in self._known.stopped
            self._known.stopped.discard(uuid)
            return MachineChange.STOPPED if commanded else MachineChange.SHUTDOWN
        if before is not None and now is not None and now.init not in (0, before.init):
            if before.init == 0 and before.monitor == now.monitor:
                return None
            return MachineChange.RESET
        return None

    async def _running(self, seen: Seen) -> dict[UUID, Running | None]:
        """UUID -> processes of those that this nospoon made, None for one that is off or not
        started yet.
        """
        return {
            uuid: None if uuid in self._known.starting else seen.running.get(path)
            async for uuid, path in paced(seen.machines.items())
            if self.is_managed(seen.records[f"{path}{MACHINE}"], None)
        }

    def _publish(
        self, uuid: UUID, change: MachineChange, power: PowerState, reason: str = ""
    ) -> None:
        self._feed.publish(MachineEvent(uuid, change, power, reason))

    async def console(self, machine: UUID) -> ConsoleStream:
        path, _, _, running = await self._find(machine)
        if running is None:
            raise ProviderError(f"host {self.host.name}: machine {machine} is off")
        return await self._runtime.console(self.host.path(path))

    def console_record(self, machine: UUID) -> str:
        return str(PurePosixPath(self._records) / f"{machine}.log")

    async def close(self) -> None:
        await self._tasks.close()


def _is_named(seen: Seen, path: str) -> bool:
    """Whether a container of another pool has its name. By that alone liblxc names control groups,
    and what is left in one is killed at a start. A cluster `ci-c0ffee00` with an id of 20261201 has
    a node `a` called as the node `20261201-a` of a cluster `ci` with an id of c0ffee00.
    """
    pool, name = PurePosixPath(path).parts
    there = (PurePosixPath(each).parts for each in seen.machines.values())
    return any(each[-1] == name and each[0] != pool for each in there)


def _with_last_init(before: Running | None, now: Running | None) -> Running | None:
    """While its monitor starts it again, it keeps the init that it had: the next one is a reset."""
    if before is None or now is None or now.init != 0 or now.monitor != before.monitor:
        return now
    return before


def _power(running: Running | None) -> PowerState:
    return PowerState.OFF if running is None else PowerState.ON


def _differing(live: Record | None, shape: Machine) -> Machine | None:
    """What a container runs with, where it is not as defined."""
    if live is None or live.machine is None:
        return None
    has = replace(live.machine, boot_order=shape.boot_order)
    return has if has != shape else None
