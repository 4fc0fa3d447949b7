"""Kinds of resources, and their names within a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of resources, in the order in which a cluster is usually made."""

    POOL = "pool"
    IMAGE = "image"
    NETWORK = "network"
    VOLUME = "volume"
    BOOT_IMAGE = "boot-image"
    PORT = "port"
    TRUNK = "trunk"
    FLOATING_IP = "floating-ip"
    ROUTER = "router"
    SERVER_GROUP = "server-group"
    KEY_PAIR = "key-pair"
    RELAY = "relay"
    NETBOOT = "netboot"
    MACHINE = "machine"
    SNAPSHOT = "snapshot"
    BMC = "bmc"
    IRONIC_NODE = "ironic-node"
    IRONIC_PORTGROUP = "ironic-portgroup"
    IRONIC_PORT = "ironic-port"
    IRONIC_CONNECTOR = "ironic-volume-connector"
    IRONIC_TARGET = "ironic-volume-target"
    IRONIC_STANDING = "ironic-standing"
    IRONIC_DISCOVERY = "ironic-discovery"
    NOVA_FLAVOR = "nova-flavor"
    NOVA_INVENTORY = "nova-inventory"


IRONIC, NOVA = "Ironic", "Nova"
"""Places outside of hosts. No host is called so: their names are lower-case."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one resource within a cluster. `place`: where it lives, a host with one of its
    connections (`Host.name`), or a service outside of hosts, `IRONIC` or `NOVA`.
    """

    kind: Kind
    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}@{self.place}"
