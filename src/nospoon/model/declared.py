"""What a connection is by its kind and settings: known before it is opened, and while it is away.

What only the host itself knows, it is asked for: `nospoon.model.capabilities`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nospoon.model.boot import BootMethod
from nospoon.model.images import DISKS, ROOT_FORMAT, HypervisorType
from nospoon.model.node_kind import NodeKind


class Networking(StrEnum):
    """What the NICs of a connection's machines are plugged into."""

    BRIDGES = "bridges"  # of the host, made by us or there already
    SHARED = "shared"  # the same, which the host's first connection makes
    EXISTING = "existing"  # networks that are there already: we make none
    USER_MODE = "user-mode"  # the emulator itself, which lets nothing in
    SIMULATED = "simulated"  # links that exist in the daemon alone
    PORTS = "ports"  # ports of networks, made by us or there already, that a cloud switches


class Sizes(StrEnum):
    """Which sizes machines may have."""

    FREE = "free"  # any
    FLAVORS = "flavors"  # those that the host offers (`HostFacts.sizes`)


class Uuids(StrEnum):
    """Who assigns the UUID that a machine's guest reads in its firmware (SMBIOS type 1)."""

    CHOSEN = "chosen"  # nospoon: it is the node's
    ASSIGNED = "assigned"  # the host, when it makes the machine; events say it


class Console(StrEnum):
    """What can be had of a machine's serial console."""

    STREAM = "stream"  # both ways, and its log
    TAIL = "tail"  # the end of its log, which is asked for; both ways where its host has a proxy
    NONE = "none"


class ConsoleLog(StrEnum):
    """Who writes the log of a machine's serial console."""

    HOST = "host"  # the machine's host, also while no daemon runs
    DAEMON = "daemon"  # this daemon, of what it hears or asks for


class Media(StrEnum):
    """What sees a medium that is in a machine's CD drive."""

    DRIVE = "drive"  # firmware and operating system
    LOADER = "loader"  # firmware and loaders, which read it over HTTP


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How a place may be called. `at_once`: calls that it is given at a time.

    `pauses`, in seconds: what fails with a `nospoon.errors.Transient` is tried again after each of
    them, or as late as the place says itself (Retry-After), but `longest_pause` at most.
    """

    at_once: int = 8
    pauses: tuple[float, ...] = (1.0, 3.0)
    longest_pause: float = 30.0

    def pause(self, usual: float, wanted: float | None) -> float:
        """Seconds until the next try. `wanted`: as the place says, None where it says nothing."""
        return usual if wanted is None else min(wanted, self.longest_pause)


@dataclass(frozen=True, slots=True)
class Declared:
    """What the plan, and all that carries it out, may build on before a host is asked.

    `is_real`: its machines are outside of the daemon, on a host where commands run, which may
    have things of others, run out of room, and be reached under two names. `has_pools`: disks are
    volumes in pools, which we make; else they come and go with their machine. `has_boot_image`:
    machines boot an image that is made there. `node_kinds`: which nodes it makes;
    `hypervisor_types`: images for which machine types it runs; `root_formats`: of roots with which
    its containers begin. `has_groups`: it runs machines on several computers, where server
    groups keep them together or apart. `has_key_pairs`: it gives VMs and containers one ssh key
    beside their user data; `most_user_data`: bytes that this may have, together with what
    services need, 0 where that is apart and nothing limits it. `runs_made`: what starts from an
    image runs as soon as it is made. `sets_caches`: disks are cached as the file says.
    `stored_roots`: nodes of which it stores a former root, where disks come and go with their
    machine. `packages`: of Debian, that its host needs besides those of every host, and
    `preparation`: the variable by which the collection nospoon.host prepares a host for it, ""
    for none.
    """

    is_real: bool
    networking: Networking
    boot: BootMethod
    has_pools: bool = True
    has_boot_image: bool = False
    sizes: Sizes = Sizes.FREE
    uuids: Uuids = Uuids.CHOSEN
    console: Console = Console.STREAM
    console_log: ConsoleLog = ConsoleLog.HOST
    media: Media = Media.DRIVE
    calls: CallLimits = CallLimits()
    node_kinds: frozenset[NodeKind] = frozenset({NodeKind.BAREMETAL})
    hypervisor_types: frozenset[HypervisorType] = DISKS
    root_formats: frozenset[str] = frozenset({ROOT_FORMAT})
    has_groups: bool = False
    has_key_pairs: bool = False
    most_user_data: int = 0
    runs_made: bool = False
    sets_caches: bool = True
    stored_roots: frozenset[NodeKind] = frozenset()
    packages: tuple[str, ...] = ()
    preparation: str = ""

    def boot_of(self, *, asks: bool) -> BootMethod:
        """Of one of its machines. Where machines boot by a script, those that do not ask for it
        boot nothing by our order.
        """
        if self.boot is not BootMethod.SCRIPT or asks:
            return self.boot
        return BootMethod.NONE

    @property
    def has_bridges(self) -> bool:
        """Whether its machines are plugged into real bridges, on which we may serve DHCP."""
        return self.networking is Networking.BRIDGES

    @property
    def shares_networks(self) -> bool:
        """Whether its machines are on networks that the host's first connection makes."""
        return self.networking is Networking.SHARED

    @property
    def makes_networks(self) -> bool:
        """Whether networks of a file can be made there."""
        return self.networking in {Networking.BRIDGES, Networking.SIMULATED, Networking.PORTS}

    @property
    def has_networks(self) -> bool:
        """Whether its machines are on the networks of a file, real or simulated."""
        return self.networking is not Networking.USER_MODE

    @property
    def has_ports(self) -> bool:
        """Whether each NIC is plugged into a port, which we make."""
        return self.networking is Networking.PORTS
