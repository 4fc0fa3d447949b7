"""The driver contract: one driver handles one kind of resource on one connection.

Promises that every driver keeps, and `nospoon.testing.conformance` checks:

1. `observe` returns every resource of that kind that carries our tag, for one cluster or for all
   of this deployment, as it is now, in as few calls as the connection allows. It never returns
   what is not ours.
2. `create` is idempotent: a resource with our tag and this key that is there already is brought
   to the shape and is no error. One of that name without our tag raises `NotOurs` and stays as it
   is. It undoes its own half-made work when it fails.
3. `change` brings an observed resource to a desired shape without replacing it. It is only asked
   for fields that `rules` allows.
4. `delete` is idempotent: what is gone already is no error. It refuses what is not ours, and disks
   of machines that run with them: they may have been switched on since someone looked.
5. Every call may be cancelled at any await; what it leaves is found by the next `observe`.
6. Machines that nospoon did not make are `claimed` and `released` in place of that, also by a
   `delete`: only what nospoon made is ever removed.
7. Errors are `ProviderError`s whose message says what, where and how to fix it. What may pass by
   itself is a `Transient`, with how long that takes where the host says it: the engine makes the
   whole call again, as `Declared.calls` says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from nospoon.errors import ProviderError
from nospoon.model.boot import BootPlan
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Host
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.machine import KeptState, MachineEvent, Outcome, PowerCommand
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.model.secure_boot import KeyDatabase
from nospoon.model.seed import Seed


class Driver(Protocol):
    """Makes, finds, changes and removes resources of one kind on one host."""

    @property
    def kind(self) -> Kind: ...

    async def observe(self, cluster: UUID | None) -> Sequence[Observed]:
        """All resources of this kind and cluster that carry our tag; None: of every cluster of
        this deployment. Promise 1.
        """

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        """Make it, tagged. Promise 2."""

    async def change(self, observed: Observed, desired: Resource, tag: OwnerTag) -> None:
        """Bring it to the desired shape in place. Promise 3."""

    async def delete(self, observed: Observed) -> None:
        """Remove it. Promise 4."""


@dataclass(frozen=True, slots=True)
class Medium:
    """An ISO 9660 image as virtual media. `path`: the daemon's own copy; `sha256` of it."""

    path: str
    sha256: str


def in_use(volume: Key, node: str) -> ProviderError:
    """What a driver raises that is to remove a disk with which a machine runs."""
    return ProviderError(
        f"{volume} is a disk of node {node}, which is running with it: it is not removed",
        hint="Plan again: a plan says what becomes of nodes that run.",
    )


class MachineDriver(Driver, Protocol):
    """Machines have power, events and a console; what else their connection can do with them is a
    port of its own, None where it cannot.
    """

    @property
    def boot_order(self) -> BootOrder | None: ...

    @property
    def drives(self) -> Drives | None: ...

    @property
    def snapshots(self) -> DiskSnapshots | None: ...

    @property
    def firmware_keys(self) -> FirmwareKeys | None: ...

    @property
    def adoption(self) -> Adoption | None: ...

    async def power(self, machine: UUID, command: PowerCommand, boot: BootPlan) -> Outcome:
        """Do what the command says; return when its outcome is observed.

        No boot or stop follows from ON of a running machine, which runs on if another paused it,
        or of one that another saved, and from OFF and SOFT of a stopped one.

        `boot.now` is the order of a boot that the command causes, `boot.after` of every later
        one, also those that the guest causes by itself and also while the daemon is dead; a
        machine that boots by script asks for it instead.
        SOFT returns when the request was delivered. Raises `Gone`, `HostUnreachable` or
        `ProviderError` with the reason.
        """

    async def machines(self) -> Sequence[MachineEvent]:
        """The power state of all our machines, in one bulk call, as OBSERVED events."""

    def watch(self) -> AsyncIterator[MachineEvent]:
        """Events of all our machines as they happen, for ever; mandatory.

        Opens with one OBSERVED event for each machine. After a lost connection: UNREACHABLE for
        each machine, then, once it is back, OBSERVED for each again.
        """

    async def console(self, machine: UUID) -> ConsoleStream:
        """The interactive stream of the machine's first serial port. One at a time."""

    def console_record(self, machine: UUID) -> str:
        """Path, on the host, of the record of that port; rotated siblings end in .0, .1 …"""


class BootOrder(Protocol):
    """Running machines whose next boot can be chosen from outside."""

    async def set_boot(self, machine: UUID, boot: BootPlan) -> None:
        """Set what the next reset of a running machine boots, and what those after it boot.

        Does nothing for a stopped one: `power` passes it.
        """


class Drives(Protocol):
    """CD drives of machines."""

    async def insert(self, machine: UUID, medium: Medium) -> None:
        """Put a medium into the CD drive, running or not, instead of the one that is in it.

        It stays there over power cycles and changes of the shape until it is ejected.
        """

    async def eject(self, machine: UUID) -> None:
        """Empty the CD drive; an empty one is no error."""


