"""Which of the sizes that a cloud offers a node has: the smallest in which it fits, which it keeps
for as long as it fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from nospoon.model.cluster import Host, Node
from nospoon.model.declared import Sizes
from nospoon.model.host_facts import ENDLESS, HostFacts, SizeOffered
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.machines import Machine
from nospoon.model.sizes import size
from nospoon.plan.words import counted

GIB, SHOWN = 1 << 30, 5


def disk_space(node: Node) -> int:
    """Bytes of all blank disks of a node, each in whole GiB."""
    blank = node.disks if node.kind is NodeKind.BAREMETAL else node.disks[1:]
    return sum(_whole(disk.size) for disk in blank)


def root_space(node: Node) -> int:
    """Bytes of a root that is made of an image, in whole GiB; 0 for a node without one."""
    root = node.disks[:1] if node.kind is not NodeKind.BAREMETAL else ()
    return sum(_whole(disk.size) for disk in root)


def chosen(
    node: Node, host: Host, facts: HostFacts | None, made: Machine | None = None
) -> SizeOffered | None:
    """The size of a node; None where it may have any, and where none fits. `made`: the machine that
    it has, whose size it keeps, also where the file does not allow that for others any more.
    """
    if facts is None or host.declares.sizes is Sizes.FREE:
        return None
    kept = had(made)
    if kept is not None and _fits(node, kept):
        return kept
    fit = [each for each in facts.sizes if _fits(node, each)]
    blank = disk_space(node)
    return min(fit, key=lambda each: (_adds(each, blank), *_order(each)), default=None)


def larger(node: Node, facts: HostFacts, size: SizeOffered) -> list[SizeOffered]:
    """Those that fit as well, and come after one that was chosen."""
    fit = (each for each in facts.sizes if _fits(node, each) and _order(each) > _order(size))
    blank = disk_space(node)
    return sorted(fit, key=lambda each: (_adds(each, blank), *_order(each)))


def _adds(size: SizeOffered, blank: int) -> bool:
    """Whether Nova gives a server an ephemeral disk that its node has not: every one of a flavor
    that has one, whose call names no blank disk.
    """
    return not blank and 0 < size.disk < ENDLESS


def _order(size: SizeOffered) -> tuple[int, int, int, str]:
    return size.memory, size.cpus, size.disk, size.id


def had(made: Machine | None) -> SizeOffered | None:
    """The size of a machine that is there, as far as it shows."""
    if made is None or not made.flavor:
        return None
    sizes = [_whole(each.size) for each in made.disks]
    root = sizes.pop(0) if made.kind is not NodeKind.BAREMETAL and sizes else 0
    return SizeOffered(made.flavor, "", made.cpus, made.memory, sum(sizes), root)


def _fits(node: Node, size: SizeOffered) -> bool:
    return (
        size.memory >= node.memory
        and size.cpus >= node.cpus
        and size.disk >= disk_space(node)
        and size.root >= root_space(node)
    )


def _whole(size: int) -> int:
    """In whole GiB, as Nova counts them."""
    return -(-size // GIB) * GIB


def lacking(node: Node, host: Host, facts: HostFacts) -> str:
    """Why a node has no size there, "" where it has one, or may have any."""
    if host.declares.sizes is Sizes.FREE or chosen(node, host, facts) is not None:
        return ""
    if facts.sizes and all(each.disk >= ENDLESS for each in facts.sizes):
        return _lacking_beside_volumes(node, facts.sizes)
    if node.kind is not NodeKind.BAREMETAL:
        return _lacking_root(node, facts.sizes)
    wanted = _words(node.cpus, node.memory, disk_space(node))
    largest = sorted(facts.sizes, key=lambda each: (each.memory, each.disk), reverse=True)
    offered = "; ".join(
        f"{each.name}: {_words(each.cpus, each.memory, each.disk)}" for each in largest[:SHOWN]
    )
    return (
        f"no flavor has {wanted}. Nodes' disks are ephemeral disks of the flavor, which a cloud "
        f"that has none of them adds for nospoon. The largest flavors: {offered or 'none'}."
    )


def _lacking_root(node: Node, sizes: Sequence[SizeOffered]) -> str:
    wanted = f"{_words(node.cpus, node.memory, disk_space(node))}, {size(root_space(node))} of root"
    largest = sorted(sizes, key=lambda each: (each.memory, each.root), reverse=True)
    offered = "; ".join(
        f"{each.name}: {_words(each.cpus, each.memory, each.disk)}, {size(each.root)} of root"
        for each in largest[:SHOWN]
    )
    return (
        f"no flavor has {wanted}. A root made of an image is the flavor's root disk, and other "
        f"disks are its ephemeral disk. The largest flavors: {offered or 'none'}."
    )


def _lacking_beside_volumes(node: Node, sizes: Sequence[SizeOffered]) -> str:
    largest = sorted(sizes, key=lambda each: each.memory, reverse=True)[:SHOWN]
    offered = "; ".join(f"{each.name}: {_without_disks(each)}" for each in largest)
    return (
        f"no flavor without an ephemeral disk has {_without_disks(node)}. The largest flavors: "
        f"{offered}."
    )


def _words(cpus: int, memory: int, disk: int) -> str:
    return f"{counted(cpus, 'CPU')}, {size(memory)} of memory, {size(disk)} of disks"


def _without_disks(of: Node | SizeOffered) -> str:
    return f"{counted(of.cpus, 'CPU')}, {size(of.memory)} of memory"
