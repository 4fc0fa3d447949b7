"""What the BMC service needs of the world, and what it is given for each BMC."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from nospoon.bmc.events import EventSettings
from nospoon.bmc.log import Record
from nospoon.bmc.runtime import Runtime
from nospoon.model.boot import BootPlan
from nospoon.model.machine import MachineEvent, Outcome, PowerCommand
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.secure_boot import KeyDatabase


@dataclass(frozen=True, slots=True)
class BmcConfig:
    """One BMC to serve: shapes of it and its machine, password, runtime state to go on from.

    `k_g`: the file's key, 40 hexadecimal digits or "". `pdu_secret`: community and pass phrases of
    the PDU that feeds it. `owner`: the user whose node it is.
    """

    node: str
    cluster: str
    bmc: Bmc
    machine: Machine
    password: str = field(repr=False)
    k_g: str = field(default="", repr=False)
    pdu_secret: str = field(default="", repr=False)
    runtime: Runtime = field(default_factory=Runtime)
    log: Sequence[Record] = ()
    owner: int = 0


class Machines(Protocol):
    """Power, boot order and keys of the machines behind the BMCs."""

    def last(self, machine: UUID) -> MachineEvent | None:
        """The last event of a machine: its state without asking anybody."""

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """As `MachineDriver.power`: returns when the outcome is observed, and whether it is new."""

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        """As `MachineDriver.set_boot`."""

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        """As `MachineDriver.key_databases`."""


class Media(Protocol):
    """The CD drives of the machines behind the BMCs."""

    async def insert(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> None:
        """Fetch an image and put it in, instead of what is in there. Takes as long as the transfer.

        Raises `UsageError` for a URL that is not http(s), `ProviderError` when it is not available.
        """

    async def fetch(
        self,
        machine: UUID,
        url: str,
        *,
        username: str = "",
        password: str = "",
        verify: bool = True,
    ) -> str:
        """Fetch an image, look at it and let it go; returns its SHA-256 in hex. Raises the same."""

    async def eject(self, machine: UUID) -> None:
        """Take out what is in; an empty drive is no error."""


class ConsoleLine(Protocol):
    """Someone who is attached to a console."""

    def output(self) -> AsyncIterator[bytes]:
        """What the machine says from now on; ends when the console does."""

    async def write(self, data: bytes) -> None:
        """Type. Raises `Gone` while the machine is off."""

    async def send_break(self) -> None:
        """A break condition. Raises `Gone` while the machine is off."""

    async def close(self) -> None: ...


class Consoles(Protocol):
    """Serial consoles of the machines behind the BMCs."""

    async def attach(self, machine: UUID, *, user: int) -> ConsoleLine:
        """`user`: whose machine it is. Raises `Conflict` when another program has it, `Gone` for a
        machine that is not nospoon's.
        """


class RuntimeStore(Protocol):
    """Where runtime state is made durable before a change of it is acknowledged.

    Records of logs are written soon, many at once; `flush` waits until they are.
    """

    async def save(self, machine: UUID, runtime: Runtime) -> None: ...

    def append(self, machine: UUID, record: Record) -> None: ...

    def erase(self, machine: UUID, number: int | None) -> None:
        """The record with this number, or with None all of this machine."""

    async def flush(self) -> None: ...

    async def save_events(self, settings: EventSettings) -> None:
        """Keep an event service; one as it is by default need not be kept."""

    async def events(self) -> Sequence[EventSettings]:
        """Those that were kept."""


class Records(Protocol):
    """Where it is kept which BMCs were made, and everything one needs to serve each."""

    async def all(self, cluster: UUID | None) -> Sequence[tuple[Key, Bmc, OwnerTag]]: ...

    async def put(self, key: Key, bmc: Bmc, tag: OwnerTag) -> None: ...

    async def remove(self, bmc: UUID) -> None: ...

    async def config(self, resource: Resource) -> BmcConfig:
        """How to serve this BMC. Raises `Gone` when its node is not known."""
