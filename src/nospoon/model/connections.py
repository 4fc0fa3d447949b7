"""The ways to make machines on a host; what each declares: `nospoon.model.declared`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Self
from urllib.parse import parse_qs, urlsplit

from nospoon.model.affinity import USUAL_RULES, GroupRules
from nospoon.model.agent import Agents
from nospoon.model.boot import BootMethod
from nospoon.model.declared import (
    CallLimits,
    Console,
    ConsoleLog,
    Declared,
    Media,
    Networking,
    Sizes,
    Uuids,
)
from nospoon.model.images import DISKS, MOUNTED_ROOT, ROOT_FORMAT, HypervisorType
from nospoon.model.node_kind import NodeKind

USUAL_SOCKET = "/run/libvirt/libvirt-sock"


class ConnectionKind(StrEnum):
    """A way to make machines on a host."""

    LIBVIRT = "libvirt"
    LXC = "lxc"
    DOCKER = "docker"
    SIMULATED = "simulated"
    OPENSTACK = "openstack"


class WhenOff(StrEnum):
    """What a cloud does with a server that its BMC powers off."""

    STOP = "stop"  # it keeps its place on its compute host
    SHELVE = "shelve"  # its root becomes an image, and it has no place until it is powered on


@dataclass(frozen=True, slots=True)
class Simulation:
    """How machines of a simulated host behave; times in seconds.

    `shut_down`: from a soft power-off to the guest's end. `boot`: from power-on until the guest
    has said `console`. `power_failures`: the part of power commands that fail, from 0 to 1.
    `machines`: names of those there that others made. `cpus`, and `memory` in bytes: of the host, 0
    for as much as one likes.
    `agents` None: what boots from the network or a medium runs nothing.
    """

    make: float = 0.0
    power_on: float = 0.0
    power_off: float = 0.0
    shut_down: float = 0.0
    boot: float = 0.0
    power_failures: float = 0.0
    console: str = ""
    agents: Agents | None = None
    machines: tuple[str, ...] = ()
    cpus: int = 0
    memory: int = 0


class _Usual:
    """What a connection says of itself where it has nothing else to say."""

    __slots__ = ()

    @property
    def socket(self) -> str:
        """Of the daemon there, by its path; "" for the usual one, and where there is none."""
        return ""

    @property
    def pools(self) -> str:
        """Below the host's directory of pools, where its own are; "" for there."""
        return ""

    @property
    def login(self) -> str:
        """The name of its login, "" where there is none."""
        return ""

    def with_login(self, login: str) -> Self:
        """The same with another login. Raises `ValueError` where there is none."""
        raise ValueError(f"no login at {self}: got {login}")

    @property
    def boot_address(self) -> str:
        """Where its boot images ask, "" where there are none."""
        return ""

    @property
    def relay(self) -> RelaySpec | None:
        """By what its boot images reach this daemon, in the place of a `boot_address`."""
        return None

    @property
    def is_asked(self) -> bool:
        """Whether its boot images know where to ask what to boot."""
        return bool(self.boot_address) or self.relay is not None

    @property
    def has_volumes(self) -> bool:
        """Whether disks of its machines are volumes beside their sizes."""
        return False

    @property
    def zone(self) -> str:
        """Availability zone of its machines, "" for the usual one, and where there are none."""
        return ""

    @property
    def zones(self) -> tuple[str, ...]:
        """Availability zones that its machines may have, best first; () where there are none."""
        return (self.zone,) if self.zone else ()

    @property
    def names_sizes(self) -> bool:
        """Whether the file says which sizes its machines may have."""
        return False

    @property
    def groups(self) -> GroupRules:
        """How rules of affinity hold among its computers."""
        return USUAL_RULES

    @property
    def key_pair(self) -> str:
        """Name of a key pair that its machines of images have, "" for none."""
        return ""

    @property
    def external(self) -> str:
        """The external network to which networks with NAT lead; "" for the only one, and where
        there are none.
        """
        return ""

    @property
    def off(self) -> WhenOff:
        """What becomes of its machines that are powered off."""
        return WhenOff.STOP

    def shelves(self, disks: int) -> bool:  # noqa: ARG002  (none)
        """Whether it shelves a VM with so many disks when it is powered off."""
        return False

    @property
    def agents(self) -> Agents | None:
        """Of machines that boot what a deployer gives them; None where they are their own."""
        return None

    @property
    def behaviour(self) -> object | None:
        """Settings that hold for machines that are there already; None for none."""
        return None


@dataclass(frozen=True, slots=True)
class Libvirt(_Usual):
    """A libvirtd of QEMU, by its URI. A session has no rights: user-mode networks, a boot ISO."""

    uri: str
    kind: ClassVar = ConnectionKind.LIBVIRT

    @property
    def place(self) -> tuple[str, ...]:
        return self.kind, self.uri

    @property
    def declares(self) -> Declared:
        if urlsplit(self.uri).path == "/session":
            return SESSION
        return SYSTEM

    @property
    def daemon(self) -> tuple[str, ...]:
        """The same for URIs that lead to one libvirtd of a machine, as far as they tell: its mode,
        and its socket, "" for the usual one (https://libvirt.org/uri.html).
        """
        socket = self.socket.replace("/var/run/", "/run/", 1)
        return urlsplit(self.uri).path, "" if socket == USUAL_SOCKET else socket

    @property
    def socket(self) -> str:
        return "".join(parse_qs(urlsplit(self.uri).query).get("socket", [])[:1])

    @property
    def machine(self) -> str:
        """That the URI names, "" for the one where it is opened."""
        return urlsplit(self.uri).netloc

    def __str__(self) -> str:
        return self.uri


