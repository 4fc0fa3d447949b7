"""Which connections a host of a file has, and what the places are called that they make of it."""

from __future__ import annotations

from collections.abc import Mapping

from nospoon.clusterfile.models import HostSection
from nospoon.model.cluster import BESIDES
from nospoon.model.connections import ConnectionKind


def connections_of(section: HostSection) -> list[ConnectionKind]:
    """What it has, in the order in which they come to the host's name. One that says nothing has
    libvirt.
    """
    given = [kind for kind in ConnectionKind if getattr(section, kind) is not None]
    return given or [ConnectionKind.LIBVIRT]


def place_named(text: str, hosts: Mapping[str, HostSection]) -> str:
    """The place that a node's `host` means: HOST:CONNECTION is HOST where it is the first one."""
    name, _, kind = text.partition(BESIDES)
    first = connections_of(hosts[name])[0] if name in hosts else None
    return name if kind == first else text


def places_of(name: str, section: HostSection) -> list[str]:
    """Names of its places: the first is called as the host."""
    _, *others = connections_of(section)
    return [name, *(f"{name}{BESIDES}{kind}" for kind in others)]
