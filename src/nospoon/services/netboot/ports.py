"""What the netboot service asks of the world: the one boot authority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from nospoon.model.boot import BootDevice


@dataclass(frozen=True, slots=True)
class ServedFile:
    """A file of the daemon's own that may be served: its path here and its name in the URL."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class ServedProfile:
    """A boot profile ready to serve: kernel and initrds are local files or http URLs; or the URL of
    an iPXE script.
    """

    name: str
    kernel: ServedFile | str
    initrd: tuple[ServedFile | str, ...]
    cmdline: str
    script: str = ""


@dataclass(frozen=True, slots=True)
class BootAnswer:
    """What a machine shall do now. `profile` None with NETWORK: nothing to boot from there.

    `uri`: with HTTP, what to boot; with CDROM, the image of the medium in the drive. `user_mode`:
    its NICs are QEMU's user-mode network, where this machine has another address. `secret`: the
    UUID that it asked with, where its cloud chose that by chance, so that only its guest and its
    project know it; else None. `boot_image`: it started our boot image, by which NETWORK without a
    profile is PXE on its own networks, and which goes on with `after`, in this order, if this does
    not boot. `medium`: what is in its drive, for CDROM. `starts_disk`: its disk boots only without
    our boot image, which it asks us for (`BootAuthority.leaves`).
    """

    uuid: UUID
    device: BootDevice
    profile: ServedProfile | None = None
    uri: str = ""
    user_mode: bool = False
    secret: UUID | None = None
    boot_image: bool = False
    after: tuple[BootAnswer, ...] = ()
    medium: ServedFile | None = None
    starts_disk: bool = False


class BootAuthority(Protocol):
    """Answers machines that ask what to boot."""

    def answer(self, *, uuid: UUID | None = None, mac: str = "") -> BootAnswer | None:
        """What the machine with this SMBIOS UUID or MAC boots; None: not one of ours."""

    async def booted(self, uuid: UUID) -> None:
        """The answer was fetched: this boot is observed. Uses up Once of script-booted machines."""

    def leaves(self, uuid: UUID) -> None:
        """It starts its disk next, without our boot image."""

    def awaits(self, uuid: UUID, token: str) -> bool:
        """Whether a probe with this token runs on the machine, and has not reported yet."""

    async def reported(self, uuid: UUID, record: Mapping[str, object]) -> None:
        """The probe on this machine sent its record over HTTP."""