@dataclass(frozen=True, slots=True)
class Simulated(_Usual):
    """Machines in the daemon's own memory."""

    simulation: Simulation = field(default_factory=Simulation)
    kind: ClassVar = ConnectionKind.SIMULATED

    @property
    def agents(self) -> Agents | None:
        return self.simulation.agents

    @property
    def behaviour(self) -> Simulation:
        return self.simulation

    @property
    def place(self) -> tuple[str, ...]:
        return (self.kind,)

    @property
    def declares(self) -> Declared:
        return IN_MEMORY

    @property
    def daemon(self) -> tuple[str, ...]:
        """No one's: two names are two hosts."""
        return ()

    @property
    def machine(self) -> str:
        return ""

    def __str__(self) -> str:
        return ConnectionKind.SIMULATED


def _privileges(*, new: bool) -> tuple[str, ...]:
    return ("new privileges",) if new else ()


@dataclass(frozen=True, slots=True)
class Lxc(_Usual):
    """System containers, by the commands of liblxc. `idmap`: first user id of the host that stands
    for root in them, and how many there are (user_namespaces(7)); 0, 0: those that the host
    reserves for root in /etc/subuid. `new_privileges`: programs in them may gain rights by their
    files, as sudo(8) does (PR_SET_NO_NEW_PRIVS of prctl(2) is not set).
    """

    idmap: tuple[int, int] = (0, 0)
    new_privileges: bool = False
    kind: ClassVar = ConnectionKind.LXC

    @property
    def place(self) -> tuple[str, ...]:
        first, count = self.idmap
        return self.kind, f"{first}:{count}", *_privileges(new=self.new_privileges)

    @property
    def declares(self) -> Declared:
        return CONTAINERS

    @property
    def pools(self) -> str:
        """A libvirt beside it has the same names of pools."""
        return "lxc"

    @property
    def daemon(self) -> tuple[str, ...]:
        """There is one of a machine: what is made there is found by its commands."""
        return (self.kind,)

    @property
    def machine(self) -> str:
        return ""

    def __str__(self) -> str:
        return ConnectionKind.LXC


@dataclass(frozen=True, slots=True)
class Docker(_Usual):
    """System containers, by an engine that has Docker's API: Podman's service or Docker Engine.
    `socket`: its own, by its path on the host; "" for the usual ones. `new_privileges`: as `Lxc`
    has it, of those that are made from then on.
    """

    socket: str = ""
    new_privileges: bool = False
    kind: ClassVar = ConnectionKind.DOCKER

    @property
    def place(self) -> tuple[str, ...]:
        return self.kind, self.socket, *_privileges(new=self.new_privileges)

    @property
    def declares(self) -> Declared:
        return NAMED_ENGINE if self.socket and "podman" not in self.socket else ENGINE

    @property
    def pools(self) -> str:
        """Beside those of a libvirt and of liblxc, which have the same names. Those of another
        engine are elsewhere: what it has made is unknown to this one.
        """
        end = hashlib.sha256(self.socket.encode()).hexdigest()[:8] if self.socket else ""
        return f"docker-{end}" if end else "docker"

    @property
    def daemon(self) -> tuple[str, ...]:
        """Two sockets are two engines, as far as they tell."""
        return self.kind, self.socket

    @property
    def machine(self) -> str:
        return ""

    def __str__(self) -> str:
        return ConnectionKind.DOCKER


RELAY_PORT = 8069
"""Where a relay answers boot images, TCP."""


@dataclass(frozen=True, slots=True)
class RelaySpec:
    """What the file says of the machine by which guests of a cloud reach this daemon. `network`: of
    the file, on which it is. `image`, `flavor`: of the cloud, by name or id. `floating_ip`: the
    external network of an address by which the daemon reaches it, and `floating_address` which one;
    "" for the one on `network`. `address`: there, "" for nospoon's choice. `port`: of its sshd.
    `bmcs`: BMCs answer on its network, too. `nameservers`: of that, where it serves DHCP.
    """

    network: str
    image: str
    flavor: str
    floating_ip: str = ""
    floating_address: str = ""
    address: str = ""
    port: int = 22
    bmcs: bool = False
    nameservers: tuple[str, ...] = ()


LONGEST_KEY = 512
"""Characters of JSON."""


