"""One row per kind of resource: what the plan, its order and those who carry it out know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
from nospoon.model.resources.keys import IRONIC, NOVA, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import FloatingIp, Link, Port, Router, Trunk
from nospoon.model.resources.relays import Relay
from nospoon.model.resources.resource import Shape
from nospoon.model.resources.storage import BootImage, Image, KeptRoot, Pool, Volume


class Named(StrEnum):
    """How resources of a kind are called."""

    BY_ITSELF = "by itself"  # it is no node's
    AS_ITS_NODE = "as its node"
    BEFORE_DOT = "before a dot"  # its node, a dot and more
    NUMBERED = "numbered"  # its node, a hyphen and a number: a node has several


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`shape`: of its resources.

    Who has it. `named`. `by_daemon`: a driver of the daemon's own handles it, for several hosts.
    `outside`: its place, which is no host: Ironic, or the Nova of its cloud; "" for a host.
    `moves`: a node has its own on its host, and takes it along to another.

    Its faults. `repaired`: by `up`; else one is runtime, and its user decides. `of_node`: it counts
    as its node's.

    Its order. `after_ironic`: of a node that is to be blank, it waits until Ironic was told so.
    `after_release`: of a node that goes, it waits until Ironic lets go of it. `after_users`: it
    goes after those who had it are changed to be without. `waits`: its driver only waits for
    another service, and takes nothing of a host meanwhile.

    `unique`: Ironic refuses a name or MAC that others have there.
    """

    shape: type[Shape]
    named: Named = Named.BY_ITSELF
    by_daemon: bool = False
    outside: str = ""
    moves: bool = False
    repaired: bool = False
    of_node: bool = False
    after_ironic: bool = False
    after_release: bool = False
    after_users: bool = False
    waits: bool = False
    unique: bool = False


KINDS: Mapping[Kind, Row] = {
    Kind.POOL: Row(shape=Pool, repaired=True),
    Kind.IMAGE: Row(shape=Image, repaired=True),
    Kind.NETWORK: Row(shape=Link, repaired=True, after_users=True),
    Kind.VOLUME: Row(
        shape=Volume,
        named=Named.NUMBERED,
        moves=True,
        repaired=True,
        after_ironic=True,
        after_release=True,
        after_users=True,
    ),
    Kind.BOOT_IMAGE: Row(shape=BootImage, repaired=True),
    Kind.PORT: Row(shape=Port, named=Named.NUMBERED, moves=True, after_users=True),
    Kind.TRUNK: Row(shape=Trunk, named=Named.NUMBERED, moves=True),
    Kind.FLOATING_IP: Row(shape=FloatingIp, named=Named.NUMBERED, moves=True),
    Kind.ROUTER: Row(shape=Router, repaired=True),
    Kind.SERVER_GROUP: Row(shape=ServerGroup, after_users=True),
    Kind.KEY_PAIR: Row(shape=KeyPair, after_users=True),
    Kind.RELAY: Row(shape=Relay, repaired=True),
    Kind.NETBOOT: Row(shape=NetbootService, by_daemon=True, repaired=True),
    Kind.MACHINE: Row(
        shape=Machine,
        named=Named.AS_ITS_NODE,
        moves=True,
        of_node=True,
        after_ironic=True,
        after_release=True,
    ),
    Kind.SNAPSHOT: Row(shape=KeptRoot, named=Named.BEFORE_DOT),
    Kind.BMC: Row(
        shape=Bmc,
        named=Named.AS_ITS_NODE,
        by_daemon=True,
        moves=True,
        repaired=True,
        after_ironic=True,
        after_release=True,
    ),
    Kind.IRONIC_NODE: Row(
        shape=IronicNode, outside=IRONIC, named=Named.AS_ITS_NODE, after_ironic=True, unique=True
    ),
    Kind.IRONIC_PORTGROUP: Row(shape=IronicPortgroup, outside=IRONIC, after_users=True),
    Kind.IRONIC_PORT: Row(
        shape=IronicPort, outside=IRONIC, named=Named.NUMBERED, after_ironic=True, unique=True
    ),
    Kind.IRONIC_CONNECTOR: Row(shape=IronicConnector, outside=IRONIC, named=Named.NUMBERED),
    Kind.IRONIC_TARGET: Row(shape=IronicTarget, outside=IRONIC, named=Named.NUMBERED),
    Kind.IRONIC_STANDING: Row(
        shape=IronicStanding, outside=IRONIC, named=Named.AS_ITS_NODE, of_node=True, waits=True
    ),
    Kind.IRONIC_DISCOVERY: Row(shape=IronicDiscovery, outside=IRONIC, named=Named.AS_ITS_NODE),
    Kind.NOVA_FLAVOR: Row(shape=NovaFlavor, outside=NOVA),
    Kind.NOVA_INVENTORY: Row(shape=NovaInventory, outside=NOVA, waits=True),
}


def whose(key: Key) -> str:
    """The node that a resource is of, by its name: also of what no one desires any more. "" for
    what is no node's.
    """
    match KINDS[key.kind].named:
        case Named.AS_ITS_NODE:
            return key.name
        case Named.NUMBERED:
            return key.name.rpartition("-")[0]
        case Named.BEFORE_DOT:
            return key.name.partition(".")[0]
        case Named.BY_ITSELF:
            return ""
