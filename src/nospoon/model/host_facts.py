"""What is known of a host when a plan is made, as its connection found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network

from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.images import KeptIn
from nospoon.model.resources import ExistingVolume, Machine, OwnerTag


@dataclass(frozen=True, slots=True)
class Route:
    """A network that a host reaches through a device, by a gateway or, with "", directly.

    `used`: it is a single address that the host uses now, and how; "" for a route of the kernel.
    """

    network: IPv4Network | IPv6Network
    device: str
    gateway: str = ""
    used: str = ""

    @property
    def shown(self) -> str:
        """For a message, before the host's name."""
        if self.used:
            address = self.network.network_address
            return f"{address} ({self.used}), which is reached through {self.device} by the routes"
        return f"the route {self.network} dev {self.device}"


ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class SizeOffered:
    """A size of machines that a cloud offers (a flavor of Nova's). `memory` in bytes; `disk`: what
    all blank disks of a machine may have together, and `root`: what one made of an image has, in
    bytes; `ENDLESS` where they are volumes beside it.
    """

    name: str
    id: str
    cpus: int
    memory: int
    disk: int
    root: int = 0
    arch: str = "x86_64"


@dataclass(frozen=True, slots=True)
class Adoptable:
    """A machine on a host as others might have made it. `sizes` of its disks, in bytes, 0 for
    unknown. `tag`: whose node it is, None for nobody's, and `node` which one. `hindrance`: why it
    cannot be a node, "" if it can. `made`: nospoon made it, for whomever. `id`: what its host calls
    it besides its name, where that is not its UUID.
    """

    machine: Machine
    sizes: tuple[int, ...] = ()
    tag: OwnerTag | None = None
    hindrance: str = ""
    made: bool = False
    node: str = ""
    id: str = ""

    @property
    def name(self) -> str:
        return self.machine.adopted


@dataclass(frozen=True, slots=True)
class Quota:
    """What nodes of a project of a cloud may have in all, beside what others there use; None: as
    much as one likes. `memory` in bytes. Not less than 0, where others use more than they may.
    `whole`: the same without what others use, None where that is not known.
    """

    servers: int | None = None
    cpus: int | None = None
    memory: int | None = None
    whole: Quota | None = field(default=None, compare=False)

    @property
    def emptied(self) -> Quota:
        """What it would be if others used nothing."""
        return self.whole or self


def known(left: int | None) -> int:
    """What a quota leaves as facts of a host have it, where 0 is unknown."""
    return 0 if left is None else max(1, left)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a host when the plan is made. `memory`, `disk` in bytes; 0: unknown.

    `links`: its network interfaces, None where nobody looked. `real`: guests really run there.
    `masters`: of an interface that is plugged into a bridge, the bridge; `bridges`: those.
    `ovs_bridges`: bridges of Open vSwitch, which are no Linux bridges.
    `volumes`: of those that the file names as existing, what is there, by POOL/VOLUME.
    `identity`: hosts of one identity are one machine with several connections, counted once.
    `anti_spoofing`: it can keep NICs to their own MAC and address.
    `away`: why nobody could ask it, "" for one that answers.
    `closed`: a directory above its pools that QEMU may not enter, "" for none or unknown.
    `boot_ports`: UDP ports of network boot that other servers have, and which, "" for unknown.
    `machines`: those of others, None where nobody looked for them or there can be none.
    `sizes`: which alone machines may have, None where they may have any. `networks`: existing ones
    by name and by id, None where networks are bridges; `own_networks`: those of them whose ports we
    may open; `external_networks`: name and id of those to which a router may lead. `quota`: of its
    project. `provider_networks`: its project may see in which physical networks networks are.
    `kept`: the roots of snapshots there, and the firmware that starts them. `flavors`: all
    sizes of its cloud by name and by id, those that nodes may not have too; None where there are
    none.
    """

    firmwares: frozenset[Firmware]
    archs: frozenset[Arch]
    tpm: bool
    managed_networks: bool
    cpus: int = 0
    memory: int = 0
    disk: int = 0
    closed: str = ""
    routes: tuple[Route, ...] = ()
    links: frozenset[str] | None = None
    real: bool = False
    identity: str = ""
    masters: Mapping[str, str] = field(default_factory=dict)
    bridges: frozenset[str] = frozenset()
    ovs_bridges: frozenset[str] = frozenset()
    anti_spoofing: bool = False
    away: str = ""
    volumes: Mapping[str, ExistingVolume] = field(default_factory=dict)
    machines: tuple[Adoptable, ...] | None = None
    sizes: tuple[SizeOffered, ...] | None = None
    networks: frozenset[str] | None = None
    own_networks: frozenset[str] = frozenset()
    external_networks: tuple[tuple[str, str], ...] = ()
    quota: Quota = Quota()
    provider_networks: bool = False
    kept: Mapping[KeptIn, Firmware] = field(default_factory=dict)
    boot_ports: Mapping[int, str] = field(default_factory=dict)
    flavors: Mapping[str, SizeOffered] | None = None

    @classmethod
    def of_one_that(cls, can: Capabilities) -> HostFacts:
        """Of a host of these capabilities, as far as they tell."""
        return cls(
            firmwares=can.firmwares,
            archs=can.archs,
            tpm=can.tpm,
            managed_networks=can.managed_networks,
            cpus=can.cpus,
            memory=can.memory,
            identity=can.identity,
            anti_spoofing=can.anti_spoofing,
        )

    @classmethod
    def of_one_away(cls, why: str) -> HostFacts:
        """Of a host that does not answer: nothing."""
        return cls(frozenset(), frozenset(), tpm=False, managed_networks=False, away=why)

    @property
    def emptied(self) -> HostFacts:
        """The same host, if others of its project used nothing."""
        whole = self.quota.whole
        if whole is None:
            return self
        return replace(self, cpus=known(whole.cpus), memory=known(whole.memory), quota=whole)

    def bridge(self, link: str) -> str:
        """Where machines plug in that want to reach this interface: itself, or its bridge."""
        return link if link in self.bridges else self.masters.get(link, link)
