"""Flavors of the file -> flavors of Nova: one of a resource class, and none of virtual machines.

https://docs.openstack.org/ironic/latest/install/configure-nova-flavors.html
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID, uuid5

from nospoon.model.cluster import Cluster, Node
from nospoon.model.ironic import Standing, Way
from nospoon.model.nova import NovaFlavor, NovaInventory, WantedFlavor
from nospoon.model.resources.keys import IRONIC, NOVA, Key, Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan import identity
from nospoon.plan.enrollment.enrol import settings, values

STANDARD = ("VCPU", "MEMORY_MB", "DISK_GB")
"""Resources of virtual machines, of which a node of Ironic has none."""
COMPUTE = "COMPUTE_"
"""How traits begin that Nova gives its computes, whatever Ironic's nodes have."""
MIB, GIB = 1 << 20, 1 << 30


def resource_name(resource_class: str) -> str:
    """A resource class of Ironic as Placement has it."""
    return "CUSTOM_" + re.sub(r"[^A-Z0-9_]", "_", resource_class.upper())


def class_of(node: Node) -> str:
    """The resource class of a node."""
    return node.enrolment.resource_class


def in_nova(cluster: Cluster, cluster_id: UUID) -> Iterator[Resource]:
    """The flavors that there are to be in Nova, and what is to be in Placement for each."""
    for wanted in cluster.nova:
        yield Resource(
            Key(Kind.NOVA_FLAVOR, NOVA, wanted.name), _shape(cluster, cluster_id, wanted)
        )
    yield from inventories(cluster, cluster_id)


def inventories(cluster: Cluster, cluster_id: UUID) -> Iterator[Resource]:
    """What Placement is to have of the nodes, for each flavor that is waited for and has any.

    Nova's driver offers nodes once they are available, so it waits for their standing.
    """
    of_class = defaultdict[str, list[tuple[Node, tuple[str, UUID], Key]]](list)
    for node in cluster.baremetal if cluster.nova else ():
        named = node.name, identity.uuid_of(cluster_id, node)  # once for all flavors
        key = Key(Kind.IRONIC_STANDING, IRONIC, node.name)
        of_class[class_of(node)].append((node, named, key))
    for wanted in cluster.nova:
        nodes = [each for each in of_class[wanted.resource_class] if _gives(wanted, each[0])]
        if wanted.wait and nodes:
            shape = NovaInventory(
                resource_class=resource_name(wanted.resource_class),
                traits=wanted.traits,
                nodes=tuple(named for _, named, _ in nodes),
            )
            needs = tuple(key for *_, key in nodes)
            yield Resource(Key(Kind.NOVA_INVENTORY, NOVA, wanted.name), shape, needs)


def _gives(wanted: WantedFlavor, node: Node) -> bool:
    """Whether a flavor can give this node. Traits of computes themselves are Nova's own to say."""
    said = node.enrolment
    enrolled = said.way is Way.ENROL and said.state is Standing.AVAILABLE
    traits = {name: what for name, what in wanted.traits if not name.startswith(COMPUTE)}
    return (
        enrolled
        and said.resource_class == wanted.resource_class
        and all((name in node.traits) is (what == "required") for name, what in traits.items())
    )


def _shape(cluster: Cluster, cluster_id: UUID, wanted: WantedFlavor) -> NovaFlavor:
    like = [n for n in cluster.baremetal if class_of(n) == wanted.resource_class]
    cpus, ram, disk = _sizes(like)
    return NovaFlavor(
        id=uuid5(cluster_id, f"nova-flavor/{wanted.name}"),
        name=wanted.name,
        vcpus=cpus if wanted.vcpus is None else wanted.vcpus,
        ram=ram if wanted.ram is None else wanted.ram,
        disk=disk if wanted.disk is None else wanted.disk,
        public=wanted.public,
        settings=settings(
            {
                f"resources:{resource_name(wanted.resource_class)}": "1",
                **{f"resources:{each}": "0" for each in STANDARD},
                **{f"trait:{name}": what for name, what in wanted.traits},
                **values(wanted.specs),
            }
        ),
    )


def _sizes(nodes: list[Node]) -> tuple[int, int, int]:
    """CPUs, MiB and GiB of the smallest of these nodes; they are for people only."""
    if not nodes:
        return 1, 1, 0
    least = min(nodes, key=lambda node: (node.memory, node.cpus))
    return least.cpus, least.memory // MIB, least.disks[0].size // GIB if least.disks else 0
