"""Which of the sizes that a cloud offers a node has: the smallest in which it fits, which it keeps
for as long as it fits.
"""

from __future__ import annotations

from nospoon.model.cluster import Node
from nospoon.model.host_facts import HostFacts, SizeOffered
from nospoon.plan.words import counted, size

GIB, SHOWN = 1 << 30, 5


def disk_space(node: Node) -> int:
    """Bytes of all disks of a node, each in whole GiB, as Nova counts them."""
    return sum(-(-disk.size // GIB) * GIB for disk in node.disks)


def chosen(node: Node, facts: HostFacts | None, kept: str = "") -> SizeOffered | None:
    """The size of a node; None where it may have any, and where none fits. `kept`: name of the one
    that it has.
    """
    fit = [
        each
        for each in (facts.sizes or () if facts is not None else ())
        if each.memory >= node.memory and each.cpus >= node.cpus and each.disk >= disk_space(node)
    ]
    had = [each for each in fit if each.name == kept]
    return min(
        had or fit, key=lambda each: (each.memory, each.cpus, each.disk, each.id), default=None
    )


def lacking(node: Node, facts: HostFacts) -> str:
    """Why a node has no size there, "" where it has one, or may have any."""
    if facts.sizes is None or chosen(node, facts) is not None:
        return ""
    wanted = _words(node.cpus, node.memory, disk_space(node))
    largest = sorted(facts.sizes, key=lambda each: (each.memory, each.disk), reverse=True)
    offered = "; ".join(
        f"{each.name}: {_words(each.cpus, each.memory, each.disk)}" for each in largest[:SHOWN]
    )
    return (
        f"no flavor has {wanted}. Nodes' disks are ephemeral disks of the flavor, which a cloud "
        f"that has none of them adds for nospoon. The largest flavors: {offered or 'none'}."
    )


def _words(cpus: int, memory: int, disk: int) -> str:
    return f"{counted(cpus, 'CPU')}, {size(memory)} of memory, {size(disk)} of disks"
