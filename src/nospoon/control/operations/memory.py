"""What the store knows of clusters: rows before anything is made, and none after all is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol
from uuid import UUID

import structlog

from nospoon.control.content.certificates import certificate_files
from nospoon.control.content.files import Files, is_url
from nospoon.control.content.space import text_of
from nospoon.control.fleet.authority import Publish
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.operations.served import Give, give_certificate, member_of, served_profiles
from nospoon.control.planning.logins import with_new_logins
from nospoon.control.planning.pending import as_it_is
from nospoon.control.planning.planner import Planner
from nospoon.control.planning.prepared import Prepared
from nospoon.control.planning.saved import save
from nospoon.control.request import Request
from nospoon.engine.observe import observe_reachable
from nospoon.model.cluster import Cluster, Host
from nospoon.model.lab import Lab
from nospoon.model.principal import OwnerId
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.plan.addresses.claims import Claims, Scope, cluster_claims, macs_of
from nospoon.plan.diff.targets import touched
from nospoon.plan.order.kinds import KINDS
from nospoon.runtime.clock import Clock
from nospoon.runtime.freeing import free
from nospoon.runtime.paced import paced
from nospoon.runtime.pausing import pausing
from nospoon.services.consoles.service import ConsoleService
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.desired import packed
from nospoon.store.nodes import NodeRow, Source

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Kept:
    """What was remembered before an `up` does anything. `pending`: nodes as they are to be, whose
    host and account are remembered only once that is so.
    """

    row: ClusterRow
    pending: Sequence[NodeRow]


class LabBoard(Protocol):
    """The labs of clusters."""

    def put(self, cluster_id: UUID, owner: OwnerId, cluster: str, labs: Sequence[Lab]) -> None: ...
    def drop(self, cluster_id: UUID) -> None: ...
    def coming(self, cluster_id: UUID, labs: Iterable[Lab]) -> AbstractContextManager[None]: ...
    def require_own_macs(self, cluster_id: UUID, labs: Iterable[Lab]) -> None: ...
    def require_own_bmcs(self, owner: OwnerId, cluster_id: UUID, labs: Iterable[Lab]) -> None: ...
    def require_few(self, owner: OwnerId, cluster_id: UUID, labs: Sequence[Lab]) -> None: ...
    def require_unused(self, cluster_id: UUID, staying: Iterable[str] = ()) -> None: ...


class Memory:
    """Clusters as the store has them, and what of them is served."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        files: Files,
        planner: Planner,
        fleet: Fleet,
        consoles: ConsoleService,
        publish: Publish,
        give: Give,
        labs: LabBoard,
        clock: Clock,
    ) -> None:
        self._database, self._cipher, self._files = database, cipher, files
        self._planner, self._fleet, self._consoles = planner, fleet, consoles
        self._publish, self._give, self._labs, self._clock = publish, give, labs, clock

    async def remember(self, prepared: Prepared, request: Request) -> Kept:
        """Rows before resources: what is made from now on has a row that knows of it.

        Raises `Stale` when another cluster took the same addresses, or what was left of a host,
        since this one was prepared.
        """
        seen, left = prepared.seen, _left(prepared, request)
        row = await self._planner.workers.run(
            request.caller.uid, self._row, prepared, request, left
        )
        wanted, nodes = await self._planner.workers.run(row.owner, self._rows, prepared, left)
        to_be = {each.name: each for each in wanted if each.name not in left}
        takings = await self._planner.workers.run(row.owner, _takings, prepared, nodes, to_be)
        self._refuse(seen.cluster, row)
        with self._labs.coming(row.id, seen.cluster.labs):
            await self._store(prepared, row, nodes, takings)
            self._files.stored(row.uploads.values())
            self._labs.put(row.id, row.owner, row.name, seen.cluster.labs)
            now, boots = await self._take(prepared, row, nodes)
        if boots:
            await self._publish(*boots)
        names = {uuid: name for name, uuid in now.items()}
        await self._consoles.keep(names, group=record_group(row.owner, row.name))
        both = zip(wanted, nodes, strict=True)
        changing = [
            to_be async for to_be, as_is in paced(both) if to_be.name not in left and to_be != as_is
        ]
        return Kept(row, changing)

    async def _take(
        self, prepared: Prepared, row: ClusterRow, nodes: Sequence[NodeRow]
    ) -> tuple[Mapping[str, UUID], Sequence[UUID]]:
        """From now on the fleet has these nodes. Their machines, and those that boot another
        profile than before.
        """
        seen = prepared.seen
        profiles = served_profiles(seen.cluster, seen.uploads, self._files)
        certificate = seen.cluster.addressing.certificate
        give_certificate(certificate, seen.uploads, self._files, self._give)
        now = {node.name: node.uuid async for node in paced(nodes)}
        async for each in paced(seen.rows):
            if now.get(each.name, each.uuid) != each.uuid:  # it is another machine now
                self._fleet.drop(each.uuid)
        boots = []
        async for node in paced(nodes):
            profile, before = profiles.get(node.profile), self._fleet.get(node.uuid)
            self._fleet.put(member_of(row, node, profile))
            if before is not None and before.profile != profile:
                boots.append(node.uuid)
        return now, boots

    def _row(self, prepared: Prepared, request: Request, left: Mapping[str, NodeRow]) -> ClusterRow:
        """The cluster's own, of the next generation."""
        seen, enrolment = prepared.seen, self._planner.enrolment
        earlier = seen.earlier
        known = earlier.allocations if earlier is not None else prepared.allocations
        leavers = {each.name for each in seen.rows} - {node.name for node in seen.cluster.nodes}
        return ClusterRow(
            id=seen.id,
            name=seen.cluster.name,
            owner=request.caller.uid,
            generation=(earlier.generation if earlier else 0) + 1,
            file=request.file,
            text=self._cipher.encrypt(request.text).decode(),
            uploads=seen.uploads,
            allocations=prepared.allocations.keeping(known, left).with_leavers(known, leavers),
            created=earlier.created if earlier else self._clock(),
            enrolled=enrolment.sealed(
                enrolment.joined(enrolment.place_of(earlier), seen.cluster.ironic)
            ),
            desired=self._cipher.encrypt_bytes(packed(seen.said)),
        )

    def _refuse(self, cluster: Cluster, row: ClusterRow) -> None:
        """What others have by now, and what is more than its owner may have."""
        self._labs.require_unused(row.id, [lab.name for lab in cluster.labs])
        self._labs.require_own_macs(row.id, cluster.labs)
        self._labs.require_own_bmcs(row.owner, row.id, cluster.labs)
        if row.owner not in self._planner.access.admins:
            self._labs.require_few(row.owner, row.id, cluster.labs)
        held, space = text_of(row.id), self._files.space
        space.refuse_full(row.size)
        space.refuse_beyond(row.owner, row.size - space.held(row.owner, held))

    async def _store(
        self,
        prepared: Prepared,
        row: ClusterRow,
        nodes: Sequence[NodeRow],
        takings: Sequence[Taking],
    ) -> None:
        """Durable, unless another cluster has taken the same meanwhile."""
        hosts = prepared.seen.cluster.hosts
        claimed = await self._planner.workers.run(row.owner, _claimed, prepared, row, nodes)
        await self._database.call(
            save,
            row,
            nodes,
            hosts,
            limited=row.owner not in self._planner.access.admins,
            most_nodes=self._planner.member_nodes,
            settings=self._planner.clusters.logins.sealed(hosts),
            claimed=claimed,
            takings=takings,
            wanted=await self._planner.allocating.wanted(prepared.seen, row.allocations),
        )
        self._files.space.hold(row.owner, text_of(row.id), row.size)

    async def use_logins(self, cluster: UUID, now: Sequence[Host]) -> None:
        """From now on a cluster's hosts are reached by the logins that these hosts have, where they
        are of the same user and project, or something of the cluster is found by them.
        """
        hosts = await self._database.read(stored.hosts_of, cluster)
        before = {host.name: host for host in hosts}
        others = [each for each in now if _is_another(before.get(each.name), each)]
        seen = {host.name: host for host in others if await self._is_on(host, cluster)}

        def change(known: Sequence[Host]) -> Sequence[Host]:
            return [seen.get(host.name, host) for host in with_new_logins(known, now)]

        if change(hosts) != hosts:
            for row in await self._database.call(stored.change_hosts, cluster, change):
                self.moved(row)

    async def _is_on(self, host: Host, cluster: UUID) -> bool:
        """Whether something of a cluster is found on a host."""
        found, _ = await observe_reachable(self._planner.drivers([host]), cluster)
        return any(not KINDS[each.key.kind].by_daemon for each in found)

    def moved(self, row: NodeRow) -> None:
        member = self._fleet.get(row.uuid)
        if member is not None:
            self._fleet.put(replace(member, host=row.host))

    def _rows(
        self, prepared: Prepared, left: Mapping[str, NodeRow]
    ) -> tuple[list[NodeRow], list[NodeRow]]:
        """As they are to be, and as they are before anything is done."""
        wanted = list(self._node_rows(prepared))
        return wanted, list(_rows_now(wanted, prepared, left))

    def _node_rows(self, prepared: Prepared) -> Iterator[NodeRow]:
        hosts = {host.name: host for host in prepared.seen.cluster.hosts}
        for node in pausing(prepared.seen.cluster.nodes):
            host = prepared.allocations.hosts[node.name]
            machine = prepared.desired[Key(Kind.MACHINE, host, node.name)].shape
            assert isinstance(machine, Machine), "machine keys have machine shapes"
            account = prepared.accounts[node.name]
            yield NodeRow(
                cluster_id=prepared.seen.id,
                name=node.name,
                host=hosts[host],
                machine=machine,
                profile=node.boot,
                username=account.username,
                password=self._cipher.encrypt(account.password),
                k_g=self._sealed(account.k_g),
                pdu_secret=self._sealed(account.pdu_secret),
                source=Source.FILE if node.credentials.password else Source.MADE,
            )

    def _sealed(self, secret: str) -> bytes:
        """Encrypted; b"" for none."""
        return self._cipher.encrypt(secret) if secret else b""

    async def know_alternatives(self, prepared: Prepared, again: Prepared) -> None:
        """Machines that are another one of their alternatives than what was planned."""
        made: dict[UUID, Machine] = {}
        async for key, each in paced(list(prepared.desired.items())):
            now = again.desired.get(key) if each.alternatives else None
            if now is not None and now.shape != each.shape and isinstance(now.shape, Machine):
                made[now.shape.uuid] = now.shape
        if not made:
            return
        await self._database.call(node_rows.know_machines, made)
        for uuid, machine in made.items():
            if (member := self._fleet.get(uuid)) is not None:
                self._fleet.put(replace(member, machine=machine))

    async def forget_leavers(self, prepared: Prepared, targets: Collection[str]) -> None:
        """Nodes and hosts that the file names no more; a second look found nothing of them."""
        rows = await self._database.read(node_rows.nodes_of, prepared.seen.id)
        wanted = {node.name for node in prepared.seen.cluster.nodes}
        asked = targets or {row.name for row in rows}
        leavers = [row for row in rows if row.name in asked and row.name not in wanted]
        for row in leavers:
            self._fleet.drop(row.uuid)
        await self._database.call(node_rows.drop_nodes, [row.uuid for row in leavers])
        if leavers:
            names, id_ = {row.name for row in leavers}, prepared.seen.id
            gone = await self._planner.workers.run(prepared.seen.owner, _macs_gone, rows, names)
            await self._database.call(stored.forget_places, id_, names, gone)
        if targets:
            return
        hosts = [host.name for host in prepared.seen.cluster.hosts]
        await self._database.call(stored.keep_hosts, prepared.seen.id, hosts)

    async def forget(self, row: ClusterRow, *, purge: bool) -> None:
        """`purge`: of what was uploaded for it, too, at once. Downloads are kept for a while: the
        next cluster may name the same URL.
        """
        async for node in paced(await self._database.read(node_rows.nodes_of, row.id)):
            self._fleet.drop(node.uuid)
        await self._database.call(stored.remove, row.id)
        self._labs.drop(row.id)
        self._files.space.release(row.owner, text_of(row.id))
        used = await self._database.read(stored.digests)
        await asyncio.to_thread(self._files.keep_only, used)
        known = await self._planner.workers.run(row.owner, self._planner.clusters.known, row)
        files = certificate_files(known) if known is not None else ()
        held = [known]
        del known
        await free(held)
        given = {row.uploads.get(name, "") for name in files}
        for digest in given - used - {""}:
            self._files.release(digest, row.owner)  # a key waits for no one who may name it again
        if purge:
            uploads = {digest for name, digest in row.uploads.items() if not is_url(name)}
            await asyncio.to_thread(self._files.release_unasked, uploads - given - used, row.owner)


