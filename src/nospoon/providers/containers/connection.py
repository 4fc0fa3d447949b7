"""What connections of containers have in common: drivers over a host and its runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from nospoon.model.capabilities import Capabilities, ChangeRule, identity_of
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.resources.keys import Kind
from nospoon.providers import linux
from nospoon.providers.base import Driver
from nospoon.providers.containers.host import ContainerHost
from nospoon.providers.containers.machines import MachineDriver

RULES: Mapping[Kind, Mapping[str, ChangeRule]] = {
    Kind.VOLUME: {"size": ChangeRule.LIVE},
    Kind.MACHINE: {
        "boot_order": ChangeRule.LIVE,
        "unlinked": ChangeRule.LIVE,
        "cpus": ChangeRule.AT_POWER_OFF,
        "memory": ChangeRule.AT_POWER_OFF,
        "firmware": ChangeRule.AT_POWER_OFF,
        "disks": ChangeRule.AT_POWER_OFF,
        "nics": ChangeRule.AT_POWER_OFF,
        "ipv6": ChangeRule.AT_POWER_OFF,
        "seed": ChangeRule.AT_POWER_OFF,
    },
}


class Facts(Protocol):
    """What a host has; `memory` in bytes, `name`: by which two hosts are known for one machine."""

    @property
    def cpus(self) -> int: ...

    @property
    def memory(self) -> int: ...

    @property
    def name(self) -> str: ...


class ContainerConnection:
    """A `Connection`, but for its `check`. `there`: the host, of which `facts` asks what it has."""

    def __init__(
        self,
        host: Host,
        there: ContainerHost,
        facts: Callable[[], Awaitable[Facts]],
        machines: MachineDriver,
        storage: Mapping[Kind, Driver],
    ) -> None:
        self.host = host
        self._there, self._ask_facts, self._machines = there, facts, machines
        self._drivers: dict[Kind, Driver] = {**storage, Kind.MACHINE: machines}

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> MachineDriver:
        return self._machines

    async def capabilities(self) -> Capabilities:
        """Firmware and architecture are not a container's: it takes any."""
        facts = await self._ask_facts()
        return Capabilities(
            kinds=frozenset(self._drivers),
            firmwares=frozenset(Firmware),
            archs=frozenset(Arch),
            tpm=False,
            accelerator="container",
            anti_spoofing=await self._there.has_filters(),
            cpus=facts.cpus,
            memory=facts.memory,
            identity=identity_of(facts.name),
            rules=RULES,
        )

    async def deployments(self) -> Mapping[str, int]:
        seen = await self._there.look()
        return Counter(
            each.tag.deployment
            for path, each in seen.records.items()
            if not path.endswith("/live.json")
        )

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        del named
        can = await self.capabilities()
        disk = await self.free_space(pools)
        return replace(HostFacts.of_one_that(can), real=True, disk=disk)

    async def adoptable(self) -> tuple[Adoptable, ...] | None:
        """Containers of others stay theirs."""
        return None

    def configure(self, host: Host) -> None:
        self.host = host

    async def free_space(self, pools: str) -> int:
        """Bytes for roots."""
        return await linux.free_space(self._there.runner, pools)

    async def close(self) -> None:
        await self._machines.close()
