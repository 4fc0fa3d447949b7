"""A simulated host that declares what a cloud does, so that nothing else can be built on.

Machines boot by a script, are on a network that is there, have a flavor's size, a UUID that the
host assigns, and a console of which the log alone is had. What does not follow from that it refuses
as a cloud would: whoever knows it by other means is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from nospoon.errors import Gone, ProviderError
from nospoon.model.boot import BootMethod
from nospoon.model.capabilities import Capabilities
from nospoon.model.connections import IN_MEMORY, Simulated, Simulation
from nospoon.model.declared import Console, Declared, Networking, Sizes, Uuids
from nospoon.model.host_facts import ENDLESS, HostFacts, SizeOffered
from nospoon.model.machine import MachineChange, MachineEvent
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.probe.record import frame
from nospoon.providers.simulated.connection import RULES, SimulatedConnection
from nospoon.providers.simulated.console import SimulatedConsole
from nospoon.providers.simulated.guests import record
from nospoon.providers.simulated.machines import SimulatedMachines
from nospoon.providers.simulated.surroundings import nothing_probes
from nospoon.testing.racks import MEBI

DECLARED = replace(
    IN_MEMORY,
    networking=Networking.EXISTING,
    boot=BootMethod.SCRIPT,
    sizes=Sizes.FLAVORS,
    uuids=Uuids.ASSIGNED,
    console=Console.TAIL,
)
NETWORK = "public"
"""The only one that is there."""
FLAVORS = {
    each.name: each
    for each in (
        SizeOffered("tiny", "1", 1, 64 * MEBI, ENDLESS, ENDLESS),
        SizeOffered("small", "2", 1, 512 * MEBI, ENDLESS, ENDLESS),
    )
}


@dataclass(frozen=True, slots=True)
class CloudLike(Simulated):
    @property
    def declares(self) -> Declared:
        return DECLARED


def assigned(machine: UUID) -> UUID:
    """What the host calls a machine, which its guest sees."""
    return uuid5(NAMESPACE_URL, f"assigned to {machine}")


class CloudLikeMachines(SimulatedMachines):
    @property
    def boot_order(self) -> None:  # type: ignore[override]  # they ask
        return None

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        assert isinstance(resource.shape, Machine), "machine keys have machine shapes"
        machine = resource.shape
        size = FLAVORS.get(machine.flavor)
        if size is None or (size.cpus, size.memory) != (machine.cpus, machine.memory):
            raise ProviderError(f"{resource.key} has not the size of a flavor: {machine.flavor!r}")
        if any(nic.network != NETWORK for nic in machine.nics):
            raise ProviderError(f"{resource.key} is on another network than {NETWORK}")
        if machine.boot is BootMethod.NATIVE:
            raise ProviderError(f"{resource.key} would boot as ordered, which nothing here does")
        await super().create(resource, tag)

    async def console(self, machine: UUID) -> SimulatedConsole:
        self.around.state(machine)
        raise Gone("its console cannot be typed at: there is no proxy")

    def _run_probe(self, machine: UUID, boot: int) -> None:
        """It reads the UUID that the host assigned."""
        made = self.around.made(machine)
        if made is not None and isinstance(made.shape, Machine) and self._still(machine, boot):
            seen = record(replace(made.shape, uuid=assigned(machine)), self.around.world)
            self._port(machine).say(frame(msgspec.json.encode(seen)))

    def _event(self, machine: UUID, change: MachineChange, reason: str = "") -> MachineEvent:
        return replace(super()._event(machine, change, reason), smbios=assigned(machine))


class CloudLikeConnection(SimulatedConnection):
    def __init__(
        self,
        simulation: Simulation,
        *,
        records: Path | None = None,
        is_probed: Callable[[UUID], bool] = nothing_probes,
    ) -> None:
        super().__init__(
            "cloudlike", "kit", lambda: 1000.0, simulation=simulation, is_probed=is_probed
        )
        self._machines = CloudLikeMachines(self.around, records)
        self._drivers[Kind.MACHINE] = self._machines
        del self._drivers[Kind.NETWORK]

    async def capabilities(self) -> Capabilities:
        """What a flavor gives does not change."""
        sized = {"cpus", "memory"}
        rules = {name: rule for name, rule in RULES[Kind.MACHINE].items() if name not in sized}
        return replace(
            await super().capabilities(),
            rules={**RULES, Kind.MACHINE: rules},
        )

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        return replace(
            await super().survey(pools, named),
            sizes=tuple(FLAVORS.values()),
            networks=frozenset({NETWORK}),
        )
