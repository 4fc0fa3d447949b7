"""MAC addresses that two machines have: each would boot as either of them."""

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
