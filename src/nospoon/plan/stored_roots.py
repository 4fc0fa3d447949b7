"""Former roots of servers in a cloud: images there, as their disks come and go with them.

A server that gets a root of another image, or of other roles, is stopped and its root is stored
before it goes (`KeptRoot`). With that image and those roles in the file again, its next server is
made of what was stored; that stays as long as the server does. One former root is kept a node, and
only what was stored for the server's own end: a copy of a root that runs on is not used again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nospoon.model.cluster import Node
from nospoon.model.images import FORMER, StoredRoot, is_former_root
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import KeptRoot
from nospoon.plan.order.order import root_needs
from nospoon.plan.order.steps import Step


@dataclass(frozen=True, slots=True)
class Settled:
    """Of one node: its machine and the former roots that stay; `notes`, and whether it `returns` to
    a former root.
    """

    resources: Mapping[Key, Resource]
    notes: tuple[str, ...] = ()
    returns: bool = False


def former_roots(observed: Iterable[Observed]) -> dict[tuple[str, str], list[Observed]]:
    """Place and node -> its former roots there."""
    found: dict[tuple[str, str], list[Observed]] = {}
    for each in observed:
        if isinstance(each.shape, KeptRoot) and is_former_root(each.shape.snapshot):
            found.setdefault((each.key.place, each.shape.node), []).append(each)
    return found


def settled(
    machine: Resource,
    node: Node,
    mark: int,
    used: str,
    stored: Sequence[Observed],
    *,
    fault: str = "",
) -> Settled:
    """`mark`: of the node's roles; `used`: the root that its server has there, "" without one;
    `stored`: former roots that are there; `fault`: of its server, of which no root is stored then.
    """
    shape = machine.shape
    assert isinstance(shape, Machine), "keys of machines have their shapes"
    wanted = StoredRoot(shape.disks[0].volume, mark)
    now = StoredRoot.of(used) if used else None
    if now is not None and now.is_like(wanted):
        root, leaves = now, False
    else:
        root, leaves = _found(wanted, stored), now is not None
    kept = {
        each.key: _staying(each, node) for each in _kept(stored, root, used, node, leaves=leaves)
    }
    images = [need for need in machine.needs if need.kind is Kind.IMAGE]
    needs = [need for need in machine.needs if need.kind is not Kind.IMAGE]
    disks = (replace(shape.disks[0], volume=str(root)), *shape.disks[1:])
    needs += images if root.former is None else root_needs(machine.key, disks)
    stores = leaves and node.keeps_root and not fault
    if stores:
        new = _new(machine.key, used, stored, node)
        kept[new.key] = replace(new, needs=tuple(each for each in needs if each.kind is Kind.IMAGE))
        needs.append(new.key)
    made = replace(machine, shape=replace(shape, disks=disks), needs=tuple(needs))
    returns = leaves and root.former is not None
    notes = _notes(node, root if returns else None, stores=stores)
    if leaves and node.keeps_root and fault:
        notes.append(f"what is on the root of {node.name} is lost: its server has failed ({fault})")
    lost = [each for each in stored if each.key not in kept and _counts(each, used)]
    return Settled({made.key: made, **kept}, (*_lost(node, lost), *notes), returns)


def stores_root(step: Step) -> bool:
    """Whether the root of a server that is replaced is stored before."""
    wanted = step.desired
    if wanted is None or not isinstance(wanted.shape, Machine):
        return False
    own = root_needs(step.key, wanted.shape.disks)
    return any(need.kind is Kind.SNAPSHOT and need not in own for need in wanted.needs)


def _found(wanted: StoredRoot, stored: Iterable[Observed]) -> StoredRoot:
    """The latest of the former roots that are like it, or one that is made of the image."""
    alike = [each for each in stored if not each.fault and _root(each).is_like(wanted)]
    if not alike:
        return wanted
    return replace(wanted, former=max(map(_number, alike)))


def _kept(
    stored: Iterable[Observed], root: StoredRoot, used: str, node: Node, *, leaves: bool
) -> list[Observed]:
    """That of which the server is made, and, where it stays on its root or is gone, the latest of
    the others: there are several only after an `up` that did not end.
    """
    own = [each for each in stored if _number(each) == root.former]
    others = [each for each in stored if each not in own and _counts(each, used)]
    stay = node.keeps_root and not leaves
    return [*own, *(sorted(others, key=_number)[-1:] if stay else ())]


def _counts(root: Observed, used: str) -> bool:
    """Whether it is a former root: neither half of one, nor of a root that a server still has, nor
    that of which it was made and which went on changing.
    """
    shape = root.shape
    assert isinstance(shape, KeptRoot), "it is one"
    made_of = StoredRoot.of(used).snapshot if used else ""
    return not root.fault and shape.volume != used and shape.snapshot != made_of


def _new(machine: Key, used: str, stored: Iterable[Observed], node: Node) -> Resource:
    """Of the root that a server has now. A later one has a higher number."""
    number = 1 + max(map(_number, stored), default=-1)
    shape = KeptRoot(node.name, f"{FORMER}{number}", used)
    key = Key(Kind.SNAPSHOT, machine.place, f"{node.name}.{shape.snapshot}")
    return Resource(key, shape, (), node.name)


def _staying(root: Observed, node: Node) -> Resource:
    return Resource(root.key, root.shape, (), node.name, note=root.tag.note)


def _root(root: Observed) -> StoredRoot:
    assert isinstance(root.shape, KeptRoot), "it is one"
    return StoredRoot.of(root.shape.volume)


def _number(root: Observed) -> int:
    number = root.key.name.rpartition(".")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def _lost(node: Node, lost: Iterable[Observed]) -> list[str]:
    most = "one former root is kept" if node.keeps_root else "no former root is kept"
    return [f"what is on root {each.key.name} is lost: {most} of {node.name}" for each in lost]


def _notes(node: Node, former: StoredRoot | None, *, stores: bool) -> list[str]:
    """`former`: to which it returns; `stores`: the root that its server has is stored."""
    notes = list[str]()
    if former is not None:
        notes.append(
            f"{node.name} returns to the root that it had of this image and roles "
            f"({former.snapshot}), as it was then"
        )
    if stores:
        notes.append(
            f"the root that {node.name} has now is kept as an image of its cloud: with its image "
            "and roles in the file again, `up` returns to it"
        )
    return notes
