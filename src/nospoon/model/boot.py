"""What a machine boots next: the one boot authority, as a pure function.

A BMC holds a *boot override* (IPMI 2.0 §28.13 boot flags; Redfish `Boot` of ComputerSystem):
a target, and whether it holds once, until changed, or not at all. The shape of a node holds
its *persistent order*. `next_boot` combines them. A connection with native boot order is told
both halves of the answer: the order of the boot at hand and the order of every boot after it,
so that a guest which resets itself follows the second without anybody's help. Machines that
boot our small ISO ask the daemon, which answers from the same function.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nospoon.model.volumes import AddedVolume

BOOT_URL = "{{boot}}"
"""In a kernel's command line: the URL of nospoon's boot server, as the machine that asks reaches
it.
"""


class BootMethod(StrEnum):
    """Who makes a machine boot what its BMC says."""

    NATIVE = "native"  # its connection, which gets an order for this boot and for those after it
    SCRIPT = "script"  # a boot image, which asks the daemon
    NONE = "none"  # no one: it boots what its host or cloud boots


class BootDevice(StrEnum):
    """A class of device that firmware can boot from.

    HTTP is the network too, with a URI that the BMC holds (Redfish `UefiHttp`, `HttpBootUri`).
    """

    NETWORK = "network"
    HTTP = "http"
    DISK = "disk"
    CDROM = "cdrom"
    SETUP = "setup"


ROOT_ALONE: tuple[BootDevice | None, ...] = (None, BootDevice.DISK)
"""Targets of machines that boot their root whatever their BMC is asked for."""

OTHER_DEVICES = {
    "pxe": "network",
    "net": "network",
    "uefihttp": "http",
    "hd": "disk",
    "hdd": "disk",
    "cd": "cdrom",
    "dvd": "cdrom",
    "bios": "setup",
    "biossetup": "setup",
}
"""ipmitool's and Redfish's names of boot devices, in lower case -> nospoon's."""


class OverrideEnabled(StrEnum):
    """How long an override holds; the values are Redfish's `BootSourceOverrideEnabled`."""

    DISABLED = "Disabled"
    ONCE = "Once"
    CONTINUOUS = "Continuous"


class BootMode(StrEnum):
    """Firmware interface asked for; the values are Redfish's `BootSourceOverrideMode`."""

    LEGACY = "Legacy"
    UEFI = "UEFI"


@dataclass(frozen=True, slots=True)
class BootOverride:
    """The override that a BMC holds. `target` None means: no override."""

    target: BootDevice | None = None
    enabled: OverrideEnabled = OverrideEnabled.DISABLED
    mode: BootMode | None = None

    @property
    def active(self) -> bool:
        return self.target is not None and self.enabled is not OverrideEnabled.DISABLED


NO_OVERRIDE = BootOverride()


@dataclass(frozen=True, slots=True)
class BootPlan:
    """`now`: devices for the boot at hand, first tried first. `after`: for every boot after it.

    `secure_boot`: whether firmware with enrolled keys checks signatures from the next start on, and
    then until told otherwise; None: as it does now. `reset_keys`: the next start puts those keys
    back that the firmware was made with. `volumes`: all that the machine has from the next start on
    besides the disks of its shape.
    """

    now: tuple[BootDevice, ...]
    after: tuple[BootDevice, ...]
    secure_boot: bool | None = None
    volumes: tuple[AddedVolume, ...] = ()
    reset_keys: bool = False


def next_boot(order: tuple[BootDevice, ...], override: BootOverride) -> BootPlan:
    """What a machine with this persistent order and this override boots next, and afterwards."""
    if not override.active or override.target is None:
        return BootPlan(now=order, after=order)
    target = BootDevice.NETWORK if override.target is BootDevice.HTTP else override.target
    first = (target, *(device for device in order if device is not target))
    after = first if override.enabled is OverrideEnabled.CONTINUOUS else order
    return BootPlan(now=first, after=after)


def used_up(override: BootOverride) -> BootOverride:
    """The override after a boot that followed it was observed."""
    return NO_OVERRIDE if override.enabled is OverrideEnabled.ONCE else override
