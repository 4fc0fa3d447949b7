"""MAC addresses that two machines have: each would boot as either of them. Names of their ports,
too: who plugs in takes out what has that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource, is_adopted

Holder = Callable[[str], str]
"""Which other cluster has a NIC with this MAC, in words that its reader may know; "" for none."""

MADE = "Give this one another `mac`, or none: then it gets one of its own."
ADOPTED = (
    "If it is the same machine, take it out of that cluster; else change one in its definition."
)


def ports_of(machine: Machine) -> str:
    """How the names of its ports begin (`identity.port_name`), "" where nospoon gave it none."""
    if machine.adopted:
        return ""
    return next((nic.port.rpartition("-")[0] for nic in machine.nics if nic.port), "")


def against_port_names(desired: Iterable[Resource], holder: Holder) -> Iterator[str]:
    """Why machines cannot have their ports. `holder`: by how names of ports begin. They have 40
    bits of the node's UUID, and so of the id that a file may choose: who wants to take another
    user's node off its network finds an id that gives its name.
    """
    for each in desired:
        ports = ports_of(each.shape) if isinstance(each.shape, Machine) else ""
        if ports and (other := holder(ports)):
            yield (
                f"node {each.node or each.key.name}: {other} has a node with ports of the same "
                f"names, {ports}-…. Choose another `id:`, or drop it, or rename the node."
            )


def against_macs(desired: Iterable[Resource], holder: Holder) -> Iterator[str]:
    """Why machines cannot have the MACs that their file, or who made them, gives them."""
    taken: dict[tuple[str, str, str], str] = {}
    for each in desired:
        node = each.node or each.key.name
        for nic in each.shape.nics if isinstance(each.shape, Machine) else ():
            first = taken.setdefault((each.key.place, nic.network, nic.mac), node)
            if nic.mac and nic.network and first != node:
                yield (
                    f"nodes {first} and {node} on host {each.key.place}: both have a NIC with MAC "
                    f"{nic.mac} on {nic.network}. Change one of them."
                )
            other = holder(nic.mac)
            if other:
                yield (
                    f"node {node}: {other} has a NIC with MAC {nic.mac} "
                    f"already. {ADOPTED if is_adopted(each.shape) else MADE}"
                )
