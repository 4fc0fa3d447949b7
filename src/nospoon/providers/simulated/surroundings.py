"""What all simulated drivers of a host share: the world, the clock, and arranged bad days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.errors import Gone, HostUnreachable, OutOfSpace, ProviderError
from nospoon.model.connections import Simulation
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.storage import Volume
from nospoon.providers.feed import EventFeed
from nospoon.providers.simulated.guests import Guests
from nospoon.providers.simulated.world import Made, Running, World
from nospoon.runtime.clock import Clock


def nothing_probes(machine: UUID) -> bool:  # noqa: ARG001  (for every machine)
    """No machine gets the probe from the network."""
    return False


@dataclass(slots=True)
class Surroundings:
    """One host. `space`: bytes that volumes may take in all, None is without limit. `guests` None:
    nothing runs on its machines. `is_probed`: whether a machine that boots from the network now
    gets the probe of `nospoon verify`.

    `faults` maps the beginning of a call ("create volume/", "power ") to errors that calls so
    beginning raise, one each, in order.
    """

    host: str
    deployment: str
    clock: Clock
    world: World
    simulation: Simulation = field(default_factory=Simulation)
    guests: Guests | None = None
    is_probed: Callable[[UUID], bool] = nothing_probes
    space: int | None = None
    reachable: bool = True
    faults: dict[str, list[ProviderError]] = field(default_factory=dict)
    feed: EventFeed = field(default_factory=EventFeed)

    def begin(self, call: str) -> None:
        """Every call starts here: raises when the host is away, or what a test arranged."""
        if not self.reachable:
            raise HostUnreachable(f"host {self.host} (simulated) does not answer")
        for beginning, errors in self.faults.items():
            if errors and call.startswith(beginning):
                raise errors.pop(0)

    def state(self, machine: UUID) -> Running:
        """Of a machine that was made. Raises `Gone` for any other."""
        state = self.world.running.get(machine)
        if state is None:
            raise Gone(
                f"there is no machine {machine} on host {self.host}",
                hint="`nospoon up` makes it again.",
            )
        return state

    def made(self, machine: UUID) -> Made | None:
        """What was made of a machine, None for one that was not."""
        return self.world.named(Kind.MACHINE, str(machine))

    def check_space(self, resource: Resource) -> None:
        if self.space is None or not isinstance(resource.shape, Volume):
            return
        used = sum(
            made.shape.size
            for made in self.world.made[Kind.VOLUME].values()
            if isinstance(made.shape, Volume) and made.key != resource.key
        )
        if used + resource.shape.size > self.space:
            raise OutOfSpace(
                f"{resource.key} wants {resource.shape.size} bytes, "
                f"host {self.host} has {max(self.space - used, 0)} left",
                hint="Free space, or use smaller disks.",
            )
