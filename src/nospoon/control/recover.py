"""Recovery: a lost store is made again from the tags of what is on the hosts.

Tags tell of clusters, their ids, names and owners; of nodes and where they are; of networks'
addresses; of where BMCs answered. What they do not tell is new or missing: passwords, and the file,
in whose stead one is written of what was found, until the next `up` brings it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_interface
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from nospoon.control.accounts import random_password
from nospoon.control.enrolment import Enrolment
from nospoon.control.fleet import Fleet, Member
from nospoon.control.hosts import Hosts
from nospoon.control.orphans import Orphans, cluster_name, user_name
from nospoon.control.survey import Scope, Seen
from nospoon.errors import Conflict, NospoonError, NotFound
from nospoon.model.cluster import Host
from nospoon.model.ironic import IronicPlace
from nospoon.model.machine import KeptState
from nospoon.model.resources import Kind, Link, Machine, Observed
from nospoon.plan import notes
from nospoon.plan.allocate import Allocations
from nospoon.plan.found_numbers import found_hosts, found_nics
from nospoon.plan.notes import Noted
from nospoon.runtime.clock import Clock
from nospoon.spec.recovered import cluster_file
from nospoon.store import clusters as stored
from nospoon.store import snapshots
from nospoon.store.clusters import ClusterRow, NodeRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.snapshots import SnapshotRow, SnapshotState

Kept = Sequence[tuple[NodeRow, Mapping[str, Mapping[str, KeptState]]]]
"""Nodes, with their disks -> name -> the state that it keeps so called."""
FILE = "recovered.yaml"
ONLY_IN_IRONIC = (
    "not recovered: none of its hosts was looked at, or they have nothing of it; "
    "`nospoon orphans --reap` removes its nodes from Ironic"
)


@dataclass(frozen=True, slots=True)
class Found:
    """One cluster as its tags tell of it: its things, each thing's host by the file's name, and the
    Ironic that has nodes of it.
    """

    id: UUID
    name: str
    uid: int
    things: tuple[Observed, ...]
    hosts: tuple[Host, ...]
    ironic: IronicPlace | None = None

    @property
    def machines(self) -> Iterator[tuple[Observed, Machine]]:
        for each in self.things:
            if isinstance(each.shape, Machine):
                yield each, each.shape


class Recovery:
    """Makes rows of what belongs to no cluster in the store. Nothing on a host is changed."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        orphans: Orphans,
        hosts: Hosts,
        fleet: Fleet,
        enrolment: Enrolment,
        clock: Clock,
    ) -> None:
        self._database, self._cipher, self._orphans = database, cipher, orphans
        self._hosts, self._fleet, self._clock = hosts, fleet, clock
        self._enrolment = enrolment
        self._one_at_a_time = asyncio.Lock()

    async def recover(self, uid: int, scope: Scope, *, only: str = "") -> dict[str, Any]:
        """{"clusters": [row], "away": {host: reason}, "others": {host: {deployment: things}}}.

        `only`: a cluster's name. `uid`: the owner of clusters whose tags name none.
        """
        async with self._one_at_a_time:
            seen = await self._orphans.find(scope)
            found = [each for each in found_in(seen, uid) if only in ("", each.name)]
            rows = [await self._restore(each) for each in found]
        return {
            "clusters": rows,
            "away": {each.name: each.away for each in seen if each.away},
            "others": {each.name: each.others for each in seen if each.others},
        }

    async def adopt(self, deployment: str, scope: Scope) -> None:
        """From its next start on the daemon is this deployment, whose state was lost.

        Raises `Conflict` when it has clusters already, `NotFound` when nothing carries that tag.
        """
        if await self._database.call(stored.all_clusters):
            raise Conflict(
                "this daemon has clusters: it cannot become another deployment",
                hint="Recover with an empty state: set NOSPOON_STATE_DIR to a new directory.",
            )
        seen = await self._orphans.find(scope)
        if not any(deployment in each.others for each in seen):
            raise NotFound(f"nothing there carries a tag of deployment {deployment!r}")
        await self._database.adopt(deployment)

    async def _restore(self, found: Found) -> dict[str, Any]:
        nodes = list(self._nodes(found))
        row = ClusterRow(
            id=found.id,
            name=found.name,
            uid=found.uid,
            generation=max(each.tag.generation for each in found.things),
            file=FILE,
            text=self._cipher.encrypt(self._text(found)).decode(),
            uploads={},
            allocations=allocations_of(found),
            created=self._clock(),
            enrolled=self._enrolment.sealed(found.ironic),
        )
        taken = ONLY_IN_IRONIC
        if found.hosts:
            taken = await self._database.call(_save, row, nodes, found.hosts)
        kept, said = 0, taken or "recovered"
        if not taken:
            for node in nodes:
                self._fleet.put(_member(row, node))
            await asyncio.gather(*(self._hosts.look(host) for host in found.hosts))
            try:
                kept = await self._snapshots(row, nodes)
            except NospoonError as error:
                said = f"recovered, but for its snapshots: {error}"
        return {
            "cluster": found.name,
            "owner": user_name(found.uid),
            "nodes": len(nodes),
            "hosts": ", ".join(host.name for host in found.hosts),
            "ironic": str(found.ironic or ""),
            "bmcs": len(row.allocations.endpoints),
            "snapshots": kept,
            "said": said,
            "cluster_id": str(found.id),
        }

    async def _snapshots(self, row: ClusterRow, nodes: Sequence[NodeRow]) -> int:
        """Those that its machines' disks keep; how many."""
        asked = (self._hosts.driver(node.uuid).kept(node.uuid) for node in nodes)
        found = snapshots_of(row.id, list(zip(nodes, await asyncio.gather(*asked), strict=True)))
        for each in found:
            await self._database.call(snapshots.put, each)
        return len(found)

    def _text(self, found: Found) -> str:
        return cluster_file(found.name, found.id, found.hosts, found.things)

    def _nodes(self, found: Found) -> Iterator[NodeRow]:
        hosts = {host.name: host for host in found.hosts}
        for each, machine in found.machines:
            yield NodeRow(
                cluster_id=found.id,
                name=each.key.name,
                host=hosts[each.key.host],
                machine=machine,
                profile="",
                username="",
                password=self._cipher.encrypt(random_password()),
            )


