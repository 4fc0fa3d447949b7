"""Steps -> moves and what each waits for.

A replacement is two moves. A making move waits for the making moves of what it needs; a removing
move waits for the removing moves of what needs it, and, where nothing comes in its place, for the
changes of what needed it; a remaking waits for its own removal.

A node that moves to another host exists once at any time, and loses nothing before it must
(docs/adr/0009):

    1. what its machine needs there is made: pool, images, networks, disks
    2. its BMC and its machine are removed where they were
    3. machine and BMC are made where they are to be
    4. its disks are removed where they were
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TypeVar
from uuid import UUID

from nospoon.model.cluster import BESIDES, Firmware
from nospoon.model.images import StoredRoot, is_former_root
from nospoon.model.ironic import (
    BLANK,
    IronicConnector,
    IronicNode,
    IronicPort,
    IronicPortgroup,
    IronicStanding,
    IronicTarget,
)
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.groups import ServerGroup
from nospoon.model.resources.key_pairs import KeyPair
from nospoon.model.resources.keys import IRONIC, Key, Kind
from nospoon.model.resources.machines import Machine, MachineDisk, MachineNic
from nospoon.model.resources.netboot import NetbootService
from nospoon.model.resources.networks import FloatingIp, Link, Port, Router, Trunk
from nospoon.model.resources.relays import Relay, relay_of
from nospoon.model.resources.resource import InCloud, Observed, Shape
from nospoon.model.resources.storage import BootImage, Image, KeptRoot, Volume, boot_image
from nospoon.plan.order.kinds import KINDS, whose
from nospoon.plan.order.steps import Action, Plan, Step


class Half(StrEnum):
    """Whether a move removes or makes."""

    REMOVE = "remove"
    MAKE = "make"


MoveId = tuple[Key, Half]


@dataclass(frozen=True, slots=True)
class Move:
    """One driver call. `waits` are the moves that must have succeeded before."""

    step: Step
    half: Half
    waits: tuple[MoveId, ...] = ()

    @property
    def key(self) -> Key:
        """What is made or removed: a step that moves a thing has two of them."""
        return self.step.removes if self.half is Half.REMOVE else self.step.key

    @property
    def id(self) -> MoveId:
        return self.key, self.half


def moves(plan: Plan) -> dict[MoveId, Move]:
    """All moves of a plan, in an order that respects what each waits for."""
    halves = {move.id: move for step in plan.steps for move in _halves(step)}
    again = _upon_replaced(plan.steps)
    changing = {step.key for step in plan.steps if step.action is Action.CHANGE} - again
    made = {step.key for step in plan.steps if step.action is Action.CREATE}
    fresh = made - again
    there = [step.observed for step in plan.steps if step.observed is not None]
    live = [replace(each, shape=each.live) for each in there if each.live is not None]
    needed = dependents([*there, *live])  # a running machine has what it was started with, too
    moving = _Moving(plan.steps)
    blank = {step.key.name: step.key for step in plan.steps if _is_blank(step)}
    parts: defaultdict[str, list[Key]] = defaultdict(list)
    nodes = [id_ for id_ in halves if id_[0].kind is Kind.IRONIC_NODE and id_[1] is Half.REMOVE]
    for step in plan.steps if blank else ():
        if KINDS[step.key.kind].after_ironic:
            parts[whose(step.key)].append(step.key)
    unordered = {
        id_: replace(
            move,
            waits=tuple(
                each
                for each in dict.fromkeys(
                    (
                        *_waits(move, needed),
                        *_let_go(move, needed, changing),
                        *moving.waits(move),
                        *_ready(move, fresh),
                        *_succeeded(move, made),
                        *_told(move, blank),
                        *_after_ironic(move, nodes),
                        *_whole(move, blank, parts),
                    )
                )
                if each in halves and each != id_
            ),
        )
        for id_, move in halves.items()
    }
    return _sorted(unordered)


def _halves(step: Step) -> list[Move]:
    match step.action:
        case Action.DELETE:
            return [Move(step, Half.REMOVE)]
        case Action.REPLACE:
            return [Move(step, Half.REMOVE), Move(step, Half.MAKE)]
        case Action.CREATE | Action.CHANGE:
            return [Move(step, Half.MAKE)]


def _waits(move: Move, needed: Mapping[Key, list[Key]]) -> Iterable[MoveId]:
    """What any move waits for, if it happens at all. All of a node that goes waits for Ironic, also
    where the machine is gone by which it hangs together: someone may use it.
    """
    if move.half is Half.REMOVE:
        yield from ((key, Half.REMOVE) for key in needed.get(move.key, ()))
        if move.step.action is Action.DELETE and KINDS[move.key.kind].after_release:
            yield Key(Kind.IRONIC_STANDING, IRONIC, whose(move.key)), Half.REMOVE
        return
    yield move.key, Half.REMOVE
    assert move.step.desired is not None, "a making move has a desired resource"
    yield from ((need, Half.MAKE) for need in move.step.desired.needs)


def _let_go(
    move: Move, needed: Mapping[Key, list[Key]], changing: Container[Key]
) -> Iterable[MoveId]:
    """Disks and networks that are removed for good go after the machines that had them are changed
    to be without, for in between they could not start; portgroups after their ports.
    """
    if move.step.action is Action.DELETE and KINDS[move.key.kind].after_users:
        yield from ((key, Half.MAKE) for key in needed.get(move.key, ()) if key in changing)


def _ready(move: Move, fresh: Container[Key]) -> Iterable[MoveId]:
    """What is replaced goes when all that it gets is there, such as another root and its image: a
    machine is off for as short as can be, and stays as it is where that fails.
    """
    step = move.step
    if move.half is Half.REMOVE and step.action is Action.REPLACE and not step.moves_from:
        needs = step.desired.needs if step.desired is not None else ()
        yield from ((need, Half.MAKE) for need in needs if need in fresh)


def _succeeded(move: Move, made: Iterable[Key]) -> Iterable[MoveId]:
    """A boot image goes when those are there that come in its place: a server of others may be
    rescued with one at any time.
    """
    if move.half is Half.REMOVE and move.key.kind is Kind.BOOT_IMAGE:
        alike = (key for key in made if key.kind is Kind.BOOT_IMAGE)
        yield from ((key, Half.MAKE) for key in alike if key.place == move.key.place)


def _is_blank(step: Step) -> bool:
    standing = step.observed.shape if step.observed is not None else None
    return isinstance(standing, IronicStanding) and standing.state == BLANK


def _told(move: Move, blank: Mapping[str, Key]) -> Iterable[MoveId]:
    """Ironic is told that nothing is on a node before anything of it happens."""
    if KINDS[move.key.kind].after_ironic and (node := whose(move.key)) in blank:
        yield blank[node], Half.REMOVE


def _after_ironic(move: Move, nodes: Sequence[MoveId]) -> Iterable[MoveId]:
    """The Ironic may run on a container or a VM of this very cluster, where it finds its database
    and Keystone by names that the network's DHCP server knows.
    """
    shape = move.step.observed.shape if move.step.observed is not None else None
    is_instance = isinstance(shape, Machine) and shape.kind is not NodeKind.BAREMETAL
    if move.step.action is Action.DELETE and (is_instance or move.key.kind is Kind.NETBOOT):
        yield from nodes


def _whole(
    move: Move, blank: Mapping[str, Key], parts: Mapping[str, Sequence[Key]]
) -> Iterable[MoveId]:
    """It deploys when all of the node is there again."""
    if move.half is Half.MAKE and blank.get(move.key.name) == move.key:
        yield from ((key, Half.MAKE) for key in parts[move.key.name])


def _upon_replaced(steps: Sequence[Step]) -> set[Key]:
    """What is replaced, and what is to stand upon that: it can be changed only after removals."""
    found: set[Key] = set()
    more = {step.key for step in steps if step.action is Action.REPLACE}
    while more:
        found |= more
        wanted = [each.desired for each in steps if each.desired and each.key not in found]
        more = {each.key for each in wanted if not found.isdisjoint(each.needs)}
    return found


class _Moving:
    """What the halves of things that move wait for besides."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps: dict[Key, Step] = {}
        self._users: dict[str, list[Key]] = defaultdict(list)
        for step in steps:
            if step.moves_from:
                self._steps[step.key] = step
            for need in step.desired.needs if step.desired is not None else ():
                if need.kind is Kind.VOLUME:
                    self._users[need.name].append(step.key)

    def waits(self, move: Move) -> Iterable[MoveId]:
        key, step = move.key, move.step
        if key.kind is Kind.VOLUME and move.half is Half.REMOVE:
            users = self._users[key.name]
            yield from ((user, Half.MAKE) for user in users if user.place != key.place)
        elif step.moves_from and key.kind is not Kind.VOLUME:
            if move.half is Half.MAKE:
                yield step.removes, Half.REMOVE
            else:
                yield from ((need, Half.MAKE) for need in self._prepared(step))

    def _prepared(self, step: Step) -> Iterable[Key]:
        """All that is made before a machine, or its BMC, goes."""
        for need in step.desired.needs if step.desired is not None else ():
            user = self._steps.get(need)
            if user is None or need.kind is Kind.VOLUME:
                yield need
            else:
                yield from self._prepared(user)


