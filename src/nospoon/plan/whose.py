"""Whose a resource is, by its name: also what nobody desires any more tells it."""

from __future__ import annotations

from nospoon.model.resources import Key, Kind

OF_A_NODE = frozenset(
    {Kind.MACHINE, Kind.BMC, Kind.IRONIC_NODE, Kind.IRONIC_STANDING, Kind.IRONIC_DISCOVERY}
)
"""Kinds whose resources are named as their nodes."""
NUMBERED = frozenset({Kind.VOLUME, Kind.IRONIC_PORT, Kind.IRONIC_CONNECTOR, Kind.IRONIC_TARGET})
"""Kinds of which a node has several: its name, a hyphen and a number."""


def whose(key: Key) -> str:
    """The node that a resource is of, "" for what is no node's."""
    if key.kind in NUMBERED:
        return key.name.rpartition("-")[0]
    return key.name if key.kind in OF_A_NODE else ""
