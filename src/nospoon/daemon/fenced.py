"""Drivers that ask whether this daemon is still in control before they change anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

from nospoon.model.boot import BootPlan
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.machine import KeptState, MachineEvent, PowerCommand
from nospoon.model.resources import Kind, Observed, OwnerTag, Resource
from nospoon.model.secure_boot import KeyDatabase
from nospoon.providers.base import (
    Connection,
    ConsoleStream,
    Driver,
    MachineDriver,
    Medium,
)

Require = Callable[[], Awaitable[None]]
"""Returns while we are in control; raises `Superseded` else."""


class FencedDriver:
    """Any driver: looking is free, changing is asked for."""

    def __init__(self, inner: Driver, require: Require) -> None:
        self._inner, self._require = inner, require

    @property
    def kind(self) -> Kind:
        return self._inner.kind

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        return await self._inner.observe(cluster)

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        await self._require()
        await self._inner.create(resource, tag)

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        await self._require()
        await self._inner.change(observed, desired, tag)

    async def delete(self, observed: Observed) -> None:
        await self._require()
        await self._inner.delete(observed)


class FencedMachines(FencedDriver):
    """The same for a machine driver."""

    def __init__(self, inner: MachineDriver, require: Require) -> None:
        super().__init__(inner, require)
        self._machines = inner

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        await self._require()
        await self._machines.claim(resource, tag)

    async def release(self, observed: Observed) -> None:
        await self._require()
        await self._machines.release(observed)

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> None:
        await self._require()
        await self._machines.power(machine, command, boot)

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        await self._require()
        await self._machines.set_boot(machine, boot)

    async def insert(self, machine: UUID, medium: Medium) -> None:
        await self._require()
        await self._machines.insert(machine, medium)

    async def eject(self, machine: UUID) -> None:
        await self._require()
        await self._machines.eject(machine)

    async def pause(self, machine: UUID) -> bool:
        await self._require()
        return await self._machines.pause(machine)

    async def resume(self, machine: UUID) -> None:
        await self._require()
        await self._machines.resume(machine)

    async def take(self, machine: UUID, name: str) -> None:
        await self._require()
        await self._machines.take(machine, name)

    async def kept(self, machine: UUID) -> Mapping[str, Mapping[str, KeptState]]:
        return await self._machines.kept(machine)

    async def hindered(self, machine: UUID, name: str) -> str:
        return await self._machines.hindered(machine, name)

    async def revert(self, machine: UUID, name: str) -> None:
        await self._require()
        await self._machines.revert(machine, name)

    async def drop(self, machine: UUID, name: str) -> None:
        await self._require()
        await self._machines.drop(machine, name)

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        return await self._machines.key_databases(machine)

    async def machines(self) -> Sequence[MachineEvent]:
        return await self._machines.machines()

    def watch(self) -> AsyncIterator[MachineEvent]:
        return self._machines.watch()

    async def console(self, machine: UUID) -> ConsoleStream:
        return await self._machines.console(machine)

    def console_record(self, machine: UUID) -> str:
        return self._machines.console_record(machine)


class FencedConnection:
    """A connection with such drivers."""

    def __init__(self, inner: Connection, require: Require) -> None:
        self._inner = inner
        self._machines = FencedMachines(inner.machine_driver, require)
        self._drivers: dict[Kind, Driver] = {
            kind: FencedDriver(driver, require) for kind, driver in inner.drivers.items()
        }
        self._drivers[Kind.MACHINE] = self._machines

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> MachineDriver:
        return self._machines

    async def capabilities(self) -> Capabilities:
        return await self._inner.capabilities()

    async def deployments(self) -> Mapping[str, int]:
        return await self._inner.deployments()

    async def survey(self, pools: str, volumes: Collection[str]) -> HostFacts:
        return await self._inner.survey(pools, volumes)

    async def adoptable(self) -> tuple[Adoptable, ...] | None:
        return await self._inner.adoptable()

    def configure(self, host: Host) -> None:
        self._inner.configure(host)

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()