def named_links(observed: Iterable[Observed]) -> dict[tuple[str, str], Key]:
    """Host, and name there -> the network that it is."""
    return {
        (each.key.place, each.shape.name): each.key
        for each in observed
        if isinstance(each.shape, Link)
    }


T = TypeVar("T")


def _there(keys: Mapping[T, Key], name: T) -> list[Key]:
    return [keys[name]] if name in keys else []


def dependents(observed: Sequence[Observed]) -> dict[Key, list[Key]]:
    """What is needed -> who needs it, read from the shapes as they were found."""
    links = named_links(observed)
    machines = {each.shape.uuid: each.key for each in observed if isinstance(each.shape, Machine)}
    plugs = [each for each in observed if isinstance(each.shape, Port)]
    ports, on, tagged = _ports(plugs)
    trunks = {
        (each.key.place, each.shape.mac): each.key
        for each in observed
        if isinstance(each.shape, Trunk)
    }
    routers = {
        (each.key.place, led.network): each.key
        for each in observed
        if isinstance(each.shape, Router)
        for led in each.shape.networks
    }
    pools = _pools(observed)
    clouds, asked = _Clouds(links, ports, on, tagged, routers), _asked(observed)
    bmcs = {each.shape.uuid: each.key for each in observed if isinstance(each.shape, Bmc)}
    enrolled, parts = _enrolled(observed)
    result: dict[Key, list[Key]] = defaultdict(list)
    for each in observed:
        host = each.key.place
        match each.shape:
            case Machine(disks=disks, nics=nics, group=group, key_pair=pair):
                needs = [Key(Kind.VOLUME, host, disk.volume) for disk in disks]
                needs += root_needs(each.key, disks)
                needs += _networks(links, host, nics)
                for plugs_in in (ports, trunks):
                    needs += [key for n in nics for key in _there(plugs_in, (host, n.mac))]
                needs += pools.get(host, [])
                needs += asked(each)
                needs += [
                    Key(Kind.SERVER_GROUP, host, group),
                    Key(Kind.KEY_PAIR, host, pair),
                ]
            case Volume(pool=pool, image=image):
                needs = [Key(Kind.POOL, host, pool)]
                needs += [Key(Kind.IMAGE, host, image)] if image else []
            case Image(pool=pool):
                needs = [Key(Kind.POOL, host, pool)]
            case NetbootService(bridge=bridge):
                needs = [*_there(links, (host, bridge)), relay_of(host)]
            case (
                BootImage() | Port() | Trunk() | FloatingIp() | Router() | ServerGroup() | KeyPair()
                | Relay() | KeptRoot()
            ):  # fmt: skip
                needs = clouds.needs(host, each.shape)
            case Bmc(uuid=uuid):
                needs = _there(machines, uuid)
            case IronicNode(uuid=uuid):
                needs = _there(bmcs, uuid)
            case IronicStanding(node=node):
                needs = parts[node]
            case _:
                needs = _of_ironic(each.shape, enrolled)
        for need in dict.fromkeys(needs):
            result[need].append(each.key)
    return result


