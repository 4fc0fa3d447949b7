"""Which connections a host of a file has, and what the places are called that they make of it."""

from __future__ import annotations

from nospoon.clusterfile.models import HostSection
from nospoon.model.cluster import BESIDES
from nospoon.model.connections import ConnectionKind


def connections_of(section: HostSection) -> list[ConnectionKind]:
    """What it has, in the order in which they come to the host's name. One that says nothing has
    libvirt.
    """
    given = [kind for kind in ConnectionKind if getattr(section, kind) is not None]
    return given or [ConnectionKind.LIBVIRT]


def places_of(name: str, section: HostSection) -> list[str]:
    """Names of its places: the first is called as the host."""
    _, *others = connections_of(section)
    return [name, *(f"{name}{BESIDES}{kind}" for kind in others)]
