"""Roots of VMs and containers: another image is another root, and the root of before stays.

A root is a volume that was made from an image. Where a node's image changes, its machine gets a
root of its own number, and the one that it had is kept as it is: with that image in the file again,
the machine returns to it, with all that was on it. One former root is kept a node.

The first root of a node has the number 0, as its first disk has; others have multiples of `STRIDE`,
which no disk has.

A root on which the roles of its node's services ran is one of its image and of those roles: other
roles are another root, too. Its number says which: `role_mark` of them, then `TURNS` roots.

In a cloud a root is no volume: its server is made of an image there, and names it. Its former roots
are images, too (`nospoon.plan.stored_roots`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from nospoon.model.cluster import Host, Node
from nospoon.model.declared import Declared
from nospoon.model.host_facts import HostFacts
from nospoon.model.images import KeptIn, StoredRoot, is_former_root
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.resources.storage import Image, KeptRoot, Volume
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Action, Step
from nospoon.plan.stored_roots import former_roots, settled

STRIDE, TURNS = 1000, 1000


@dataclass(frozen=True, slots=True)
class Roots:
    """What is desired, with the roots that each node has and keeps; `notes` for the reader.
    `returns`: nodes that get a root which they had before.
    """

    desired: Mapping[Key, Resource]
    notes: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()


def with_roots(
    desired: Mapping[Key, Resource],
    observed: Iterable[Observed],
    nodes: Iterable[Node],
    *,
    hosts: Iterable[Host] = (),
    targets: Collection[str] = (),
) -> Roots:
    """Machines on the root of their image, be it a former one, and the former ones that stay.
    `hosts`: those of the nodes; `targets`: nodes of which something is said, where not of all.
    """
    rooted = {node.name: node for node in nodes if node.kind is not NodeKind.BAREMETAL}
    if not rooted:
        return Roots(desired)
    found = list(observed)
    there, stored = _There.of(found, rooted), former_roots(found)
    stores = {host.name: host.declares for host in hosts if not host.declares.has_pools}
    result, notes, returns = dict(desired), list[str](), list[str]()
    machines = [
        (key, rooted[key.name])
        for key in desired
        if key.kind is Kind.MACHINE and key.name in rooted
    ]
    _keep_images(result, [key for key, _ in machines], there)
    for key, node in machines:
        if (declares := stores.get(key.place)) is not None:
            said, is_former = _settle_in_cloud(result, key, node, there, declares, stored)
        else:
            said, is_former = _settle(result, key, node, there)
        notes += said if not targets or node.name in targets else []
        returns += [node.name] if is_former else []
    if stores:
        _drop_images(result, desired, [key for key, _ in machines])
    return Roots(result, tuple(notes), tuple(returns))


def with_kept_roots(
    desired: Mapping[Key, Resource], observed: Iterable[Observed]
) -> Mapping[Key, Resource]:
    """With what snapshots of users keep in a cloud of nodes that stay on their host. It goes with
    its node: nothing else desires it.
    """
    kept = {
        each.key: Resource(each.key, each.shape, (machine,), note=each.tag.note)
        for each in observed
        if isinstance(each.shape, KeptRoot) and not is_former_root(each.shape.snapshot)
        if (machine := Key(Kind.MACHINE, each.key.place, each.shape.node)) in desired
    }
    return {**desired, **kept} if kept else desired


def against_lost_roots(steps: Iterable[Step], facts: Mapping[str, HostFacts]) -> list[str]:
    """Why servers that are to be made cannot start from snapshots. One that is there needs its
    snapshot no more.
    """
    found = list[str]()
    for step in steps:
        made = step.desired.shape if step.desired is not None else None
        is_made = step.action in {Action.CREATE, Action.REPLACE}
        if not (is_made and isinstance(made, Machine) and made.disks):
            continue
        root, host = StoredRoot.of(made.disks[0].volume), facts.get(step.key.place)
        kept = KeptIn.of(root.image) if root.former is None else None
        if kept is None or host is None:
            continue
        what = f"node {kept.node}: snapshot {kept.snapshot} of cluster {kept.cluster}"
        if kept not in host.kept:
            found.append(
                f"{what} has no root of a node of this name on host {step.key.place}. "
                f"`nospoon snapshot list {kept.cluster}` shows its snapshots."
            )
        elif host.kept[kept] is not made.firmware:
            found.append(
                f"{what} has a root for firmware {host.kept[kept]}. Write `firmware: "
                f"{host.kept[kept]}`."
            )
    return found


def among(returns: Iterable[str], targets: Iterable[str]) -> tuple[str, ...]:
    """Of nodes, of which there may be 20,000, those to which a plan is limited; all where it is
    limited to none.
    """
    wanted = frozenset(targets)
    return tuple(node for node in returns if not wanted or node in wanted)


@dataclass(frozen=True, slots=True)
class _There:
    """What is found: node -> its roots, those of one host before others, but for those that are
    lost; node -> the root that its machine has, where, and what is wrong with it; images.
    """

    roots: Mapping[str, list[Observed]]
    used: Mapping[str, str]
    places: Mapping[str, str]
    faults: Mapping[str, str]
    images: Mapping[Key, Observed]

    @classmethod
    def of(cls, observed: Iterable[Observed], rooted: Mapping[str, Node]) -> _There:
        roots: defaultdict[str, list[Observed]] = defaultdict(list)
        used: dict[str, str] = {}
        places: dict[str, str] = {}
        faults: dict[str, str] = {}
        images: dict[Key, Observed] = {}
        for each in observed:
            match each.shape:
                case Volume(image=i) if i and not each.fault and number(each.key) % STRIDE == 0:
                    if (node := whose(each.key)) in rooted:
                        roots[node].append(each)
                case Machine(disks=(root, *_)) if each.key.name in rooted:
                    used[each.key.name] = root.volume
                    places[each.key.name] = each.key.place
                    faults[each.key.name] = each.fault
                case Image():
                    images[each.key] = each
        return cls(roots, used, places, faults, images)


def number(key: Key) -> int:
    """Of a volume; -1 for a name that ends with none."""
    last = key.name.rpartition("-")[2]
    return int(last) if last.isascii() and last.isdigit() else -1


def role_mark(roles: str) -> int:
    """Of a digest of roles, from 1; 0 for no roles."""
    return 1 + int(roles[:7], 16) if roles else 0


def _ran(root: Observed) -> int:
    """The mark of the roles that ran on a root."""
    return number(root.key) // STRIDE // TURNS


def _settle(
    desired: dict[Key, Resource], machine: Key, node: Node, there: _There
) -> tuple[list[str], bool]:
    """One node's roots, in `desired`. Returns what there is to say, and whether it gets a former
    one.
    """
    first = Key(Kind.VOLUME, machine.place, f"{node.name}-0")
    wanted = desired.get(first)
    if wanted is None or not isinstance(wanted.shape, Volume):  # its root is a volume of others
        return [], False
    found, used = there.roots.get(node.name, []), there.used.get(node.name, "")
    mark = role_mark(node.cloud_init.roles)
    same = [each for each in found if _image(each) == wanted.shape.image and _ran(each) == mark]
    chosen = next((each.key.name for each in same if each.key.name == used), "") or next(
        (each.key.name for each in same), ""
    )
    name = chosen or _free(node.name, {each.key.name for each in found}, mark)
    if name != first.name:
        _rename(desired, machine, first, replace(first, name=name))
    here = [each for each in found if each.key.place == machine.place]
    kept = list(_kept(here, name, used)) if node.keeps_root else []
    for each in kept:
        _keep(desired, each, there.images, wanted)
    staying = {each.key for each in kept} | {replace(first, name=name)}
    lost = [each.key for each in found if each.key not in staying]
    is_there = any(each.key == replace(first, name=name) for each in same)
    is_former = is_there and used not in ("", name)
    keeps = used != name and any(each.key.name == used for each in kept)
    what = "image and roles" if mark or any(map(_ran, found)) else "image"
    said = _said(node, machine.place, lost, name if is_former else "", used if keeps else "", what)
    return list(said), is_former


def _settle_in_cloud(
    desired: dict[Key, Resource],
    machine: Key,
    node: Node,
    there: _There,
    declares: Declared,
    stored: Mapping[tuple[str, str], list[Observed]],
) -> tuple[list[str], bool]:
    """As `_settle`, where disks come and go with their machine."""
    shape, is_here = desired[machine].shape, there.places.get(node.name) == machine.place
    assert isinstance(shape, Machine), "keys of machines have their shapes"
    if shape.adopted or not shape.disks:
        return [], False
    used = there.used.get(node.name, "") if is_here else ""
    if node.kind not in declares.stored_roots:
        is_lost = used not in ("", shape.disks[0].volume)
        why = f"{machine.place} stores no roots of nodes of kind {node.kind}"
        return [f"what is on the root of {node.name} is lost: {why}"] if is_lost else [], False
    mark = role_mark(node.cloud_init.roles)
    here, fault = stored.get((machine.place, node.name), []), there.faults.get(node.name, "")
    found = settled(desired[machine], node, mark, used, here, fault=fault)
    desired.update(found.resources)
    return list(found.notes), found.returns


def _drop_images(
    result: dict[Key, Resource], desired: Mapping[Key, Resource], machines: Iterable[Key]
) -> None:
    """Images of which no server is made any more, as all of theirs have former roots."""
    wanted = {need for each in machines for need in desired[each].needs if need.kind is Kind.IMAGE}
    for key in wanted - {need for each in result.values() for need in each.needs}:
        result.pop(key, None)


def _said(
    node: Node, place: str, lost: Iterable[Key], former: str, kept: str, what: str
) -> Iterator[str]:
    """Of roots that go, the former one that a node returns to, and the one that it leaves."""
    most = "one former root is kept" if node.keeps_root else "no former root is kept"
    for each in lost:
        why = f"{most} of {node.name}"
        if each.place != place:
            why = f"it is on {each.place}, and {node.name} moves to {place}"
        yield f"what is on root {each.name} is lost: {why}"
    if former:
        which = f"the root that it had of this {what} ({former})"
        yield f"{node.name} returns to {which}, as it was then"
    if kept:
        yield (
            f"the root that {node.name} has now ({kept}) is kept: with its {what} in the file "
            "again, `up` returns to it"
        )


def _image(root: Observed) -> str:
    assert isinstance(root.shape, Volume)
    return root.shape.image


def _free(node: str, taken: set[str], mark: int) -> str:
    names = (f"{node}-{(mark * TURNS + turn) * STRIDE}" for turn in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def _kept(found: Iterable[Observed], name: str, used: str) -> Iterator[Observed]:
    """The former root: that which the machine leaves. Where it has its root already, all others are
    former ones: there are several only after an `up` that did not end.
    """
    for each in found:
        if each.key.name != name and used in ("", name, each.key.name):
            yield each


def _rename(desired: dict[Key, Resource], machine: Key, before: Key, after: Key) -> None:
    """A root by another name, in its machine as well."""
    desired[after] = replace(desired.pop(before), key=after)
    user = desired[machine]
    assert isinstance(user.shape, Machine)
    root, *others = user.shape.disks
    shape = replace(user.shape, disks=(replace(root, volume=after.name), *others))
    needs = tuple(after if need == before else need for need in user.needs)
    desired[machine] = replace(user, shape=shape, needs=needs)


def _keep_images(desired: dict[Key, Resource], machines: Iterable[Key], there: _There) -> None:
    """In a cloud, the image of which a server was made, where another differs only in what chooses
    the server's host: it has one, and all that is on its disks would be lost.
    """
    left = set[Key]()
    for machine in machines:
        resource = desired[machine]
        assert isinstance(resource.shape, Machine), "keys of machines have their shapes"
        if not resource.shape.disks:
            continue
        root, *others = resource.shape.disks
        wanted = Key(Kind.IMAGE, machine.place, root.volume)
        used = replace(wanted, name=StoredRoot.of(there.used.get(machine.name, "")).image)
        found, image = there.images.get(used), desired.get(wanted)
        if found is None or image is None or used == wanted or not _are_alike(found, image):
            continue
        disks = (replace(root, volume=used.name), *others)
        needs = tuple(used if each == wanted else each for each in resource.needs)
        shape = replace(resource.shape, disks=disks)
        desired[machine] = replace(resource, shape=shape, needs=needs)
        desired.setdefault(used, replace(image, key=used, shape=found.shape))
        left.add(wanted)
    if left:
        for key in left - {need for each in desired.values() for need in each.needs}:
            del desired[key]


def _are_alike(found: Observed, wanted: Resource) -> bool:
    """Whether images are the same but for the type of the machines that they were loaded for."""
    shapes = (found.shape, wanted.shape)
    some = [replace(each, hypervisor_type="") for each in shapes if isinstance(each, Image)]
    return some == [some[0]] * 2


def _keep(
    desired: dict[Key, Resource], root: Observed, images: Mapping[Key, Observed], like: Resource
) -> None:
    """A former root, and the image below it, stay as they are."""
    image = Key(Kind.IMAGE, root.key.place, _image(root))
    pool = tuple(need for need in like.needs if need.kind is Kind.POOL)
    if image not in desired and image in images:
        desired[image] = Resource(image, images[image].shape, pool)
    below = (image,) if image in desired else ()
    desired[root.key] = Resource(root.key, root.shape, (*pool, *below), like.node)
