"""What follows when a guest ends: a guest that reboots goes on, every other end is an end.

https://libvirt.org/formatdomain.html#events-configuration
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as ET

from nospoon.providers.libvirt.elements import leaf, text_of


@dataclass(frozen=True, slots=True)
class Ends:
    """In libvirt's words."""

    poweroff: str = "destroy"
    reboot: str = "restart"
    crash: str = "destroy"

    def __str__(self) -> str:
        return f"power-off: {self.poweroff}, reboot: {self.reboot}, crash: {self.crash}"


WANTED = Ends()


def parsed_ends(root: ET.Element) -> Ends:
    """Of a domain; what it does not say is libvirt's usual."""
    return Ends(
        poweroff=text_of(root, "on_poweroff", WANTED.poweroff),
        reboot=text_of(root, "on_reboot", WANTED.reboot),
        crash=text_of(root, "on_crash", WANTED.crash),
    )


def rendered_ends() -> list[ET.Element]:
    return [
        leaf("on_poweroff", WANTED.poweroff),
        leaf("on_reboot", WANTED.reboot),
        leaf("on_crash", WANTED.crash),
    ]
