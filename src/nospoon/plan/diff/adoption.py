"""Machines that others made, as nodes: which of those on the hosts a file means, and why not."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from uuid import UUID

from nospoon.model.cluster import Adopted, Adoption, Cluster, Host, Nic, Node
from nospoon.model.host_facts import Adoptable, HostFacts
from nospoon.model.mac import is_mac
from nospoon.model.names import MAX_NAME
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Resource
from nospoon.model.rest.plans import FieldChange
from nospoon.plan.diff.diff import field_changes
from nospoon.plan.identity import bridge_name
from nospoon.plan.words import MENTIONED, Lines, listed

_UNFIT = re.compile(r"[^a-z0-9-]+")
MOST_OF_NAME = 1000
"""Machines of one name that are looked at, as many as a file may have hosts: a cloud may call all
of its servers the same, and a file may adopt that name again and again.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """The cluster with its adopted nodes, what each of their machines is, why some cannot be
    nodes, and which a pattern skips because of that; and which entries change nothing.
    """

    cluster: Cluster
    machines: Mapping[UUID, Adoptable] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A node that was adopted before: what is remembered of it while its host is away."""

    host: str
    node: str
    machine: Machine


def adopt(
    cluster: Cluster,
    cluster_id: UUID,
    facts: Mapping[str, HostFacts],
    claimed: Iterable[Claimed] = (),
    *,
    unseen: str = "",
    lost: bool = False,
    elsewhere: Callable[[UUID], str] = lambda _: "",
) -> Found:
    """The cluster with a node for each machine that its adoptions mean, in their order. Hosts that
    are away have those that were `claimed` there. `unseen`: what is said where there is none.
    `lost`: nodes that are no longer available are in it too, as they are remembered.
    `elsewhere`: of which other cluster a node has this UUID, in words; "" for none.
    """
    if not cluster.adoptions:
        return Found(cluster)
    known = list(claimed)
    there = _there(cluster.hosts, facts, known, cluster_id)
    nodes = [node for node in cluster.nodes if node.adopted is None]
    reasons, skipped = Lines(), Lines()
    machines: dict[UUID, Adoptable] = {}
    held = {each.kept for each in there if each.kept}
    taken = {node.name: "made by the file" for node in nodes}
    index, renamed = _Index(there), _Renamed(there, known)
    unmet = _Unmet(facts, cluster.hosts, unseen)
    for adoption in cluster.adoptions:
        meant = index.meant(adoption)
        now = "" if meant else renamed.why(adoption)
        for why_not in [now] if now else unmet.why(adoption, meant):
            reasons.add(why_not)
        if meant and not adoption.match and all(each.uuid in machines for each in meant):
            skipped.add(f"adopt {adoption} changes nothing: an entry before it adopts {meant[0]}")
        for each in meant:
            if each.uuid in machines:
                continue  # an earlier adoption has it
            called = str(each)
            node = _node(adoption, each, taken, held)
            why = _hindrance(each.found, cluster_id, node.name, elsewhere)
            if why and adoption.match:
                skipped.add(f"adopt {adoption} skips {called}: {why}")
            elif why:
                reasons.add(f"nodes: adopt {adoption}: {called}: {why}")
            elif node.name in taken:
                reasons.add(
                    f"nodes: adopt {adoption}: {called} would be node {node.name}, which is "
                    f"{taken[node.name]}. Give one of them another `name`."
                )
            else:
                taken[node.name] = called
                machines[each.uuid] = each.found
                nodes.append(node)
    for adoption, each in _lost(cluster, known, there, machines.keys()) if lost else ():
        if each.uuid not in machines and each.node not in taken:
            taken[each.node] = each.found.name
            machines[each.uuid] = each.found
            nodes.append(_node(adoption, each))
    cluster = replace(cluster, nodes=tuple(_plugged_in(cluster, cluster_id, nodes, machines)))
    return Found(cluster, machines, reasons.shown(), skipped.shown())


@dataclass(frozen=True, slots=True)
class _Place:
    host: str
    found: Adoptable
    node: str = ""
    kept: str = ""
    """The name of the node that it is of this cluster."""

    def __str__(self) -> str:
        return f"{self.found.name} on host {self.host}"

    @property
    def uuid(self) -> UUID:
        return self.found.machine.uuid


def _there(
    hosts: Sequence[Host],
    facts: Mapping[str, HostFacts],
    claimed: Sequence[Claimed],
    cluster_id: UUID,
) -> list[_Place]:
    """What is on the hosts, in their order; of those away, what is remembered."""
    places: list[_Place] = []
    for host in hosts:
        known = facts.get(host.name)
        if known is not None and not known.away:
            places += [
                _Place(host.name, each, kept=each.node if _has(cluster_id, each) else "")
                for each in known.machines or ()
            ]
            continue
        places += [
            _Place(host.name, Adoptable(each.machine), each.node)
            for each in claimed
            if each.host == host.name
        ]
    return places


def _has(cluster_id: UUID, found: Adoptable) -> bool:
    return not found.made and found.tag is not None and found.tag.cluster == cluster_id


class _Index:
    """Machines by what a file may call them: it may adopt as many by their names as there are."""

    def __init__(self, places: Iterable[_Place]) -> None:
        self._places = tuple(places)
        self._meant: dict[tuple[str, str], list[_Place]] = {}
        self._named: dict[str, list[int]] = {}
        self._known: dict[str, list[int]] = {}
        for number, each in enumerate(self._places):
            self._named.setdefault(each.found.name, []).append(number)
            for id_ in {str(each.uuid), each.found.id}:
                self._known.setdefault(id_, []).append(number)

    def meant(self, adoption: Adoption) -> list[_Place]:
        """Those that an adoption means, in their order; of one name, `MOST_OF_NAME`."""
        host = adoption.like.host
        if adoption.match:
            return [
                each
                for each in self._places
                if host in ("", each.host)
                and not each.found.made
                and fnmatchcase(each.found.name, adoption.match)
            ]
        key = (adoption.machine, host)
        if key not in self._meant:
            self._meant[key] = list(islice(self._called(*key), MOST_OF_NAME))
        return self._meant[key]

    def _called(self, machine: str, host: str) -> Iterator[_Place]:
        numbers = {*self._named.get(machine, ()), *self._known.get(machine.lower(), ())}
        found = (self._places[number] for number in sorted(numbers))
        return (each for each in found if host in ("", each.host))


def _lost(
    cluster: Cluster,
    claimed: Sequence[Claimed],
    there: Sequence[_Place],
    taken: AbstractSet[UUID],
) -> Iterator[tuple[Adoption, _Place]]:
    """What was claimed for adoptions that do not mean it now: renamed, or gone."""
    kept = {each.uuid: each.found for each in there if each.kept}
    gone = _Index(
        _Place(each.host, Adoptable(each.machine), each.node)
        for each in claimed
        if each.machine.uuid not in taken
    )
    for adoption in cluster.adoptions:
        for each in gone.meant(adoption):
            yield adoption, replace(each, found=kept.get(each.uuid, each.found))


class _Renamed:
    """Machines that were claimed by a name which is not theirs any more."""

    def __init__(self, there: Iterable[_Place], claimed: Iterable[Claimed]) -> None:
        now: dict[UUID, list[_Place]] = {}
        for place in there:
            now.setdefault(place.uuid, []).append(place)
        self._now: dict[str, list[_Place]] = {}
        for each in claimed:
            self._now.setdefault(each.machine.adopted, []).extend(now.get(each.machine.uuid, ()))

    def why(self, adoption: Adoption) -> str:
        """Why a machine that was claimed by its name is not found by it, "" where it is."""
        for each in self._now.get(adoption.machine, ()) if adoption.machine else ():
            if adoption.like.host in ("", each.host):
                return (
                    f"nodes: adopt {adoption}: its owner renamed it: write {each.found.name!r}. "
                    "It keeps the name of its node."
                )
        return ""


class _Unmet:
    """Why no machine, or not just one, is meant. What is on hosts is put in words once for each."""

    def __init__(self, facts: Mapping[str, HostFacts], hosts: Sequence[Host], unseen: str) -> None:
        self._facts, self._unseen = facts, unseen
        self._hosts = [host.name for host in hosts]
        self._nothing = cache(self._on_these)

    def why(self, adoption: Adoption, meant: Sequence[_Place]) -> Iterator[str]:
        if len(meant) == 1 or (meant and adoption.match):
            return
        said = self._nothing(adoption.like.host)
        if said is None:
            return  # who is away may have it
        places, some = said
        if not some:
            yield f"nodes: adopt {adoption}: no machines of others can be on {places}"
        elif not meant:
            yield f"nodes: adopt {adoption}: {some}"
        elif len(where := list(dict.fromkeys(each.host for each in meant))) == 1:
            several = f"there are several of that name on host {where[0]}"
            yield f"nodes: adopt {adoption}: {several}. Name it by its UUID."
        else:
            some = " and ".join(where) if len(where) <= MENTIONED else listed(where)
            yield f"nodes: adopt {adoption}: there is one on each of {some}. Name its `host`."

    def _on_these(self, host: str) -> tuple[str, str] | None:
        """Of a host, "" for all: their names, and what is said where a machine is not there, ""
        where none can be. None where one of them is away.
        """
        asked = [name for name in self._hosts if host in ("", name)]
        known = {n: self._facts[n] for n in asked if n in self._facts and not self._facts[n].away}
        if len(known) < len(asked):
            return None
        places = ", ".join(f"host {name}" for name in asked)
        if all(each.machines is None for each in known.values()):
            return places, ""
        names = sorted(each.name for one in known.values() for each in one.machines or ())
        some = f"There: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}. " if names else ""
        return places, f"no such machine on {', '.join(known)}. {some}{self._unseen}".rstrip()


def _hindrance(
    found: Adoptable, cluster_id: UUID, name: str, elsewhere: Callable[[UUID], str]
) -> str:
    if found.made:
        return "nospoon made it: it is a node already."
    if found.hindrance:
        return found.hindrance
    if found.tag is not None and found.tag.cluster != cluster_id:
        return "it is a node of another cluster. Release it there first."
    if found.node not in ("", name):
        return (
            f"it is node {found.node} of this cluster, and would be {name}. Keep its name, or "
            "bring the cluster up without it first."
        )
    if other := elsewhere(found.machine.uuid):
        return (
            f"a node of {other} has its UUID. Release that one first, or give one of the machines "
            "another UUID."
        )
    return ""


def _node(adoption: Adoption, place: _Place, *taken: Container[str]) -> Node:
    """A machine that is a node already keeps the node's name where the file gives it no other, even
    if its owner renamed it.
    """
    machine = place.found.machine
    name = adoption.like.name or place.kept or node_name(place.found.name)
    is_taken = any(name in each for each in taken)
    if adoption.match and is_taken and name != place.kept:
        name = f"{name[: MAX_NAME - 9].rstrip('-')}-{str(machine.uuid)[:8]}"
    return replace(
        adoption.like,
        name=place.node or name,
        host=place.host,
        cpus=machine.cpus,
        memory=machine.memory,
        arch=machine.arch,
        firmware=machine.firmware,
        tpm=machine.tpm,
        boot_order=machine.boot_order,
        adopted=Adopted(machine.uuid, machine.adopted),
    )


def _plugged_in(
    cluster: Cluster,
    cluster_id: UUID,
    nodes: Iterable[Node],
    machines: Mapping[UUID, Adoptable],
) -> Iterator[Node]:
    """The nodes, with the NICs of adopted ones that are all on networks of the cluster: these boot
    there as the cluster's own do, at addresses that are kept for them.
    """
    bridged = {host.name for host in cluster.hosts if host.declares.has_bridges}
    own = [each.name for each in cluster.networks if not each.existing]
    networks = {bridge_name(cluster_id, name): name for name in own}
    for node in nodes:
        if node.adopted is None or node.host not in bridged:
            yield node
        else:
            yield replace(node, nics=_nics(machines[node.adopted.uuid].machine, networks))


def _nics(machine: Machine, networks: Mapping[str, str]) -> tuple[Nic, ...]:
    """() for a machine with NICs elsewhere. `networks`: by their bridges."""
    if not all(nic.network in networks and is_mac(nic.mac) for nic in machine.nics):
        return ()
    return tuple(Nic(networks[nic.network], mac=nic.mac) for nic in machine.nics)


def node_name(machine: str) -> str:
    """The name of a node whose machine is called so."""
    return _UNFIT.sub("-", machine.lower()).strip("-")[:MAX_NAME].rstrip("-") or "machine"


def as_remembered(cluster: Cluster, cluster_id: UUID, claimed: Iterable[Claimed]) -> Cluster:
    """The cluster with the adopted nodes that it had when someone last looked."""
    known = list(claimed)
    not_asked = {host: HostFacts.of_one_away("not asked") for host in {each.host for each in known}}
    return adopt(cluster, cluster_id, not_asked, known).cluster


def changed_by_owners(
    before: Iterable[Claimed], desired: Mapping[Key, Resource]
) -> dict[str, list[FieldChange]]:
    """Node -> what is not as it was when it was adopted, or last brought up: its owner changed it.
    The BMC tells it from the next `up` on.
    """
    found = {}
    for each in before:
        now = desired.get(Key(Kind.MACHINE, each.host, each.node))
        if now is None or not isinstance(now.shape, Machine) or not now.shape.adopted:
            continue
        before_it = replace(each.machine, boot=now.shape.boot)  # the file decides that
        if changes := list(field_changes(before_it, now.shape, {})):
            found[each.node] = [
                replace(change, field="name") if change.field == "adopted" else change
                for change in changes
            ]
    return found
