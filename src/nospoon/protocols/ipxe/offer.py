"""What a machine is offered, with every file already a place that its loader can fetch."""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.model.boot import BootDevice


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Linux kernel, its initrds and its command line. For iPXE the places are URLs, for GRUB
    paths of its own kind, such as "(tftp,172.30.0.1)/files/x".
    """

    name: str
    kernel: str
    initrds: tuple[str, ...] = ()
    cmdline: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The command line's words: it is one line, whatever the file had in it."""
        return tuple(self.cmdline.split())


@dataclass(frozen=True, slots=True)
class Offer:
    """What to boot now. NETWORK without a kernel: nothing is there, try the next device.
    HTTP: an EFI program, or the image of a disk or CD, at `uri`.

    `refusal` tells why there is nothing, where someone would wonder.
    """

    device: BootDevice
    kernel: Kernel | None = None
    uri: str = ""
    refusal: str = ""
