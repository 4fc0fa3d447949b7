"""How an engine starts and ends containers."""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath

import msgspec

from nospoon.errors import ProviderError
from nospoon.model.cluster import Switch
from nospoon.model.resources.machines import Machine, MachineNic
from nospoon.providers import openvswitch
from nospoon.providers.containers import filters, volumes
from nospoon.providers.containers.console import PipedConsole
from nospoon.providers.containers.scripts import PUT_SEED
from nospoon.providers.docker.host import DockerHost
from nospoon.providers.docker.program.nics import Nic
from nospoon.providers.docker.program.roots import root_name
from nospoon.providers.docker.program.running import Given, Start
from nospoon.runtime import process

PIDS = 4096
"""Processes and threads of a container: the kernel has some 32,000 for all."""


class DockerRuntime:
    """A `Runtime`."""

    def __init__(self, host: DockerHost) -> None:
        self.host = host

    async def start(self, directory: str, machine: Machine, name: str, log: str) -> None:
        if not machine.disks:
            raise ProviderError(f"host {self.host.name}: container {name} has no root")
        root = f"{PurePosixPath(directory).parent}/{machine.disks[0].volume}.volume"
        filtered = filters.filtered(machine)
        settings: Start = {
            "container": root_name(root),
            "volume": root,
            "record": log,
            "cpus": machine.cpus,
            "memory": machine.memory,
            "pids": PIDS,
            "put_seed": PUT_SEED,
            "attach": volumes.attaching() if machine.disks[1:] else "",
            "volumes": volumes.places(directory, machine),
            "nics": [_nic(directory, nic, is_filtered=nic in filtered) for nic in machine.nics],
        }
        given: Given = {
            "settings": settings,
            "filters": {
                filters.path_of(directory, nic): filters.render(machine, name, nic).decode()
                for nic in filtered
            },
            "remove_filters": filters.REMOVE,
        }
        try:
            await self.host.ask("start", directory, stdin=msgspec.json.encode(given))
        except ProviderError as error:
            await self.host.ask("kill", directory, check=False)
            cli = (await self.host.facts()).cli
            prefix = f"host {self.host.name}: "
            raise ProviderError(
                f"container {name} does not start: {error.message.removeprefix(prefix)}",
                hint=f"See `{cli} inspect {root_name(root)}` on host {self.host.name}.",
            ) from error

    async def stop(self, directory: str, machine: Machine) -> None:
        del machine
        await self.host.ask("kill", directory)
        await self.host.sh(filters.REMOVE, directory)

    async def tend(self, directory: str) -> None:
        with contextlib.suppress(ProviderError):  # it is asked again
            await self.host.ask("tend", directory)

    async def shut_down(self, directory: str) -> None:
        await self.host.ask("shut-down", directory)

    async def console(self, directory: str) -> PipedConsole:
        argv = self.host.here(self.host.words("console", directory))
        return PipedConsole(await process.pipe(argv))


def _nic(directory: str, nic: MachineNic, *, is_filtered: bool) -> Nic:
    """As the program takes it. `ovs`: settings of its port there, [] for a Linux bridge's."""
    columns = openvswitch.settings(openvswitch.wanted(nic))
    return {
        "port": nic.port,
        "bridge": nic.network,
        "mac": nic.mac,
        "ovs": ["", *columns] if nic.switch is Switch.OVS else [],
        "filter": filters.path_of(directory, nic) if is_filtered else "",
        "filter_up": filters.PLUG,
        "filter_down": filters.UNPLUG,
    }