def found_in(seen: Sequence[Seen], uid: int) -> list[Found]:
    """The clusters of what was seen, under the hosts' names that their tags note."""
    things: dict[UUID, list[Observed]] = {}
    hosts: dict[UUID, dict[str, Host]] = {}
    ironics: dict[UUID, IronicPlace] = {}
    for each in seen:
        for id_, some in each.clusters().items():
            if isinstance(each.place, IronicPlace):
                ironics[id_] = each.place
                things.setdefault(id_, []).extend(some)
                continue
            host = replace(each.place, name=_noted_host(some) or each.place.name)
            hosts.setdefault(id_, {})[host.name] = host
            things.setdefault(id_, []).extend(
                replace(one, key=replace(one.key, host=host.name)) for one in some
            )
    return [
        Found(
            id_,
            cluster_name(some),
            _owner(some, uid),
            tuple(some),
            tuple(hosts.get(id_, {}).values()),
            ironics.get(id_),
        )
        for id_, some in things.items()
        if any(each.key.kind is not Kind.IMAGE for each in some)  # those that no cluster uses
    ]


def snapshots_of(cluster: UUID, kept: Kept) -> list[SnapshotRow]:
    """Snapshots by what the disks of its nodes keep: those who have it were there. One that some
    disk of theirs lacks is half taken, or half deleted.
    """
    names = {name for _, disks in kept for states in disks.values() for name in states}
    return [_snapshot(cluster, name, kept) for name in sorted(names)]


def _snapshot(cluster: UUID, name: str, kept: Kept) -> SnapshotRow:
    found = [(node, [states.get(name) for states in disks.values()]) for node, disks in kept]
    there = [(node, [state for state in states if state]) for node, states in found if any(states)]
    half = any(any(states) and not all(states) for _, states in found)
    return SnapshotRow(
        cluster,
        name,
        SnapshotState.TAKING if half else SnapshotState.COMPLETE,
        created=min(state.at for _, states in there for state in states),
        members=tuple(
            snapshots.Member(node.name, node.uuid, on=any(state.on for state in states))
            for node, states in there
        ),
    )


def _noted_host(things: Sequence[Observed]) -> str:
    """The name that the cluster's file gives the host on which these are."""
    return next((host for each in things if (host := notes.read(each.tag.note).host)), "")


def _owner(things: Sequence[Observed], uid: int) -> int:
    told = next((each.tag.uid for each in things if each.tag.uid is not None), None)
    return uid if told is None else told


def allocations_of(found: Found) -> Allocations:
    """The decisions that can be seen; of an endpoint that two nodes note, the first has it."""
    noted = {each.key.name: notes.read(each.tag.note) for each, _ in found.machines}
    links = {e.key.name: e.shape for e in found.things if isinstance(e.shape, Link)}
    outlets = {node: told.outlet for node, told in noted.items() if told.outlet is not None}
    ends = found_hosts(found.things)
    return Allocations(
        cidrs={
            name: str(ip_interface(link.address).network)
            for name, link in links.items()
            if link.address
        },
        hosts={each.key.name: each.key.host for each, _ in found.machines},
        endpoints={node: told.bmc for node, told in _first_of(noted) if told.bmc is not None},
        outlets=outlets if len(set(outlets.values())) == len(outlets) else {},
        numbers=found_nics(found.things, ends),
        ends=ends,
    )


def _first_of(noted: dict[str, Noted]) -> Iterator[tuple[str, Noted]]:
    taken: set[object] = set()
    for node, told in noted.items():
        place = (told.bmc.address, told.bmc.ipmi_port) if told.bmc is not None else None
        if place not in taken:
            yield node, told
        if told.bmc is not None and told.bmc.ipmi_port:
            taken.add(place)


def _save(
    connection: Connection, row: ClusterRow, nodes: list[NodeRow], hosts: Sequence[Host]
) -> str:
    """Rows of one cluster; or the reason why there can be none."""
    if stored.find(connection, uid=row.uid, name=row.name) is not None:
        return "not recovered: a cluster of that name and owner is there, with another id"
    stored.save(connection, row)
    stored.put_nodes(connection, nodes)
    stored.put_hosts(connection, row.id, hosts)
    return ""


def _member(row: ClusterRow, node: NodeRow) -> Member:
    return Member(
        uid=row.uid,
        cluster=row.name,
        cluster_id=row.id,
        node=node.name,
        host=node.host,
        machine=node.machine,
    )
