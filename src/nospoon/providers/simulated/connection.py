"""A host that is not there: complete, in memory, and quick enough for ten thousand nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from nospoon.model.capabilities import Capabilities, ChangeRule
from nospoon.model.cluster import Arch, Firmware, Host
from nospoon.model.connections import Simulated, Simulation
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.resources.keys import Kind
from nospoon.providers.base import Driver
from nospoon.providers.recorder import RecordSpace
from nospoon.providers.simulated import strangers
from nospoon.providers.simulated.drivers import SimulatedDriver
from nospoon.providers.simulated.guests import Guests
from nospoon.providers.simulated.machines import SimulatedMachines
from nospoon.providers.simulated.surroundings import Surroundings, nothing_probes
from nospoon.providers.simulated.world import SHAPES, World
from nospoon.runtime import clock as clocks
from nospoon.runtime.clock import Clock

RULES: Mapping[Kind, Mapping[str, ChangeRule]] = {
    Kind.NETWORK: {
        "address": ChangeRule.LIVE,
        "address6": ChangeRule.LIVE,
        "mtu": ChangeRule.LIVE,
        "nat": ChangeRule.LIVE,
        "host_ports": ChangeRule.LIVE,
    },
    Kind.VOLUME: {"size": ChangeRule.LIVE},
    Kind.MACHINE: {
        "boot_order": ChangeRule.LIVE,
        "cpus": ChangeRule.AT_POWER_OFF,
        "memory": ChangeRule.AT_POWER_OFF,
        "firmware": ChangeRule.AT_POWER_OFF,
        "tpm": ChangeRule.AT_POWER_OFF,
        "disks": ChangeRule.AT_POWER_OFF,
        "nics": ChangeRule.AT_POWER_OFF,
        "boot": ChangeRule.AT_POWER_OFF,
        "ipv6": ChangeRule.AT_POWER_OFF,
        "seed": ChangeRule.AT_POWER_OFF,
    },
}


class SimulatedConnection:
    """A `Connection`. `world`: state to go on from; `records`: directory for console records,
    `record_space`: what they share with those of other hosts; `guests`: runs what machines boot
    from network and media; `is_probed`: as `Surroundings` has it; `resumes`: an earlier daemon left
    `world`, and what booted from the network boots again.

    `around` lets a test or a fault command arrange bad days: no space, away, errors to come.
    """

    def __init__(
        self,
        host: str,
        deployment: str,
        clock: Clock,
        *,
        world: World | None = None,
        simulation: Simulation | None = None,
        records: Path | None = None,
        record_space: RecordSpace | None = None,
        guests: Guests | None = None,
        is_probed: Callable[[UUID], bool] = nothing_probes,
        resumes: bool = False,
    ) -> None:
        self.around = Surroundings(
            host=host,
            deployment=deployment,
            clock=clock,
            world=world if world is not None else World(),
            simulation=simulation if simulation is not None else Simulation(),
            guests=guests,
            is_probed=is_probed,
        )
        self.closed_at: float | None = None
        """On the monotonic clock."""
        self._machines = SimulatedMachines(self.around, records, record_space, resumes=resumes)
        simple = [kind for kind in SHAPES if kind is not Kind.MACHINE]
        self._drivers: dict[Kind, Driver] = {
            **{kind: SimulatedDriver(kind, self.around) for kind in simple},
            Kind.MACHINE: self._machines,
        }

    @property
    def drivers(self) -> Mapping[Kind, Driver]:
        return self._drivers

    @property
    def machine_driver(self) -> SimulatedMachines:
        return self._machines

    @property
    def world(self) -> World:
        """Everything that exists there; `world.dump()` is what to keep over a restart."""
        return self.around.world

    async def capabilities(self) -> Capabilities:
        return Capabilities(
            kinds=frozenset(self._drivers),
            firmwares=frozenset(Firmware),
            archs=frozenset(Arch),
            tpm=True,
            accelerator="simulated",
            runs_guests=False,
            anti_spoofing=True,
            rules=RULES,
        )

    async def deployments(self) -> Mapping[str, int]:
        self.around.begin("deployments")
        made = self.around.world.all()
        return Counter(each.tag.deployment for each in made if each.tag is not None)

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        """No one else has anything here, and only what the file limits is short."""
        del pools, named
        how = self.around.simulation
        facts = HostFacts.of_one_that(await self.capabilities())
        return replace(facts, cpus=how.cpus, memory=how.memory)

    async def adoptable(self) -> tuple[Adoptable, ...]:
        self.around.begin("look at machines of others")
        return await strangers.found(self.around)

    def configure(self, host: Host) -> None:
        assert isinstance(host.connection, Simulated), "a host of this kind"
        self.around.simulation = host.connection.simulation

    async def check(self) -> None:
        self.around.begin("check")

    async def close(self) -> None:
        self.closed_at = clocks.monotonic()
        await self._machines.close()