@lru_cache(maxsize=256)
def _short(at: str) -> str:
    """The same of the same, for keys: a URL has up to 8,000 characters, and PostgreSQL takes 2,704
    bytes of a key.
    """
    written = json.dumps(at)
    return at if len(written) <= LONGEST_KEY else hashlib.sha256(written.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class OpenStack(_Usual):
    """A project of an OpenStack cloud. `cloud`: what its file calls it. `at`: where it leads, of
    Keystone's URL, region, and who logs in to which project, without secrets; `login` names the
    secrets.

    `flavors`: of Nova that machines may have, by name or id; (): all that the project sees.
    `zone`: availability zone of servers, "" for Nova's choice. `boot_address`: this daemon's, as
    guests there reach it. `external`: the external network to which networks with NAT lead, by name
    or id; "" for the only one. `has_volumes`: disks of servers are volumes of Cinder, of
    `volume_type`, "" for the usual one; else they are parts of their flavor. `off`: of servers that
    are powered off. `relay`: by which guests reach this daemon where they reach no `boot_address`.
    `groups`: how rules of affinity hold among its compute hosts. `key_pair`: of VMs and the relay,
    one that is there; "" for those that nospoon makes. `further_zones`: where `zone` has no host
    for a server.
    """

    cloud: str
    at: str
    login: str = field(default="", repr=False)
    flavors: tuple[str, ...] = ()
    zone: str = ""
    boot_address: str = ""
    external: str = ""
    has_volumes: bool = False
    volume_type: str = ""
    off: WhenOff = WhenOff.STOP
    relay: RelaySpec | None = None
    groups: GroupRules = USUAL_RULES
    key_pair: str = ""
    further_zones: tuple[str, ...] = ()
    kind: ClassVar = ConnectionKind.OPENSTACK

    @property
    def zones(self) -> tuple[str, ...]:
        return (self.zone, *self.further_zones) if self.zone else ()

    @property
    def names_sizes(self) -> bool:
        return bool(self.flavors)

    def shelves(self, disks: int) -> bool:
        """Nova keeps a root and volumes of what it shelves, and no other disk."""
        return self.off is WhenOff.SHELVE and (disks == 1 or self.has_volumes)

    @property
    def place(self) -> tuple[str, ...]:
        return self.kind, _short(self.at), self.login  # who has another login may see other things

    def with_login(self, login: str) -> Self:
        return replace(self, login=login)

    @property
    def declares(self) -> Declared:
        return CLOUD

    @property
    def daemon(self) -> tuple[str, ...]:
        """Two names of one login are one host."""
        return self.at, self.login

    @property
    def machine(self) -> str:
        return self.at

    def __str__(self) -> str:
        return f"{ConnectionKind.OPENSTACK}: {self.cloud}"


ConnectionSpec = Libvirt | Lxc | Docker | Simulated | OpenStack
SYSTEM_LIBVIRT = Libvirt("qemu:///system")
"""Of a host that says nothing else."""
SYSTEM = Declared(
    is_real=True,
    networking=Networking.BRIDGES,
    boot=BootMethod.NATIVE,
    node_kinds=frozenset({NodeKind.BAREMETAL, NodeKind.VM}),
)
SESSION = Declared(is_real=True, networking=Networking.USER_MODE, boot=BootMethod.SCRIPT)
CONTAINERS = Declared(
    is_real=True,
    networking=Networking.SHARED,
    boot=BootMethod.NONE,
    node_kinds=frozenset({NodeKind.CONTAINER}),
    hypervisor_types=frozenset({HypervisorType.LXC}),
    packages=("lxc", "uidmap"),
    preparation="nospoon_containers",
)
ENGINE = replace(
    CONTAINERS,
    hypervisor_types=frozenset({HypervisorType.DOCKER}),
    packages=("podman", "runc"),
    preparation="nospoon_engine",
)
NAMED_ENGINE = replace(ENGINE, packages=(), preparation="")
"""One that is there, and that a host gets no Podman besides."""
IN_MEMORY = Declared(
    is_real=False,
    networking=Networking.SIMULATED,
    boot=BootMethod.NATIVE,
    console_log=ConsoleLog.DAEMON,
    calls=CallLimits(at_once=64),
    node_kinds=frozenset(NodeKind),
    hypervisor_types=frozenset(HypervisorType),
    root_formats=frozenset({ROOT_FORMAT, MOUNTED_ROOT}),
)
NOVAS_USER_DATA = 65535 // 4 * 3
"""Bytes: Nova takes 65535 characters in Base64 (`user_data` of its schema of servers)."""
CLOUD = Declared(
    is_real=True,
    networking=Networking.PORTS,
    boot=BootMethod.SCRIPT,
    node_kinds=frozenset(NodeKind),
    hypervisor_types=DISKS | {HypervisorType.LXC},
    root_formats=frozenset({MOUNTED_ROOT}),
    has_pools=False,
    has_boot_image=True,
    has_groups=True,
    has_key_pairs=True,
    most_user_data=NOVAS_USER_DATA,
    runs_made=True,
    sets_caches=False,
    stored_roots=frozenset({NodeKind.VM}),
    sizes=Sizes.FLAVORS,
    uuids=Uuids.ASSIGNED,
    console=Console.TAIL,
    console_log=ConsoleLog.DAEMON,
    media=Media.LOADER,
    calls=CallLimits(pauses=(1.0, 3.0, 5.0)),
)