def root_needs(machine: Key, disks: Sequence[MachineDisk]) -> list[Key]:
    """What the root of a machine is made of, where that is no volume of a pool."""
    if not disks:
        return []
    root = StoredRoot.of(disks[0].volume)
    if root.former is None:
        return [Key(Kind.IMAGE, machine.place, root.image)]
    return [Key(Kind.SNAPSHOT, machine.place, f"{machine.name}.{root.snapshot}")]


def _pools(observed: Iterable[Observed]) -> dict[str, list[Key]]:
    """Host -> the cluster's pools there, in which its machines have their disks."""
    found: dict[str, list[Key]] = defaultdict(list)
    for each in observed:
        if each.key.kind is Kind.POOL:
            found[each.key.place].append(each.key)
    return found


def _ports(
    observed: Iterable[Observed],
) -> tuple[dict[tuple[str, str], Key], dict[tuple[str, str], str], dict[tuple[str, str, int], Key]]:
    """Host and MAC -> the port of a NIC, and the network that it is on; with a VLAN -> the port by
    which that is on its trunk.
    """
    ports, on, tagged = {}, {}, {}
    for each in observed:
        match each.shape:
            case Port(mac=mac, network=network, vlan=None):
                ports[each.key.place, mac] = each.key
                on[each.key.place, mac] = network
            case Port(mac=mac, vlan=int(vlan)):
                tagged[each.key.place, mac, vlan] = each.key
    return ports, on, tagged