def _is_another(before: Host | None, now: Host) -> bool:
    """Whether a host of this name has a login by another name at the same kind of connection: one
    may lead to another project.
    """
    if before is None or not (before.connection.login and now.connection.login):
        return False
    return before.machine != now.machine


def record_group(owner: OwnerId, name: str) -> str:
    """Whose console records: they stay after the cluster is gone, until they are purged."""
    return f"{owner}/{name}"


def _rows_now(
    wanted: Iterable[NodeRow], prepared: Prepared, left: Mapping[str, NodeRow]
) -> Iterator[NodeRow]:
    """Rows of all nodes, before anything is done. Those that are left stay as they are, but for
    their boot profile: what the file says of profiles and labels holds for all of it.
    """
    known = {row.name: row for row in prepared.seen.rows}
    made = {step.key for step in prepared.plan.steps}
    for row in wanted:
        before = left.get(row.name)
        if before is not None:
            yield replace(before, profile=row.profile)
        else:
            yield as_it_is(row, known.get(row.name), made)


def _claimed(prepared: Prepared, row: ClusterRow, nodes: Sequence[NodeRow]) -> Claims:
    """What no other cluster may have from now on; nodes that leave keep theirs until then."""
    names = {each.name for each in nodes}
    leavers = (each for each in prepared.seen.rows if each.name not in names)
    machines = [each.machine for each in chain(nodes, leavers)]
    return cluster_claims(prepared.seen.cluster, row.id, row.allocations, machines)


