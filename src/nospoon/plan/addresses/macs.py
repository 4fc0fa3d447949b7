"""MAC addresses of other clusters: one that two machines have would boot as either of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from nospoon.model.resources import Machine, Resource, is_adopted

Holder = Callable[[str], str]
"""Which other cluster has a NIC with this MAC, in words that its reader may know; "" for none."""

MADE = "Give this one another `mac`, or none: then it gets one of its own."
ADOPTED = (
    "If it is the same machine, take it out of that cluster; else change one in its definition."
)


def against_macs(desired: Iterable[Resource], holder: Holder) -> Iterator[str]:
    """Why machines cannot have the MACs that their file gives them."""
    for each in desired:
        for nic in each.shape.nics if isinstance(each.shape, Machine) else ():
            other = holder(nic.mac)
            if other:
                yield (
                    f"node {each.node or each.key.name}: {other} has a NIC with MAC {nic.mac} "
                    f"already. {ADOPTED if is_adopted(each.shape) else MADE}"
                )
