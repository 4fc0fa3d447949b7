"""Resources: everything that nospoon makes somewhere, as desired or as observed.

A resource is a key and a shape. The same shape types describe what is wanted and what a driver
found, so that a difference is a comparison of fields. Which field may change how is not said
here: that is capability data of the connection (`nospoon.providers.base`).
"""

from __future__ import annotations

from dataclasses import dataclass

from nospoon.model.ironic import (
    IronicConnector,
    IronicDiscovery,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
)
from nospoon.model.nova import NovaFlavor, NovaInventory
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.groups import ServerGroup
from nospoon.model.resources.key_pairs import KeyPair
from nospoon.model.resources.keys import Key
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import FloatingIp, Link, Port, Router, Trunk
from nospoon.model.resources.relays import Relay
from nospoon.model.resources.storage import BootImage, Image, KeptRoot, Pool, Volume
from nospoon.model.resources.tags import OwnerTag

InIronic = IronicNode | IronicPortgroup | IronicPort | IronicConnector | IronicTarget
"""Records of Ironic's, each with a UUID and settings."""
Enrolled = InIronic | IronicStanding | IronicDiscovery
InNova = NovaFlavor | NovaInventory
InCloud = BootImage | Port | Trunk | FloatingIp | Router | ServerGroup | KeyPair | Relay | KeptRoot
OnHost = Pool | Image | Volume | Link | InCloud | NetbootService | Machine
Shape = OnHost | Bmc | Enrolled | InNova


def is_adopted(shape: Shape) -> bool:
    """Whether it is a machine that someone else made."""
    return isinstance(shape, Machine) and bool(shape.adopted)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A shape that is as good, and in which words it differs."""

    shape: Shape
    words: str


@dataclass(frozen=True, slots=True)
class Resource:
    """A desired resource and what must exist before it. `note` is written into its tag.
    `alternatives`: in the place of its shape, one after the other, where its host has no computer
    for that.
    """

    key: Key
    shape: Shape
    needs: tuple[Key, ...] = ()
    node: str = ""
    note: str = ""
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Deviation:
    """What was found of a thing beside its shape, which a host may change and no file asks for."""

    field: str
    found: str | tuple[str, ...]
    wanted: str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """A resource as found. `running`: a change would disturb a guest.

    `fault` tells why the thing, though there, does not work (a failed machine, a dead process).
    `live`: what a running machine still has, where that is not yet `shape`; else None.
    `deviations`: beside its shape; `late`: those of a running machine that its definition has not.
    """

    key: Key
    shape: Shape
    tag: OwnerTag
    running: bool = False
    fault: str = ""
    live: Shape | None = None
    deviations: tuple[Deviation, ...] = ()
    late: tuple[Deviation, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether a running machine still has something that it loses at its next power-off."""
        return self.live is not None or bool(self.late)