def _macs_gone(rows: Sequence[NodeRow], names: Collection[str]) -> set[tuple[Scope, str]]:
    """MACs of nodes with these names, which no other node has. For a thread: there may be a
    hundred thousand.
    """
    leave = macs_of(row.machine for row in rows if row.name in names)
    return leave - macs_of(row.machine for row in rows if row.name not in names)


def _takings(
    prepared: Prepared, nodes: Iterable[NodeRow], to_be: Mapping[str, NodeRow]
) -> list[Taking]:
    """Of nodes that are not left as they are: at the host where each is, and where it is to be."""
    disks = {
        each.shape.uuid: sum(each.shape.disk_sizes)
        for each in prepared.desired.values()
        if isinstance(each.shape, Bmc)
    }
    return [
        Taking(
            row.uuid,
            tuple({host.name: host for host in (row.host, to_be[row.name].host)}.values()),
            row.machine.cpus,
            row.machine.memory,
            disks.get(row.uuid, 0),
        )
        for row in nodes
        if row.name in to_be
    ]


def _left(prepared: Prepared, request: Request) -> dict[str, NodeRow]:
    """Nodes that are there, and that an `up` of others leaves where and as they are."""
    if not request.targets:
        return {}
    changed = {*request.targets, *touched(prepared.plan)}
    return {row.name: row for row in prepared.seen.rows if row.name not in changed}
