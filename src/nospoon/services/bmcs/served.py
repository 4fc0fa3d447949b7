"""One BMC that is served: its aggregate, its endpoint, and what waits its turn."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.bmc.aggregate import Bmc as Aggregate
from nospoon.bmc.faults import Fault, Faults
from nospoon.bmc.faults import Kind as FaultKind
from nospoon.bmc.messages import Effect
from nospoon.bmc.runtime import Runtime
from nospoon.model.boot import BootOverride
from nospoon.model.resources.bmcs import Bmc
from nospoon.protocols.ipmi.endpoint import Endpoint
from nospoon.runtime.udp import ANY
from nospoon.services.bmcs.ports import BmcConfig

_CHANCE = secrets.SystemRandom()


@dataclass(frozen=True, slots=True)
class Shown:
    """A resource as it was shown last: as JSON, and its ETag. `of`: what it was made of."""

    of: tuple[object, ...]
    data: bytes
    tag: str


@dataclass(slots=True)
class Served:
    """One BMC that is served. `effects` wait their turn; `turn`: the task that works on them.

    `lane`: the task that talks to the machine, of which each waits for the one before it, so that
    a boot order that was told late does not undo what a power command told. `saved`: what holds of
    the runtime state: it is durable, or happened. `again`: when the latter is stored. `well`: set
    when a fault on demand is over that something waits for. `gone`: it is served no more. `smbios`:
    the UUID that its machine's guest sees, where its connection chose it. `system`: its Redfish
    System, once someone has looked at it.
    """

    config: BmcConfig
    aggregate: Aggregate
    endpoint: Endpoint
    effects: deque[Effect] = field(default_factory=deque)
    turn: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    lane: asyncio.Task[None] | None = None
    saved: Runtime = field(default_factory=Runtime)
    again: asyncio.TimerHandle | None = None
    well: asyncio.Event | None = None
    gone: bool = False
    smbios: UUID | None = None
    system: Shown | None = None

    @property
    def faults(self) -> Faults | None:
        """Those on demand, None where there are none."""
        return self.aggregate.state.faults

    def strike(self, kinds: frozenset[FaultKind], now: float) -> Fault | None:
        """The fault on demand that happens now."""
        if self.faults is None:
            return None
        return self.faults.strike(kinds, now=now, chance=_CHANCE.random())

    async def wait_badly(self, seconds: float) -> None:
        """So long, or until the faults on demand are cleared."""
        well = self.well = self.well or asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await well.wait()

    def clear_faults(self) -> None:
        """Nothing that is under way waits for them any more."""
        self.aggregate.state.faults = None
        if self.well is not None:
            self.well.set()
            self.well = None

    def stop_timers(self) -> None:
        for timer in (self.timer, self.again):
            if timer is not None:
                timer.cancel()

    @property
    def bmc(self) -> Bmc:
        return self.config.bmc

    @property
    def override(self) -> BootOverride:
        return self.aggregate.runtime.override

    @property
    def power_fault(self) -> str:
        return self.aggregate.fault

    def now(self) -> float:
        """The clock of its aggregate."""
        return asyncio.get_running_loop().time()


def bind_address(bmc: Bmc) -> str:
    """BMCs with addresses of their own share one socket for all addresses."""
    return ANY if bmc.pool else bmc.address
