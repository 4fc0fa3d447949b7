"""In which order the services of a cloud start, and when it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from nospoon.dev.cloud import (
    baremetal,
    computes,
    configuration,
    contents,
    interfaces,
    preparation,
    programs,
    schema,
    volumes,
)
from nospoon.dev.cloud import waiting as waiting_script
from nospoon.dev.cloud.client import Client, is_answering, logged_in
from nospoon.dev.cloud.computes import Compute, Virt
from nospoon.dev.cloud.configuration import HOST
from nospoon.dev.cloud.namespaces import Namespaces, tail
from nospoon.dev.cloud.programs import Program
from nospoon.dev.cloud.wanted import INSIDE, Api, Wanted
from nospoon.errors import ProviderError
from nospoon.runtime import clock
from nospoon.runtime.tasks import Tasks

log = structlog.get_logger()

START_SECONDS = 240.0
"""For one step, on a busy machine."""


async def complete(
    wanted: Wanted, where: Namespaces, made: Path, *, kept: Path, added: Sequence[Compute] = ()
) -> None:
    """Start what does not run, fill what is empty, and wait until all of it works.

    `kept`: where the cache has empty databases, or will. `added`: compute hosts beside the first.
    """
    at = _Start(wanted, where, made)
    await at.base(kept)
    passwords = preparation.passwords(where.state)
    await at.start(*programs.apis(made))
    await at.api(Api.KEYSTONE)
    client = await logged_in(wanted, passwords.admin)
    if at.is_new:
        await contents.accounts(client, passwords)
    await at.start(*programs.first(made))
    await at.wait("queue", *programs.QUEUES)
    await at.start(*programs.agents(made))
    for api in programs.WSGI:
        await at.api(api)
    if at.is_new:
        async with asyncio.TaskGroup() as group:
            for fill in (contents.flavors, contents.image, contents.networks):
                group.create_task(fill(client))
    if volumes.are_in(where.state):
        await at.volumes(client)
    await at.computes(client, added)
    await at.wait("queue", *programs.AGENT_QUEUES, *(each.queue for each in added))
    await at.settled(client, added, hosts={HOST})


async def join(wanted: Wanted, where: Namespaces, made: Path, added: Compute) -> None:
    """Start a compute host beside those of a cloud that runs, and wait until it is scheduled to."""
    at = _Start(wanted, where, made)
    client = await logged_in(wanted, preparation.passwords(where.state).admin)
    await at.computes(client, [added])
    await at.wait("queue", added.queue)
    await at.settled(client, [added])


@dataclass(slots=True)
class _Start:
    wanted: Wanted
    where: Namespaces
    made: Path
    is_new: bool = False
    """Whether the cloud is empty."""
    due: set[str] = field(default_factory=set)
    """Services that run, or their end is an error. Others are started later."""

    @property
    def env(self) -> dict[str, str]:
        return programs.environment(self.made)

    async def base(self, kept: Path) -> None:
        """Database, broker, switch and hypervisor."""
        state = self.where.state
        self.is_new = not (state / schema.DIRECTORY).exists()
        if not (state / "ovs.db").exists():
            argv = ["ovsdb-tool", "create", f"{INSIDE}/ovs.db", programs.SCHEMA]
            await self.where.run(argv, self.env)
        if self.is_new and kept.exists():
            schema.copy(kept, state / schema.DIRECTORY)
        elif self.is_new:
            await self._new_databases(kept)
        await self.start(*programs.BASE)
        await interfaces.connect(self.wanted, self.where, self.env)
        await self.wait("database", str(configuration.DATABASE_SOCKET))
        if self.is_new:
            passwords = preparation.passwords(state)
            config = f"--config-file={configuration.inside('keystone/keystone.conf')}"
            words = contents.keystone_bootstrap(self.wanted)
            environment = {**self.env, contents.BOOTSTRAP_PASSWORD: passwords.admin}
            await self.where.run(["keystone-manage", config, *words], environment)

    async def _new_databases(self, kept: Path) -> None:
        """Made by the services' own migrations, and kept."""
        await schema.initialise(self.where, self.env)
        await self.start(programs.DATABASE)
        await self.wait("database", str(configuration.DATABASE_SOCKET))
        await schema.fill(self.where, self.env)
        await schema.sql(self.where, self.env, "SHUTDOWN")
        end = clock.monotonic() + START_SECONDS
        while programs.DATABASE.name not in await self._ended():
            await self._pause(end, programs.DATABASE.name)
        self.due.clear()
        schema.copy(self.where.state / schema.DIRECTORY, kept)

    async def start(self, *wanted: Program) -> None:
        """Start those of them that do not run."""
        running = {name for name, status in (await self.where.services()).items() if status is None}
        for each in wanted:
            self.due.add(each.name)
            if each.name not in running:
                env = {**self.env, **each.env}
                await self.where.start(each.name, each.argv, env, log=INSIDE / _log(each.name))
                log.debug("started", service=each.name)

    async def wait(self, kind: str, *names: str) -> None:
        """Until the database answers, or queues are served."""
        script = Path(waiting_script.__file__).read_text()
        argv = ["python", "-P", "-c", script, kind, *names]
        end = clock.monotonic() + START_SECONDS
        async with Tasks("cloud") as tasks:
            waiting = tasks.start(self.where.run(argv, self.env), name=kind)
            while not waiting.done():
                await self._alive_or_raise()
                await self._pause(end, " or ".join(names))
            await waiting

    async def api(self, api: Api) -> None:
        """Until it answers."""
        end = clock.monotonic() + START_SECONDS
        while not await asyncio.to_thread(is_answering, self.wanted, api):
            await self._alive_or_raise()
            await self._pause(end, api)

    async def computes(self, client: Client, wanted: Sequence[Compute]) -> None:
        """Namespaces of each, and what runs in them."""
        for each in wanted:
            await self.where.run(computes.set_up(self.wanted, each), self.env)
            *base, nova = computes.programs_of(self.wanted, self.made, each)
            if each.virt is Virt.IRONIC:
                await self._ironic(client, each)
                await self.start(*base)
                await self.api(Api.IRONIC)
            await self.start(*base, nova)

    async def volumes(self, client: Client) -> None:
        """Cinder, with a place for volumes."""
        await schema.sql(self.where, self.env, volumes.CREATE)
        if argv := volumes.migration(self.where.state, self.made):
            await self.where.run(argv, {**self.env, **volumes.variables(self.made)})
            volumes.migrated(self.where.state, self.made)
        await contents.enter_cinder(client)
        await self.start(*volumes.programs(self.made))
        await self.api(Api.CINDER)
        end = clock.monotonic() + START_SECONDS
        while not await contents.pools(client):
            await self._alive_or_raise()
            await self._pause(end, "cinder-volume")

    async def _ironic(self, client: Client, added: Compute) -> None:
        """What Ironic has before it starts: an address, tables, and entries of the catalogue and of
        Nova's cell, which knows no host without hypervisors.
        """
        for argv in baremetal.set_up(self.wanted):
            await self.where.run(argv, self.env)
        own = computes.directory(self.where.state, added)
        if argv := baremetal.migration(own, self.made, computes.STATE):
            env = {**self.env, **baremetal.variables(self.made, computes.STATE)}
            await self.where.run([*computes.run(added), *argv], env)
            baremetal.migrated(own, self.made)
        await contents.enter_ironic(client)
        await schema.sql(self.where, self.env, baremetal.MAP_HOST.format(host=added.name))

    async def settled(
        self, client: Client, added: Sequence[Compute], *, hosts: AbstractSet[str] = frozenset()
    ) -> None:
        """Until agents, these compute hosts, and those that were added report."""
        end = clock.monotonic() + START_SECONDS
        of_ironic = {each.name for each in added if each.virt is Virt.IRONIC}
        hosts |= {each.name for each in added} - of_ironic
        while True:
            missing = set(programs.AGENTS) - await contents.agents(client)
            missing |= hosts - await contents.computes(client)
            if of_ironic:
                missing |= of_ironic - await contents.services(client)
            if not missing:
                return
            await self._alive_or_raise()
            await self._pause(end, min(missing))

    async def _ended(self) -> dict[str, int]:
        services = await self.where.services()
        return {name: status for name, status in services.items() if status is not None}

    async def _alive_or_raise(self) -> None:
        for name, status in (await self._ended()).items():
            if name not in self.due:
                continue
            raise ProviderError(f"{name} ended with status {status}:\n{self._tail(name)}")

    async def _pause(self, end: float, name: str) -> None:
        """Nothing reports these states: they are polled."""
        if clock.monotonic() > end:
            raise ProviderError(
                f"{name} is not ready after {START_SECONDS:.0f} s:\n{self._tail(name)}"
            )
        await asyncio.sleep(0.2)

    def _tail(self, name: str) -> str:
        return tail(self.where.state / _log(name))


def _log(name: str) -> str:
    """Of a service, below the state directory."""
    return f"log/{name}.log"
