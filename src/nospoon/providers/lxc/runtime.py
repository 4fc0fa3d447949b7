"""How liblxc starts and ends containers."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

from nospoon.errors import ProviderError
from nospoon.model.resources.machines import Machine
from nospoon.providers.containers import filters, volumes
from nospoon.providers.containers.console import PipedConsole
from nospoon.providers.containers.scripts import PUT_SEED, UNPLUG
from nospoon.providers.lxc import scripts
from nospoon.providers.lxc.config import VOLUMES, Ids, render
from nospoon.providers.lxc.host import LxcHost
from nospoon.runtime import process

PREFIX = b"\x01"
"""Ctrl-A, after which lxc-console takes a key for itself; twice, it is typed once."""


class LxcRuntime:
    """A `Runtime`. `records`: directory on the host for logs of consoles."""

    def __init__(self, host: LxcHost, records: str) -> None:
        self.host, self._records = host, records

    async def start(self, directory: str, machine: Machine, name: str, log: str) -> None:
        """A start that fails says what liblxc says: its own last words are in its log. A container
        has the ids to which the files of its root belong.
        """
        facts, seen = await self.host.facts(), await self.host.look()
        if not machine.disks:
            raise ProviderError(f"host {self.host.name}: container {name} has no root")
        volume = f"{PurePosixPath(directory).parent}/{machine.disks[0].volume}.volume"
        root = seen.records.get(f"{self.host.relative(volume)}.json")
        ids = Ids(*root.ids) if root is not None and root.ids[1] else await self.host.ids()
        config = render(
            machine, name, directory=directory, log=log, ids=ids, cgroups=facts.cgroups,
            apparmor=facts.apparmor, new_privileges=self.host.new_privileges,
        )  # fmt: skip
        await self.host.write(f"{directory}/config", config.encode())
        await self._name_volumes(directory, machine)
        await self.host.sh(scripts.KILL, directory)  # what one that was killed has left
        await self._unplug(directory, machine)
        for nic in filters.filtered(machine):
            text = filters.render(machine, name, nic)
            await self.host.write(filters.path_of(directory, nic), text)
        words = (volume, str(ids.first), str(ids.count), PUT_SEED, self._records)
        try:
            await self.host.sh(scripts.START, directory, *words)
        except ProviderError as error:
            said = await self.host.sh('tail -n 20 "$1/log" 2>/dev/null || :', directory)
            await self.host.sh(scripts.KILL, directory, check=False)
            lines = said.stdout[-process.MOST_PRINTED :].splitlines()
            why = next((line for line in lines if " ERROR " in line), "")
            raise ProviderError(
                f"container {name} does not start: {why.rpartition(' - ')[2] or error.message}",
                hint=f"See {directory}/log on host {self.host.name}.",
            ) from error

    async def _name_volumes(self, directory: str, machine: Machine) -> None:
        """What mounts them, and which."""
        if machine.disks[1:]:
            program, which, _ = (f"{directory}/{each}" for each in VOLUMES)
            await self.host.write(program, volumes.attaching().encode())
            await self.host.write(which, msgspec.json.encode(volumes.places(directory, machine)))

    async def stop(self, directory: str, machine: Machine) -> None:
        await self.host.sh(scripts.KILL, directory)
        await self._unplug(directory, machine)

    async def _unplug(self, directory: str, machine: Machine) -> None:
        """Filters, links and ports that a monitor left which was killed."""
        await self.host.sh(filters.REMOVE, directory)
        ports = [nic.port for nic in machine.nics if nic.port]
        await self.host.sh(UNPLUG, *ports)

    async def tend(self, directory: str) -> None:
        """One without its monitor does not run."""

    async def shut_down(self, directory: str) -> None:
        path = PurePosixPath(directory)
        await self.host.runner.run(
            ["lxc-stop", "-P", str(path.parent), "-n", path.name, "--nokill", "--nowait"]
        )

    async def console(self, directory: str) -> PipedConsole:
        """By lxc-console(1)."""
        path = PurePosixPath(directory)
        argv = ["lxc-console", "-P", str(path.parent), "-n", path.name, "-t", "0"]
        return PipedConsole(await process.pipe(self.host.here(argv)), prefix=PREFIX)
