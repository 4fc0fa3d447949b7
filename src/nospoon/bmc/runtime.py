"""Runtime state of one BMC: what must survive a restart of the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from nospoon.bmc.bios import UNSET, Bios
from nospoon.bmc.secure_boot import ENROLLED, SecureBoot
from nospoon.bmc.software import AS_MADE, Software
from nospoon.bmc.users import User
from nospoon.model.boot import NO_OVERRIDE, BootDevice, BootOverride
from nospoon.model.machine import PowerPolicy
from nospoon.model.volumes import AddedVolume

NO_UTC_OFFSET = 0x7FF
"""Get SEL Time UTC Offset (§31.11a): not specified."""


@dataclass(frozen=True, slots=True)
class OutletSettings:
    """Of the PDU's outlet that feeds the machine: seconds (a delay of -1: never), and its name.

    `returns`: it is off for a reboot, and comes back by itself.
    """

    on_delay: int = 0
    off_delay: int = 0
    reboot: int = 5
    name: str = ""
    returns: bool = False


@dataclass(frozen=True, slots=True)
class SolSettings:
    """Of serial over LAN, as table 26-5 has them. `privilege`: least one that may activate it.

    `retry_interval` in 10 ms. The rest is kept and has no effect, for there is no wire: `interval`
    (5 ms) and `threshold` of characters that wait; `bit_rate` and `volatile_bit_rate` as codes.
    """

    enabled: bool = True
    privilege: int = 3
    interval: int = 1
    threshold: int = 1
    retries: int = 7
    retry_interval: int = 50
    bit_rate: int = 0x0A
    volatile_bit_rate: int = 0x0A


@dataclass(frozen=True, slots=True)
class Settings:
    """What clients set and nothing acts on but the BMC; shared by all BMCs that no one set.

    `clock_offset`: seconds by which the log's clock is ahead of ours. `utc_offset`: minutes
    (§31.11a). `asset_tag` and `controller_id`: DCMI 1.5 §6.4.2, §6.6.2, as `bmc.octets` keeps
    them. `system_info`: System Info parameters (§22.14a) as (parameter, text). `users`: those
    besides the node's own account.
    `kg`: the key K_G (§13.31) in hex, "" when it is not set; stored encrypted.
    `verify_media`: servers of virtual media must show a certificate that holds.
    """

    policy: PowerPolicy = PowerPolicy.PREVIOUS
    clock_offset: float = 0.0
    utc_offset: int = NO_UTC_OFFSET
    asset_tag: str = ""
    controller_id: str = ""
    system_info: tuple[tuple[int, bytes], ...] = ()
    users: tuple[User, ...] = ()
    kg: str = field(default="", repr=False)
    outlet: OutletSettings = OutletSettings()
    verify_media: bool = False
    sol: SolSettings = SolSettings()


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Runtime:
    """Persisted before it is acknowledged; never part of a diff.

    `power_fault`: why the last power command failed, "" when it did not (IPMI 2.0 §28.2, bit
    "power fault"). `last_power_event`: bits 4:0 of that section's byte 3. `restart_cause`: §28.11.
    `boot_flags`: the five bytes of boot option parameter 5 as an IPMI client wrote them, b"" after
    anybody else set the override. `clearing`: parameter 3 (§28.13), which says when flags are kept.
    `boot_order`: the persistent order that a client set, () for the cluster file's.
    `http_boot_uri`: what target HTTP boots; `http_boot`: what the boot at hand does, "" for others.
    `media`: what is in the CD drive, as whoever put it there called it.
    `volumes`: those that clients made; the machine has them from its next start on.
    `bios`: firmware settings, and which of them wait for the next boot.
    `secure_boot`: of machines whose firmware has keys; others have the default.
    `software`: versions of firmware that was updated.
    `has_power`: AC power is there; `was_on`: the machine was on when it was lost.
    `filed_policy`: the cluster file's power restore policy, as it was taken over last.
    `on`: whether the machine is on; a stop counts once its host is known to stay up. `host_boot`:
    id of the boot of the host that last restored or confirmed this (random(4), boot_id), "" before.
    """

    override: BootOverride = NO_OVERRIDE
    power_fault: str = ""
    last_power_event: int = 0
    restart_cause: int = 0
    boot_flags: bytes = b""
    clearing: int = 0
    identify: bool = False
    boot_order: tuple[BootDevice, ...] = ()
    http_boot_uri: str = ""
    http_boot: str = ""
    media: str = ""
    has_power: bool = True
    was_on: bool = False
    filed_policy: PowerPolicy = PowerPolicy.PREVIOUS
    on: bool = False
    host_boot: str = ""
    settings: Settings = DEFAULTS
    bios: Bios = UNSET
    volumes: tuple[AddedVolume, ...] = ()
    software: Software = AS_MADE
    secure_boot: SecureBoot = ENROLLED


_DEFAULT = Runtime()
_NAMES = tuple(each.name for each in fields(Runtime))


def shared(runtime: Runtime) -> Runtime:
    """The same, as one of thousands that were read: its parts that are at their defaults are one
    object for all of them.
    """
    parts = {
        name: default
        for name in _NAMES
        if (found := getattr(runtime, name)) is not (default := getattr(_DEFAULT, name))
        and found == default
    }
    return replace(runtime, **parts)