@dataclass(frozen=True, slots=True)
class _Clouds:
    """What was found in clouds, by host: networks by name, ports of NICs by MAC and the networks
    that they are on, those of trunks by MAC and VLAN, and routers by their networks.
    """

    links: Mapping[tuple[str, str], Key]
    ports: Mapping[tuple[str, str], Key]
    on: Mapping[tuple[str, str], str]
    tagged: Mapping[tuple[str, str, int], Key]
    routers: Mapping[tuple[str, str], Key]

    def needs(self, host: str, shape: InCloud) -> list[Key]:
        match shape:
            case Port(network=network):
                return _there(self.links, (host, network))
            case Trunk(mac=mac, carries=carries):
                own = [_there(self.tagged, (host, mac, each.vlan)) for each in carries]
                return [*_there(self.ports, (host, mac)), *chain.from_iterable(own)]
            case Router(networks=networks):
                return [
                    key for each in networks for key in _there(self.links, (host, each.network))
                ]
            case FloatingIp(mac=mac):
                network = self.on.get((host, mac), "")
                routers = _there(self.routers, (host, network))
                return [*_there(self.ports, (host, mac)), *routers]
            case Relay(mac=mac):
                return _there(self.ports, (host, mac))
            case BootImage():
                return []  # it is stored; who asks by the relay are machines
            case ServerGroup() | KeyPair():
                return []
            case KeptRoot(node=node, snapshot=name):
                return [] if is_former_root(name) else [Key(Kind.MACHINE, host, node)]


def _asked(observed: Iterable[Observed]) -> Callable[[Observed], list[Key]]:
    """What a machine asks by: its boot image, or any that it may have where that is not known, and
    the relay of its host.
    """
    images: dict[tuple[str, Firmware], list[Key]] = defaultdict(list)
    for each in observed:
        if isinstance(each.shape, BootImage):
            images[each.key.place, each.shape.firmware].append(each.key)

    def asked(found: Observed) -> list[Key]:
        shape, host = found.shape, found.key.place
        assert isinstance(shape, Machine), "of machines"
        if not shape.asks:
            return []
        if shape.asks_at:
            return [boot_image(host, shape.firmware, shape.asks_at), relay_of(host)]
        return [*images[host, shape.firmware], relay_of(host)]

    return asked


def _of_ironic(shape: Shape, enrolled: Mapping[UUID | None, Key]) -> list[Key]:
    """What parts of a node in Ironic need there."""
    match shape:
        case IronicPortgroup(node=node) | IronicConnector(node=node) | IronicTarget(node=node):
            return _there(enrolled, node)
        case IronicPort(node=node, portgroup=group):
            return [enrolled[id_] for id_ in (node, group) if id_ in enrolled]
        case _:
            return []


def _networks(
    links: Mapping[tuple[str, str], Key], host: str, nics: Iterable[MachineNic]
) -> Iterator[Key]:
    """Those of a machine's NICs, at its own place or at its host's first one."""
    first = host.partition(BESIDES)[0]
    for nic in nics:
        found = links.get((host, nic.network)) or links.get((first, nic.network))
        if found is not None:
            yield found


def _enrolled(observed: Sequence[Observed]) -> tuple[dict[UUID | None, Key], dict[UUID, list[Key]]]:
    """Ironic's UUIDs -> keys, and a node's -> the keys of all that it has there, itself too."""
    keys: dict[UUID | None, Key] = {}
    parts: dict[UUID, list[Key]] = defaultdict(list)
    for each in observed:
        match each.shape:
            case IronicNode(uuid=uuid):
                keys[uuid] = each.key
                parts[uuid].append(each.key)
            case IronicPortgroup() | IronicPort() | IronicConnector() | IronicTarget():
                keys[each.shape.uuid] = each.key
                parts[each.shape.node].append(each.key)
            case _:
                pass
    return keys, parts


def _sorted(unordered: dict[MoveId, Move]) -> dict[MoveId, Move]:
    """A topological order that keeps the plan's own where it can. There is always one: raises
    `AssertionError` otherwise.
    """
    result: dict[MoveId, Move] = {}
    opened: set[MoveId] = set()
    for start in unordered:
        stack = [start]
        while stack:
            top = stack[-1]
            missing = [each for each in unordered[top].waits if each not in result]
            if top in result or not missing:
                result.setdefault(top, unordered[top])
                stack.pop()
            else:
                assert top not in opened, f"{top[1]} {top[0]} waits for itself"
                opened.add(top)
                stack.extend(missing)
    return result
