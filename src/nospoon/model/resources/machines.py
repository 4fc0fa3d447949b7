"""Shapes of machines, with their disks and NICs."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.boot import BootDevice, BootMethod
from nospoon.model.cluster import Arch, Firmware, Switch
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.storage import OWN_FORMAT


@dataclass(frozen=True, slots=True)
class MachineDisk:
    """A disk as the machine sees it; `volume` names a Volume resource, or an `existing` one.

    `cache` and `discard` by libvirt's words. `rotation_rate` is SBC-3's MEDIUM ROTATION RATE:
    revolutions per minute; 1: nothing rotates; 0: the guest is not told. `size` in bytes, of one
    that comes and goes with its machine and is no volume; else 0. `mount`: where a container has
    it, "" for its root and for disks.
    """

    volume: str
    bus: str
    serial: str
    cache: str = "writeback"
    discard: str = "unmap"
    rotation_rate: int = 0
    format: str = OWN_FORMAT
    size: int = 0
    mount: str = ""

    @property
    def existing(self) -> bool:
        """Whether `volume` is POOL/VOLUME of someone else's: no resource, and never ours."""
        return "/" in self.volume.strip("/")

    @property
    def file_system(self) -> str:
        """What a container has in its place."""
        return f"file system at {self.mount}" if self.mount else "root file system"


@dataclass(frozen=True, slots=True)
class MachineNic:
    """A NIC as the machine sees it. `network`: as its host or cloud knows it by name, of
    which the provider finds the bridge or port; "": user-mode networking (session hosts).

    `port`: name of its port on the network, the same at each start; "": the host's choice.
    `vlan`: id of the VLAN that it is in, untagged; `trunk`: of those that reach it tagged.
    `sends_from`: None: whatever it likes; else its own MAC and this IPv4 address alone, "": the
    first one that it uses. `virtual_ips`: besides that address, where one is given.
    """

    mac: str
    network: str
    model: str
    port: str = ""
    switch: Switch = Switch.BRIDGE
    vlan: int | None = None
    trunk: tuple[int, ...] = ()
    sends_from: str | None = None
    virtual_ips: tuple[str, ...] = ()

    @property
    def senders(self) -> tuple[str, ...]:
        """The addresses that a filter lets through, () for the first one that it sees."""
        return tuple(filter(None, (self.sends_from, *self.virtual_ips)))


@dataclass(frozen=True, slots=True)
class Machine:
    """A virtual server's shape. `memory` in bytes.

    `boot`: who makes it boot what its BMC says. `ipv6`: UEFI looks for network boot by IPv6, too.
    `adopted`: the name that it has on its host, of one that someone else made; else "".
    `flavor`: what its cloud calls its size, `zone`: where that runs it; "" elsewhere.
    `shelved`: its cloud shelves it when it is powered off. `group`: name of its server group, ""
    for none; `key_pair`: of its key pair, after `THEIRS` that of others.
    `seed`: digest of what cloud-init reads in it (`model.seed`), "" for nothing.
    `asks_at`: URL at which the boot image asks that it was made of, "" for none, or one that was
    not noted.
    """

    uuid: UUID
    cpus: int
    memory: int
    arch: Arch
    firmware: Firmware
    tpm: bool
    disks: tuple[MachineDisk, ...]
    nics: tuple[MachineNic, ...]
    boot_order: tuple[BootDevice, ...]
    boot: BootMethod
    ipv6: bool = False
    adopted: str = ""
    flavor: str = ""
    zone: str = ""
    kind: NodeKind = NodeKind.BAREMETAL
    seed: str = field(default="", repr=False)
    shelved: bool = False
    group: str = ""
    key_pair: str = ""
    asks_at: str = ""

    @property
    def asks(self) -> bool:
        """Whether it boots an image that asks the daemon what to do."""
        return self.boot is BootMethod.SCRIPT

    @property
    def boots_root(self) -> bool:
        """Whether it boots its root whatever its BMC is asked for: a container, and a VM whose
        boots nospoon has no part in.
        """
        is_vm = self.kind is NodeKind.VM
        return self.kind is NodeKind.CONTAINER or (is_vm and self.boot is BootMethod.NONE)

    @property
    def has_firmware(self) -> bool:
        """Whether it has settings, keys and a version of its own, and hardware that is emulated: a
        container has its host's kernel and processors, and file systems in place of disks.
        """
        return self.kind is not NodeKind.CONTAINER

    @property
    def takes_media(self) -> bool:
        """Whether firmware of it looks at what is in a CD drive."""
        return not self.boots_root

    @property
    def takes_volumes(self) -> bool:
        """Whether it gets the volumes that clients of its BMC make: a disk each, beside its own.
        Neither a cloud nor a container has a place for them.
        """
        return self.has_firmware and not self.adopted and not self.flavor

    @property
    def parts(self) -> int:
        """How many a cloud may have written here, whose tags are anyone's."""
        of_nics = sum(len(each.trunk) + len(each.virtual_ips) for each in self.nics)
        own = (self.disks, self.nics, self.boot_order)
        return sum(map(len, own)) + of_nics

    @property
    def serial_number(self) -> str:
        """SMBIOS serial number: derived, so that no one can disagree about it; "" of a machine of
        others or of a cloud, which has what that gave it.
        """
        if self.adopted or self.flavor:
            return ""
        return f"NS{self.uuid.hex[:12].upper()}"
