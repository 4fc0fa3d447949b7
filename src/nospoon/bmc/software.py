"""Versions of the firmware of one machine and its BMC: what was installed, and what waits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from nospoon.bmc.fru import Inventory
from nospoon.model.cluster import Firmware

FIRMWARES = {Firmware.BIOS: "SeaBIOS", Firmware.UEFI: "EDK II", Firmware.UEFI_SECURE: "EDK II"}
"""What is told of firmware that was never updated: the host has its version."""


class Component(StrEnum):
    """What has a version of its own."""

    BMC = "BMC"
    BIOS = "BIOS"


Versions = tuple[tuple[Component, str], ...]


@dataclass(frozen=True, slots=True)
class Software:
    """What was updated; shared by all machines of which nothing was.

    `versions`: of what was updated. `waiting`: BIOS for the next boot, BMC for its next restart.
    """

    versions: Versions = ()
    waiting: Versions = ()

    def version(self, component: Component) -> str:
        """ "" for what was never updated."""
        return dict(self.versions).get(component, "")


AS_MADE = Software()


def told(software: Software, component: Component, made: Inventory) -> str:
    """The version that IPMI and Redfish tell: as updated last, before that as the node was made."""
    first = made.version if component is Component.BMC else made.firmware
    return software.version(component) or first


def installed(software: Software, component: Component, version: str) -> Software:
    """After an update that holds at once; an older one that waits is forgotten."""
    return Software(
        versions=_with(software.versions, component, version),
        waiting=_without(software.waiting, component),
    )


def staged(software: Software, component: Component, version: str) -> Software:
    """After an update that waits."""
    return replace(software, waiting=_with(software.waiting, component, version))


def restarted(software: Software, component: Component) -> Software:
    """After this component started again: what waited for that is installed."""
    version = dict(software.waiting).get(component)
    return software if version is None else installed(software, component, version)


def _with(versions: Versions, component: Component, version: str) -> Versions:
    return (*_without(versions, component), (component, version))


def _without(versions: Versions, component: Component) -> Versions:
    return tuple(each for each in versions if each[0] is not component)
