"""Flavors of the file -> flavors of Nova: one of a resource class, and none of virtual machines.

https://docs.openstack.org/ironic/latest/install/configure-nova-flavors.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID, uuid5

from nospoon.model.cluster import Cluster, Node
from nospoon.model.nova import NovaFlavor, WantedFlavor
from nospoon.model.resources import Key, Kind, Resource
from nospoon.plan.enrol import PLACE, settings, values

STANDARD = ("VCPU", "MEMORY_MB", "DISK_GB")
"""Resources of virtual machines, of which a node of Ironic has none."""
MIB, GIB = 1 << 20, 1 << 30


def resource_name(resource_class: str) -> str:
    """A resource class of Ironic as Placement has it."""
    return "CUSTOM_" + re.sub(r"[^A-Z0-9_]", "_", resource_class.upper())


def nova_flavors(cluster: Cluster, cluster_id: UUID) -> Iterator[Resource]:
    """The flavors that there are to be in Nova."""
    for wanted in cluster.nova:
        yield Resource(
            Key(Kind.NOVA_FLAVOR, PLACE, wanted.name), _shape(cluster, cluster_id, wanted)
        )


def _shape(cluster: Cluster, cluster_id: UUID, wanted: WantedFlavor) -> NovaFlavor:
    like = [n for n in cluster.nodes if n.enrolment.resource_class == wanted.resource_class]
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
