"""A lab: where machines for recipes come from, and under which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

GIB = 1 << 30


class Disks(StrEnum):
    """What a filter may ask of the disk of a dynamic machine."""

    PRECLUDE = "preclude"  # nothing: it has what its flavor gives
    FLAVOR = "flavor"  # its size, which is that of the flavor's disk
    ASKED = "asked"  # its size, of which the disk is made


class Prefer(StrEnum):
    """Which machine a recipe gets where both kinds match."""

    DYNAMIC = "dynamic"
    REGISTERED = "registered"


@dataclass(frozen=True, slots=True)
class LabFlavor:
    """A flavor of the file as filters compare it. `memory` and `disk`, its largest, in bytes.
    `images`: sources of its disks' images (`Disk.source`). `unfit`: why no machine can be made of
    it, "" where one can. `wired`: whether it has a NIC, by which an installer is loaded.
    """

    name: str
    cpus: int
    memory: int
    disk: int
    images: tuple[str, ...] = ()
    unfit: str = ""
    arch: str = "x86_64"
    wired: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """Of dynamic machines at a time; 0: no limit. `memory` in bytes. `per_owner`: machines that one
    owner of requests has, dynamic or registered.
    """

    machines: int = 0
    cpus: int = 0
    memory: int = 0
    per_owner: int = 0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `boot`: from power-on until the installer reports; `install`: from then until it is
    done; `panic`: what is left of a lease after a panic, so that the console's end arrives.
    """

    boot: float = 1800
    install: float = 10800
    panic: float = 600


@dataclass(frozen=True, slots=True)
class Distro:
    """What installs a machine. `kernel` and `initrd` are URLs, or `script` is that of an iPXE
    script; `tree`: URL of the installation tree; `kickstart`: a template, "" for requests that
    bring their own. In place of all that `image`, a path, URL or name, of which machines are made,
    with its `checksum`; `user_data`: a template of what cloud-init gets there. `has_boot_image`:
    dynamic machines start from an image of kernel and ramdisk, and not from the network.
    """

    name: str
    kernel: str = ""
    initrd: str = ""
    tree: str = ""
    cmdline: str = ""
    kickstart: str = ""
    script: str = ""
    image: str = ""
    checksum: str = ""
    user_data: str = ""
    has_boot_image: bool = False

    @property
    def makes_vms(self) -> bool:
        """Whether dynamic machines start from an image."""
        return bool(self.image) or self.has_boot_image

    def starts(self, flavor: LabFlavor) -> bool:
        """Whether it comes onto machines of a flavor: installers come over the network."""
        return flavor.wired or self.makes_vms

    @property
    def source(self) -> str:
        """What names the content of its image, as `Disk.source` does; "" for none."""
        return f"{self.image} {self.checksum}" if self.checksum else self.image


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where events of a lab's recipe sets are sent. `secret` signs them."""

    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the probe found on a registered machine. `at`: Unix seconds; `bmc`: where its BMC was,
    as `Registered.bmc` has it. The others as those of `Registered`.
    """

    at: float
    bmc: str
    arch: str
    memory: int
    cpus: int
    disks: tuple[int, ...] = ()
    macs: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Registered:
    """A machine that is there already, known by its BMC. `memory` in MiB, `disks` in bytes;
    `system`: id of its System, "" for the only one of its Redfish service. `values`: other
    attributes, by their element's group and name (`system/vendor`), and keys of `key_value`. What
    its file leaves out is "", 0 or (), until `with_inventory`. `password` is in the file's text
    alone and in memory.
    """

    name: str
    protocol: str = "ipmi"
    address: str = ""
    port: int = 623
    tls: bool = True
    username: str = ""
    password: str = field(default="", repr=False)
    system: str = ""
    arch: str = "x86_64"
    memory: int = 0
    cpus: int = 0
    disks: tuple[int, ...] = ()
    hypervisor: str = ""
    macs: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key_values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, int, str]:
        """Of its BMC: no other machine has it."""
        return self.address, self.port, self.system

    @property
    def bmc(self) -> str:
        """What it speaks, and where."""
        where = f"{self.protocol} {self.address}:{self.port}"
        return f"{where} {self.system}" if self.system else where

    def with_inventory(self, found: Inventory | None) -> Registered:
        """With what was found where its file says nothing, and what is usual where nothing was. An
        inventory by another BMC is that of another machine.
        """
        if found is None or found.bmc != self.bmc:
            found = Inventory(0, self.bmc, "x86_64", 0, 1)
        return replace(
            self,
            arch=self.arch or found.arch,
            memory=self.memory or found.memory,
            cpus=self.cpus or found.cpus,
            disks=self.disks or found.disks,
            macs=self.macs or found.macs,
            values={**found.values, **self.values},
            key_values={**found.key_values, **self.key_values},
        )


@dataclass(frozen=True, slots=True)
class Lab:
    """`dynamic`: it makes machines, on `host`, or where they fit when that is "". `users` may
    submit requests, `operators` may act for other owners: names of users, `*` for everyone who may
    use the daemon. `lease`: seconds, where a request gives none. `failures`: in a row, after which
    a registered machine counts as broken. `panic_patterns`: () for Beaker's. `minimum_disk` and
    `largest_disk`, which is that of disks of a size that is asked for, in bytes.
    """

    name: str
    dynamic: bool = True
    host: str = ""
    flavors: tuple[LabFlavor, ...] = ()
    disks: Disks = Disks.PRECLUDE
    minimum_disk: int = 10 * GIB
    largest_disk: int = 100 * GIB
    prefer: Prefer = Prefer.DYNAMIC
    limits: Limits = Limits()
    lease: float = 86400
    timeouts: Timeouts = Timeouts()
    distros: tuple[Distro, ...] = ()
    users: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    machines: tuple[Registered, ...] = ()
    failures: int = 3
    panic_patterns: tuple[str, ...] = ()
    webhooks: tuple[Webhook, ...] = ()

    @property
    def images(self) -> frozenset[str]:
        """Sources of all images of which machines may be made."""
        of_flavors = (source for flavor in self.flavors for source in flavor.images)
        of_distros = (each.source for each in self.distros if each.image)
        return frozenset((*of_flavors, *of_distros))
