"""What is known of a host when a plan is made, as its connection found it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from uuid import UUID

from nospoon.model.capabilities import Capabilities
from nospoon.model.cloud_images import CloudImage
from nospoon.model.cluster import Arch, Firmware
from nospoon.model.images import KeptIn
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.storage import ExistingVolume
from nospoon.model.resources.tags import OwnerTag


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
ISO, QCOW2 = "iso", "qcow2"
"""Formats of images."""


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
    unknown. `tag`: whose node it is, None for no one's, and `node` which one. `hindrance`: why it
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


class QuotaName(StrEnum):
    """What a project of a cloud has quotas of. Memory and space are in bytes. "Of type": of that
    which volumes of the host have; `VOLUME_SIZE`: of one volume; `GROUP_MEMBERS`: of one group;
    `KEY_PAIRS`: of the user of the login.
    """

    SERVERS = "servers"
    CPUS = "cpus"
    MEMORY = "memory"
    PORTS = "ports"
    TRUNKS = "trunks"
    NETWORKS = "networks"
    SUBNETS = "subnets"
    ROUTERS = "routers"
    FLOATING_IPS = "floating_ips"
    SERVER_GROUPS = "server_groups"
    GROUP_MEMBERS = "group_members"
    KEY_PAIRS = "key_pairs"
    VOLUMES = "volumes"
    VOLUME_SPACE = "volume_space"
    VOLUMES_OF_TYPE = "volumes_of_type"
    SPACE_OF_TYPE = "space_of_type"
    VOLUME_SIZE = "volume_size"


@dataclass(frozen=True, slots=True)
class Share:
    """A quota: `most` that a project may have, `used` by all in it, and how much of that each
    cluster of this nospoon has.
    """

    most: int
    used: int = 0
    own: Mapping[UUID, int] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Beside what others than nospoon use, who may use more than there is."""
        return max(0, self.most - self.used + sum(self.own.values()))

    def used_beside(self, cluster: UUID) -> int:
        """By others, and by all other clusters."""
        return max(0, self.used - self.own.get(cluster, 0))


@dataclass(frozen=True, slots=True)
class Quota:
    """Those of a project of a cloud. What is neither in `shares` nor in `unknown` is unlimited.
    `allocated`: floating IPs that it has by itself: they count, and cost nothing more. `unknown`:
    those that the cloud does not show to the login.
    """

    shares: Mapping[QuotaName, Share] = field(default_factory=dict)
    allocated: frozenset[str] = frozenset()
    unknown: frozenset[QuotaName] = frozenset()

    def left(self, name: QuotaName) -> int | None:
        """For nodes of nospoon; None: as much as one likes, or unknown."""
        share = self.shares.get(name)
        return None if share is None else share.left

    @property
    def emptied(self) -> Quota:
        """What it would be if nothing were used."""
        shares = {name: Share(each.most) for name, each in self.shares.items()}
        return replace(self, shares=shares)


def known(left: int | None) -> int:
    """What a quota leaves as facts of a host have it, where 0 is unknown."""
    return 0 if left is None else max(1, left)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a host when the plan is made. `memory`, `disk` in bytes; 0: unknown.

    `links`: its network interfaces, None where no one looked. `real`: guests really run there.
    `masters`: of an interface that is plugged into a bridge, the bridge; `bridges`: those.
    `ovs_bridges`: bridges of Open vSwitch, which are no Linux bridges.
    `volumes`: of those that the file names as existing, what is there, by POOL/VOLUME.
    `identity`: hosts of one identity are one machine with several connections, counted once.
    `anti_spoofing`: it can keep NICs to their own MAC and address.
    `away`: why no one could ask it, "" for one that answers.
    `closed`: a directory above its pools that QEMU may not enter, "" for none or unknown.
    `boot_ports`: UDP ports of network boot that other servers have, and which, "" for unknown.
    `machines`: those of others, None where no one looked for them or there can be none.
    `sizes`: which alone machines may have where they are flavors (`Declared.sizes`). `networks`:
    existing ones by name and by id, None where networks are bridges; `own_networks`: those of them
    whose ports we may open; `external_networks`: name and id of those to which a router may lead.
    `quota`: of its project. `provider_networks`: its project may see in which physical networks
    networks are. `trunks`: whether Neutron there makes trunks of ports, None for unknown. `roles`:
    those of its login; `image_formats`: in which its cloud takes images, None for unknown;
    `makes_cds`: it has the root of a machine as a CD, whatever the format of its image.
    `computes`: what its cloud's compute hosts run, in Nova's words and lower case; None where its
    login may not see them. `kept`: the roots of snapshots there, and the firmware that starts them.
    `flavors`: all sizes of its cloud by name and by id, those that nodes may not have too; None
    where there are none. `counts_in_groups`: a server group can have several machines on a compute
    host. `key_pairs`: of the user of its login, None where no one looked. `addresses`: of existing
    networks of a cloud, by name and by id, how many their subnets give to ports. `cloud_images`: of
    its Glance, those that the file names, by what it says, which several may be called.
    """

    firmwares: frozenset[Firmware]
    archs: frozenset[Arch]
    tpm: bool
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
    sizes: tuple[SizeOffered, ...] = ()
    networks: frozenset[str] | None = None
    own_networks: frozenset[str] = frozenset()
    external_networks: tuple[tuple[str, str], ...] = ()
    quota: Quota = Quota()
    provider_networks: bool = False
    addresses: Mapping[str, int] = field(default_factory=dict)
    trunks: bool | None = None
    roles: tuple[str, ...] = ()
    image_formats: frozenset[str] | None = None
    makes_cds: bool = False
    computes: frozenset[str] | None = None
    kept: Mapping[KeptIn, Firmware] = field(default_factory=dict)
    boot_ports: Mapping[int, str] = field(default_factory=dict)
    flavors: Mapping[str, SizeOffered] | None = None
    counts_in_groups: bool = False
    key_pairs: frozenset[str] | None = None
    cloud_images: Mapping[str, tuple[CloudImage, ...]] = field(default_factory=dict)

    @classmethod
    def of_one_that(cls, can: Capabilities) -> HostFacts:
        """Of a host of these capabilities, as far as they tell."""
        return cls(
            firmwares=can.firmwares,
            archs=can.archs,
            tpm=can.tpm,
            cpus=can.cpus,
            memory=can.memory,
            identity=can.identity,
            anti_spoofing=can.anti_spoofing,
        )

    @classmethod
    def of_one_away(cls, why: str) -> HostFacts:
        """Of a host that does not answer: nothing."""
        return cls(frozenset(), frozenset(), tpm=False, away=why)

    @property
    def boot_image_format(self) -> str:
        """In which boot images are made there, "" for none; ISO where its cloud does not say."""
        if self.image_formats is None or ISO in self.image_formats:
            return ISO
        return QCOW2 if QCOW2 in self.image_formats and self.makes_cds else ""

    @property
    def emptied(self) -> HostFacts:
        """The same host, if nothing of its project's quotas were used."""
        quota = self.quota.emptied
        if not quota.shares:
            return self
        cpus, memory = (known(quota.left(each)) for each in (QuotaName.CPUS, QuotaName.MEMORY))
        return replace(self, cpus=cpus, memory=memory, quota=quota)

    def bridge(self, link: str) -> str:
        """Where machines plug in that want to reach this interface: itself, or its bridge."""
        return link if link in self.bridges else self.masters.get(link, link)