class DiskSnapshots(Protocol):
    """States of disks and firmware variables, kept by a name ([a-z0-9-]+)."""

    async def refusal(self, machine: UUID) -> str:
        """Why no state of it can be kept as it is now; "" if one can."""

    async def pause(self, machine: UUID) -> bool:
        """Stop its CPUs for a while, once a start that is under way has ended.

        Returns whether it is on; one that is off is left unchanged.
        """

    async def resume(self, machine: UUID) -> None:
        """Continue it; nothing for one that is not paused."""

    async def create(self, machine: UUID, name: str) -> None:
        """Keep its disks and firmware variables under this name, in place of an earlier state.

        Only of a machine that is paused or off.
        """

    async def list(self, machine: UUID) -> Mapping[str, Mapping[str, KeptState]]:
        """Each of its disks, by its volume's name -> name -> the state that it keeps so called,
        running or not.
        """

    async def blocker(self, machine: UUID, name: str) -> str:
        """Why the state of that name cannot be restored completely to it as it is now; "" if it
        can. Its variables may be those of another firmware than it has by now.
        """

    async def restore(self, machine: UUID, name: str) -> None:
        """Bring the disks and variables of a machine that is off to what they were.

        Raises `Gone` when its disks have no state of that name.
        """

    async def delete(self, machine: UUID, name: str) -> None:
        """Remove that state; one that is not there is no error."""


class FirmwareKeys(Protocol):
    """Machines whose UEFI variables can be read."""

    async def key_databases(self, machine: UUID) -> Sequence[KeyDatabase]:
        """What its firmware trusts now, running or not; () where that is not known."""


class Adoption(Protocol):
    """Machines that nospoon did not make are claimed and released, where its own are created and
    deleted.
    """

    async def claim(self, resource: Resource, tag: OwnerTag) -> None:
        """Tag a machine that another made (`shape.adopted`), and change nothing else of it.
        `watch` reports its power (OBSERVED).

        Idempotent. Raises `Gone` when it is not there, `NotOurs` for one that another cluster has.
        """

    async def release(self, observed: Observed) -> None:
        """Take the tag off, and with it all that was changed since: it is again as its owner has
        it, who may have changed it meanwhile. It goes on running. Gone already is no error.
        """


LOOKS = frozenset(
    {
        "observe", "machines", "watch", "console", "list", "refusal", "blocker", "key_databases",
        "capabilities", "deployments", "survey", "adoptable", "check", "close",
    }
)  # fmt: skip
"""The calls of this contract that change nothing; a daemon that lost leadership may make them."""


class ConsoleStream(Protocol):
    """Bytes to and from a serial port. `read` returns b"" at its end, ever after; one that is
    cancelled loses nothing.
    """

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    async def send_break(self) -> None:
        """A break condition, which guests take for an attention key. Raises `Gone` where there is
        none.
        """

    async def close(self) -> None: ...


class Connection(Protocol):
    """One way to make things on one host: its capabilities and its drivers."""

    @property
    def drivers(self) -> Mapping[Kind, Driver]: ...

    @property
    def machine_driver(self) -> MachineDriver: ...

    async def capabilities(self) -> Capabilities:
        """What this connection can do, by asking alone: nothing is made or started for it."""

    async def deployments(self) -> Mapping[str, int]:
        """Deployment -> how many things there carry its tag: ours, and those of others."""

    async def survey(self, pools: str, named: Collection[str]) -> HostFacts:
        """What a plan must know of the host; nothing is changed. `pools`: the directory there in
        which pools are made; `named`: what is looked for of others, volumes as POOL/VOLUME and
        images of a cloud as glance:NAME.
        """

    async def adoptable(self) -> tuple[Adoptable, ...] | None:
        """Every machine there that nospoon did not make, and whose node it is, in as few calls as
        the connection allows; None where there can be no such machine.
        """

    def configure(self, host: Host) -> None:
        """The host is described differently now: settings that need no new connection."""

    async def check(self) -> None:
        """Raises `HostUnreachable` or `MissingTool` when nothing could be made there now."""

    async def close(self) -> None: ...


OpenImage = Callable[[str], Awaitable[str]]
"""sha256 of an uploaded or fetched image -> path of the daemon's own copy of it."""
OpenSeed = Callable[[str], Awaitable[Seed]]
"""Digest (`Machine.seed`) -> what cloud-init reads in a machine that is made or changed now. Raises
`ProviderError` at any other time.
"""


async def no_seeds(digest: str) -> Seed:
    """Of connections that make no machines with cloud-init."""
    raise ProviderError(f"no cloud-init data {digest[:12]} here: this connection was given none")


__all__ = [
    "LOOKS",
    "Adoption",
    "BootOrder",
    "Connection",
    "ConsoleStream",
    "DiskSnapshots",
    "Driver",
    "Drives",
    "FirmwareKeys",
    "Key",
    "MachineDriver",
    "Medium",
    "OpenImage",
    "OpenSeed",
    "no_seeds",
]
