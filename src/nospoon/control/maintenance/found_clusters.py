"""Clusters, as the tags of what is on hosts tell of them, beside what the store knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from nospoon.control.maintenance.orphans import cluster_name
from nospoon.control.maintenance.survey import Seen
from nospoon.model.cluster import Cluster, Host
from nospoon.model.ironic import IronicPlace
from nospoon.model.principal import OwnerId
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed
from nospoon.plan.addresses import notes
from nospoon.plan.order.kinds import KINDS
from nospoon.store.clusters import ClusterRow
from nospoon.store.nodes import NodeRow


@dataclass(frozen=True, slots=True)
class Known:
    """A cluster of the store, before anything was looked at. `busy`: what is under way on it.
    `row` is without its file while all clusters are held: those of one member may have gigabytes.
    """

    row: ClusterRow
    nodes: Sequence[NodeRow]
    hosts: Sequence[Host]
    busy: str = ""


NOTHING_KNOWN: Mapping[UUID, Known] = {}


@dataclass(frozen=True, slots=True)
class Found:
    """One cluster as its tags tell of it: its things, each thing's host by the file's name, and the
    Ironic that has nodes of it.
    """

    id: UUID
    name: str
    owner: OwnerId
    things: tuple[Observed, ...]
    hosts: tuple[Host, ...]
    ironic: IronicPlace | None = None

    @property
    def machines(self) -> Iterator[tuple[Observed, Machine]]:
        for each in self.things:
            if isinstance(each.shape, Machine):
                yield each, each.shape


def found_in(
    seen: Sequence[Seen], owner: OwnerId, known: Mapping[UUID, Known] = NOTHING_KNOWN
) -> list[Found]:
    """The clusters of what was seen, under the hosts' names that their tags note, or that are
    known.
    """
    things: dict[UUID, list[Observed]] = {}
    hosts: dict[UUID, dict[str, Host]] = {}
    ironics: dict[UUID, IronicPlace] = {}
    for each in seen:
        for id_, part in each.clusters().items():
            some = part.things
            if isinstance(each.place, IronicPlace):
                ironics[id_] = each.place
                things.setdefault(id_, []).extend(some)
                continue
            host = _home(each.place, some, known.get(id_))
            things.setdefault(id_, []).extend(
                replace(one, key=replace(one.key, place=host.name)) for one in some
            )
            if id_ not in known or any(not KINDS[one.key.kind].by_daemon for one in some):
                hosts.setdefault(id_, {})[host.name] = host
    return [
        Found(
            id_,
            known[id_].row.name if id_ in known else cluster_name(some),
            known[id_].row.owner if id_ in known else _owner(some, owner),
            tuple(some),
            tuple(hosts.get(id_, {}).values()),
            ironics.get(id_),
        )
        for id_, some in things.items()
        if any(each.key.kind is not Kind.IMAGE for each in some)  # those that no cluster uses
    ]


def _home(place: Host, things: Sequence[Observed], known: Known | None) -> Host:
    hosts = {host.server: host for host in known.hosts} if known is not None else {}
    if place.server in hosts:
        return hosts[place.server]
    noted = _noted_host([each for each in things if not KINDS[each.key.kind].by_daemon])
    return replace(place, name=noted or place.name)


def _noted_host(things: Sequence[Observed]) -> str:
    """The name that the cluster's file gives the host on which these are."""
    return next((host for each in things if (host := notes.read(each.tag.note).host)), "")


def _owner(things: Sequence[Observed], owner: OwnerId) -> int:
    told = next((each.tag.uid for each in things if each.tag.uid is not None), None)
    return owner if told is None else told


def others_of(
    seen: Sequence[Seen], known: Mapping[UUID, Known], of: Cluster | None
) -> tuple[Host, ...]:
    """Hosts of clusters that are known, and that were found or are asked for, where no one looked:
    only who looks everywhere can tell what is lacking.
    """
    found = {id_ for each in seen for id_ in each.clusters()}
    hosts = [
        host
        for id_, each in known.items()
        if (id_ in found and of is None) or (of is not None and each.row.name == of.name)
        for host in each.hosts
    ]
    asked = {each.place.server for each in seen if isinstance(each.place, Host)}
    return tuple(host for host in hosts if host.server not in asked)


def beside(hosts: Sequence[Host], others: Iterable[Host]) -> list[Host]:
    """And others that are neither called like one of these, nor lead where one does."""
    names, places = {host.name for host in hosts}, {host.server for host in hosts}
    return [
        *hosts,
        *(each for each in others if each.name not in names and each.server not in places),
    ]


def names_among(away: Iterable[Host], hosts: Iterable[Host]) -> list[str]:
    """Names of the hosts that are away."""
    silent = {host.server for host in away}
    return [host.name for host in hosts if host.server in silent]
