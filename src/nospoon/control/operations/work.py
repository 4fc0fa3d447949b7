"""The work of `up` and `down`: rows first, then the plan, then a second look."""

from __future__ import annotations

import asyncio
import textwrap
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Protocol
from uuid import UUID, uuid4

import structlog

from nospoon.clusterfile.recovered import FILE as RECOVERED
from nospoon.control.content.certificates import certificate_files
from nospoon.control.content.files import Files, is_url
from nospoon.control.content.space import text_of
from nospoon.control.fleet.authority import Publish
from nospoon.control.fleet.enrolment import FORGET
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.journal import NOBODY, Journal
from nospoon.control.operations.operations import Ended, Running
from nospoon.control.planning.pending import Pending, as_it_is, moving
from nospoon.control.planning.planner import Planner
from nospoon.control.planning.prepared import Prepared
from nospoon.control.planning.saved import refuse_anothers_bridges, refuse_collisions, save
from nospoon.control.request import Request
from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import Drivers, observe_reachable
from nospoon.engine.progress import Outcome
from nospoon.errors import Conflict, HostUnreachable, NospoonError, SpecError
from nospoon.model.cluster import BootProfile, CertificateFiles, Cluster, Host
from nospoon.model.ironic import Leaving
from nospoon.model.lab import Lab
from nospoon.model.node_kind import NodeKind
from nospoon.model.resources import Key, Kind, Machine, Observed, OwnerTag
from nospoon.plan.diff.diff import removal, waiting
from nospoon.plan.diff.targets import touched
from nospoon.plan.enrollment.enrol import PLACE
from nospoon.plan.order.order import MoveId
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.text import summary
from nospoon.plan.words import counted, listed
from nospoon.runtime.clock import Clock, monotonic
from nospoon.runtime.freeing import free
from nospoon.runtime.paced import paced
from nospoon.services.consoles.records import Records
from nospoon.services.consoles.service import ConsoleService
from nospoon.services.netboot.ports import ServedFile, ServedProfile
from nospoon.store import clusters as stored
from nospoon.store import operations as journal
from nospoon.store.clusters import ClusterRow, NodeRow, Source
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.operations import OperationState

log = structlog.get_logger()


_USUAL = Limits()
CONSOLE_LINES = 5
"""Of a node that failed."""
Give = Callable[[str, Path, Path], None]
"""Tells those who serve BMCs of a certificate, by its digest, and its key."""
Start = Callable[[UUID], Awaitable[str]]
"""A command through a machine's BMC, which keeps its last command."""
FetchRecords = Callable[[], Awaitable[None]]
"""Copies what is new in the console records of other hosts."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How `down` goes about it. `purge`: console records and uploads too; `force`: also nodes that
    are in use in Ironic.
    """

    purge: bool = False
    force: bool = False
    enrolment: Leaving = Leaving.REMOVE


@dataclass(frozen=True, slots=True)
class Kept:
    """What was remembered before an `up` does anything. `pending`: nodes as they are to be, whose
    host and account are remembered only once that is so.
    """

    row: ClusterRow
    pending: Sequence[NodeRow]


class LabBoard(Protocol):
    """The labs of clusters."""

    def put(self, cluster_id: UUID, uid: int, cluster: str, labs: Sequence[Lab]) -> None: ...
    def drop(self, cluster_id: UUID) -> None: ...
    def require_own_macs(self, cluster_id: UUID, labs: Iterable[Lab]) -> None: ...
    def require_few(self, uid: int, cluster_id: UUID, labs: Sequence[Lab]) -> None: ...
    def require_unused(self, cluster_id: UUID, staying: Iterable[str] = ()) -> None: ...


READING = 30.0
"""Seconds for which the start waits for cluster files to be read; the last one may take longer."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """What the daemon keeps of a cluster file."""

    profiles: dict[str, ServedProfile]
    labs: Sequence[Lab]
    certificate: CertificateFiles | None


def in_turn(rows: Iterable[ClusterRow]) -> list[ClusterRow]:
    """Owners take turns, older clusters first: files that take long are waited for by their owner
    alone.
    """
    counts = Counter[int]()
    placed = []
    for row in sorted(rows, key=attrgetter("created")):
        placed.append((counts[row.uid], row))
        counts[row.uid] += 1
    return [row for _, row in sorted(placed, key=itemgetter(0))]


class Work:
    """Carries out `up` and `down` inside operations. `reading`: see `READING`."""

    reading = READING

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        files: Files,
        planner: Planner,
        hosts: Hosts,
        fleet: Fleet,
        consoles: ConsoleService,
        records: Records,
        publish: Publish,
        fetch_records: FetchRecords,
        give: Give,
        pending: Pending,
        labs: LabBoard,
        start: Start,
        clock: Clock,
        patience: float = 0.0,
    ) -> None:
        self._labs, self._start = labs, start
        self._unread = deque[ClusterRow]()
        self._pending, self._patience = pending, patience
        self._publish, self._fetch_records, self._give = publish, fetch_records, give
        self._database, self._cipher, self._files = database, cipher, files
        self._planner, self._hosts, self._fleet = planner, hosts, fleet
        self._consoles, self._records, self._clock = consoles, records, clock

    async def up(self, running: Running, prepared: Prepared, request: Request, kept: Kept) -> Ended:
        """Make the cluster what its file says; `kept` is what `remember` gave."""
        row, seen = kept.row, prepared.seen
        running.note(summary(prepared.plan))
        most = request.parallel
        limits = Limits(per_host=most, waiting=most) if most else Limits()
        self._pending.begin(kept.pending)
        try:
            outcome = await self._execute(
                running, prepared.plan, seen.drivers, row, limits=limits,
                moves=moving(kept.pending),
            )  # fmt: skip
        finally:
            self._pending.end(kept.pending)
        await self._look_at_machines(seen.cluster.hosts)
        if not outcome.complete:
            await self._add_consoles(outcome, row)
            return _fallen_short(outcome, f"up {row.name}")
        looking = replace(request, fingerprint="", rebalance=False)
        again = await self._planner.prepare(looking, seen.cluster, surveyed=seen.surveyed)
        await self._database.call(journal.close_intents, row.id)
        if left := prepared.plan.undone(again.plan):
            names = ", ".join(str(step.key) for step in left[:5])
            return Ended(OperationState.PARTLY, f"done, and yet these are not as desired: {names}")
        await self._forget_leavers(prepared, request.targets)
        if not request.targets and seen.cluster.ironic is None:
            await self._database.call(stored.forget_enrolment, row.id)
        unstarted = await self._switch_on(prepared)
        late = [note for each in again.seen.observed if (note := waiting(each))]
        late += [f"{each.key.kind} {each.key.name} stays: {each.why}" for each in again.plan.later]
        held = [again]
        del again
        await free(held)
        amount = len(request.targets) or len(seen.cluster.nodes)
        said = f"cluster {row.name} is up: {counted(amount, 'node')}"
        state = OperationState.PARTLY if unstarted else OperationState.DONE
        return Ended(state, "; ".join((said, *unstarted, *late)))

    async def down(
        self, running: Running, row: ClusterRow | None, *, uid: int, name: str, how: Removal
    ) -> Ended:
        """Remove everything of a cluster; what is gone already is no error."""
        purge = how.purge
        if row is None:
            if purge:
                await self._records.purge(record_group(uid, name))
            return Ended(OperationState.DONE, f"no cluster {name}: nothing to remove")
        plan, drivers, away = await self.removal(row, how)
        if PLACE in away:
            why = f"nothing is removed: {away[PLACE].rstrip('.')}. {FORGET}"
            return Ended(OperationState.FAILED, why)
        running.note(summary(plan))
        outcome = await self._execute(running, plan, drivers, row)
        if away or not outcome.complete:
            reasons = "".join(f"; host {host}: {reason}" for host, reason in away.items())
            return _fallen_short(outcome, f"down {name}", reasons)
        held = [plan]
        del plan
        await free(held)
        await self._forget(row, purge=purge)
        await self._fetch_records()
        if purge:
            await self._records.purge(record_group(uid, name))
        back = f"; `id: {row.id}` in its file takes back what Ironic has of it"
        left = back if how.enrolment is not Leaving.REMOVE and row.enrolled else ""
        return Ended(OperationState.DONE, f"cluster {name} is down{left}{_unsure(row)}")

    async def removal(self, row: ClusterRow, how: Removal) -> tuple[Plan, Drivers, dict[str, str]]:
        """What `down` would remove, with which drivers, and which hosts are away. Raises `Conflict`
        for nodes that stay in Ironic, and somebody uses.
        """
        nodes = await self._database.read(stored.nodes_of, row.id)
        known = await self._planner.workers.run(row.uid, self._known_cluster, row)
        hosts = {host.name: host for host in known.hosts} if known is not None else {}
        hosts |= {node.host.name: node.host for node in nodes}
        hosts |= {host.name: host for host in await self._planner.hosts_of(row)}
        self._planner.access.check_hosts(row.uid, hosts.values())
        drivers: Drivers = self._planner.drivers(hosts.values())
        enrolment = self._planner.enrolment
        ironic = enrolment.drivers(enrolment.place_of(row), row.uid, force=how.force)
        if how.enrolment is Leaving.KEEP and not how.force:
            _refuse_used(*await observe_reachable(ironic, row.id))
        if how.enrolment is Leaving.REMOVE:
            drivers = {**drivers, **ironic}
        observed, away = await observe_reachable(drivers, row.id)
        plan = await self._planner.workers.run(
            row.uid, removal, cluster=row.name, cluster_id=row.id, observed=observed
        )
        held = [nodes, known, observed]
        del nodes, known, observed
        await free(held)
        return plan, drivers, away

    async def restore(self) -> int:
        """At start-up: know all nodes again. Returns how many there are."""
        rows = await self._database.read(stored.all_nodes)
        clusters = {row.id: row for row in await self._database.read(stored.all_clusters)}
        profiles = dict[UUID, dict[str, ServedProfile]]()
        self._unread = deque(in_turn(clusters.values()))
        end = monotonic() + self.reading
        while self._unread and monotonic() < end:
            first = self._unread.popleft()
            profiles[first.id] = await self._profiles_of(first)
        for row in self._unread:
            log.warning("its file is read after the start", cluster=row.name, uid=row.uid)
        owners = ((clusters[node.cluster_id].uid, node.host, node.machine) for node in rows)
        why_not = await self._planner.access.reached(owners)
        logged = set[tuple[UUID, str]]()
        for node in rows:
            row = clusters[node.cluster_id]
            why = why_not(row.uid, node.host, node.machine)
            if why and (row.id, why) not in logged:
                log.warning("not reached", cluster=row.name, uid=row.uid, why=why)
                logged.add((row.id, why))
            member = _member(row, node, profiles.get(row.id, {}).get(node.profile))
            self._fleet.put(member, reached=not why)
        return len(rows)

    async def read_rest(self) -> None:
        """The files for which the start did not wait: their labs are known then, and machines boot
        their profiles. One that an `up` or `down` has changed meanwhile is not looked at.
        """
        while self._unread:
            row = self._unread.popleft()
            if not await self._is_current(row):
                continue
            profiles, nodes = (
                await self._read(row),
                await self._database.read(stored.nodes_of, row.id),
            )
            if not await self._is_current(row):
                continue
            served = self._take_in(row, profiles)
            async for node in paced(nodes):
                self._fleet.serve(node.uuid, served.get(node.profile))

    async def _is_current(self, row: ClusterRow) -> bool:
        now = await self._database.read(stored.get, row.id)
        return now is not None and now.generation == row.generation

    async def use_grants(self) -> None:
        """The administrator's list may have changed: reach what it has now, and nothing else."""
        access = self._planner.access
        log.info("list of grants is read again", file=access.file)
        members = ((each.uid, each.host, each.machine) for each in self._fleet.all())
        why_not = await access.reached(members)
        self._fleet.reach(lambda each: not why_not(each.uid, each.host, each.machine))

    async def _execute(
        self,
        running: Running,
        plan: Plan,
        drivers: Drivers,
        row: ClusterRow,
        *,
        limits: Limits = _USUAL,
        moves: Mapping[MoveId, NodeRow] = NOBODY,
    ) -> Outcome:
        token = uuid4().hex
        tag = OwnerTag(self._database.deployment, row.id, row.generation, token, row.name, row.uid)
        kept = Journal(
            self._database, running.row.id, row.id, self._clock, moving=moves, moved=self._moved
        )
        return await execute(
            plan,
            drivers=drivers,
            tag=tag,
            journal=kept,
            emit=running.emit,
            limits=replace(limits, patience=self._patience),
        )

    async def remember(self, prepared: Prepared, request: Request) -> Kept:
        """Rows before resources: what is made from now on has somebody who knows of it.

        Raises `Stale` when another cluster took the same addresses since this one was prepared.
        """
        seen = prepared.seen
        earlier, enrolment = seen.earlier, self._planner.enrolment
        left = _left(prepared, request)
        told = earlier.allocations if earlier is not None else prepared.allocations
        leavers = {each.name for each in seen.rows} - {node.name for node in seen.cluster.nodes}
        row = ClusterRow(
            id=seen.id,
            name=seen.cluster.name,
            uid=request.uid,
            generation=(earlier.generation if earlier else 0) + 1,
            file=request.file,
            text=self._cipher.encrypt(request.text).decode(),
            uploads=seen.uploads,
            allocations=prepared.allocations.keeping(told, left).with_leavers(told, leavers),
            created=earlier.created if earlier else self._clock(),
            enrolled=enrolment.sealed(
                enrolment.joined(enrolment.place_of(earlier), seen.cluster.ironic)
            ),
        )
        wanted, nodes = await self._planner.workers.run(row.uid, self._rows, prepared, left)
        refuse_anothers_bridges(seen.cluster, seen.id, self._fleet.bridges(but=seen.id))
        self._labs.require_unused(seen.id, [lab.name for lab in seen.cluster.labs])
        self._labs.require_own_macs(seen.id, seen.cluster.labs)
        limited = not self._planner.access.is_admin(row.uid)
        if limited:
            self._labs.require_few(row.uid, seen.id, seen.cluster.labs)
        held, space = text_of(row.id), self._files.space
        space.refuse_full(len(row.text))
        space.refuse_beyond(row.uid, len(row.text) - space.held(row.uid, held))
        most = self._planner.member_nodes
        others = await self._database.read(stored.holdings)
        compared = await self._planner.workers.run(row.uid, refuse_collisions, row, others)
        await self._database.call(
            save,
            row,
            nodes,
            seen.cluster.hosts,
            limited=limited,
            most_nodes=most,
            settings=self._planner.logins.sealed(seen.cluster.hosts),
            compared=compared,
        )
        space.hold(row.uid, held, len(row.text))
        self._files.stored(row.uploads.values())
        profiles = served_profiles(seen.cluster, seen.uploads, self._files)
        self._labs.put(row.id, row.uid, row.name, seen.cluster.labs)
        self._give_certificate(seen.cluster.addressing.certificate, seen.uploads)
        now = {node.name: node.uuid for node in nodes}
        for each in seen.rows:
            if now.get(each.name, each.uuid) != each.uuid:  # it is another machine now
                self._fleet.drop(each.uuid)
        async for node in paced(nodes):
            profile, before = profiles.get(node.profile), self._fleet.get(node.uuid)
            self._fleet.put(_member(row, node, profile))
            if before is not None and before.profile != profile:
                await self._publish(node.uuid)
        names = {node.uuid: node.name for node in nodes}
        await self._consoles.keep(names, group=record_group(row.uid, row.name))
        changing = (each for each in zip(wanted, nodes, strict=True) if each[0].name not in left)
        return Kept(row, [to_be for to_be, now in changing if to_be != now])

    def _moved(self, row: NodeRow) -> None:
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
        for node in prepared.seen.cluster.nodes:
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

    async def _add_consoles(self, outcome: Outcome, row: ClusterRow) -> None:
        """To nodes that Ironic did not bring where they are wanted: what they said last."""
        of_ironic = str(Key(Kind.IRONIC_STANDING, PLACE, "")).partition("/")[0]
        failed = [each for each in outcome.failures if each.what.startswith(f"{of_ironic}/")]
        if not failed:
            return
        await self._fetch_records()
        nodes = await self._database.read(stored.nodes_of, row.id)
        uuids = {node.name: node.uuid for node in nodes}
        for each in (each for each in failed if each.node in uuids):
            end = await asyncio.to_thread(self._records.end, uuids[each.node], CONSOLE_LINES)
            if end:
                told = f"{each.message}\n  its console's end:\n{textwrap.indent(end, '  | ')}"
                outcome.failures[outcome.failures.index(each)] = replace(each, message=told)

    async def _switch_on(self, prepared: Prepared) -> list[str]:
        """Start what runs its own image and was made now, or by an `up` that did not end; says of
        which that failed, and why. Bare metal waits for its deployer.
        """
        made = {
            step.node
            for step in prepared.plan.steps
            if step.action in (Action.CREATE, Action.REPLACE) and step.key.kind is Kind.MACHINE
        }
        made |= await self._database.read(journal.begun_machines, prepared.seen.id)
        starting = [
            self._started(each.shape.uuid, each.node)
            for each in prepared.desired.values()
            if isinstance(each.shape, Machine) and each.shape.kind is not NodeKind.BAREMETAL
            if each.node in made
        ]
        return list(filter(None, await asyncio.gather(*starting)))

    async def _started(self, machine: UUID, node: str) -> str:
        try:
            why = await self._start(machine)
        except NospoonError as error:
            why = str(error)
        hint = f"start it with `nospoon node power {node} on`"
        return why and f"node {node} was made and does not start: {why.rstrip('.')}; {hint}"

    async def _look_at_machines(self, hosts: tuple[Host, ...]) -> None:
        await asyncio.gather(*(self._look_at(host) for host in hosts))

    async def _look_at(self, host: Host) -> None:
        """Of one that is away, its watch tells when it is back."""
        try:
            await self._hosts.look(host)
        except HostUnreachable as error:
            log.warning("host is unreachable", host=host.name, why=str(error))

    async def _forget_leavers(self, prepared: Prepared, targets: Collection[str]) -> None:
        """Nodes and hosts that the file names no more; a second look found nothing of them."""
        rows = await self._database.read(stored.nodes_of, prepared.seen.id)
        wanted = {node.name for node in prepared.seen.cluster.nodes}
        asked = targets or {row.name for row in rows}
        leavers = [row for row in rows if row.name in asked and row.name not in wanted]
        for row in leavers:
            self._fleet.drop(row.uuid)
        await self._database.call(stored.drop_nodes, [row.uuid for row in leavers])
        names = {row.name for row in leavers}
        await self._database.call(stored.forget_places, prepared.seen.id, names)
        if targets:
            return
        hosts = [host.name for host in prepared.seen.cluster.hosts]
        await self._database.call(stored.keep_hosts, prepared.seen.id, hosts)

    async def _forget(self, row: ClusterRow, *, purge: bool) -> None:
        """`purge`: of what was uploaded for it, too, at once. Downloads are kept for a while: the
        next cluster may name the same URL.
        """
        async for node in paced(await self._database.read(stored.nodes_of, row.id)):
            self._fleet.drop(node.uuid)
        await self._database.call(stored.remove, row.id)
        self._labs.drop(row.id)
        self._files.space.release(row.uid, text_of(row.id))
        used = await self._database.read(stored.digests)
        await asyncio.to_thread(self._files.keep_only, used)
        known = await self._planner.workers.run(row.uid, self._known_cluster, row)
        files = certificate_files(known) if known is not None else ()
        held = [known]
        del known
        await free(held)
        given = {row.uploads.get(name, "") for name in files}
        for digest in given - used - {""}:
            self._files.release(digest, row.uid)  # a key waits for nobody who may name it again
        if purge:
            uploads = {digest for name, digest in row.uploads.items() if not is_url(name)}
            await asyncio.to_thread(self._files.release_unasked, uploads - given - used, row.uid)

    def _cluster_of(self, row: ClusterRow) -> Cluster:
        return self._planner.read(row.file, self._cipher.decrypt(row.text.encode()), row.uid)

    def _known_cluster(self, row: ClusterRow) -> Cluster | None:
        """None where an earlier version took a file that cannot be read any more."""
        try:
            return self._cluster_of(row)
        except SpecError as error:
            log.warning("its file is refused now", cluster=row.name, uid=row.uid, why=str(error))
            return None

    async def _profiles_of(self, row: ClusterRow) -> dict[str, ServedProfile]:
        """And its labs are known again. None of a file that cannot be read: its next `up` serves
        its boot again.
        """
        return self._take_in(row, await self._read(row))

    async def _read(self, row: ClusterRow) -> KeptFile | None:
        return await self._planner.workers.run(row.uid, self._kept_file, row)

    def _kept_file(self, row: ClusterRow) -> KeptFile | None:
        cluster = self._known_cluster(row)
        if cluster is None:
            return None
        profiles = served_profiles(cluster, row.uploads, self._files)
        return KeptFile(profiles, cluster.labs, cluster.addressing.certificate)

    def _take_in(self, row: ClusterRow, known: KeptFile | None) -> dict[str, ServedProfile]:
        if known is None:
            return {}
        self._give_certificate(known.certificate, row.uploads)
        self._labs.put(row.id, row.uid, row.name, known.labs)
        return known.profiles

    def _give_certificate(self, given: CertificateFiles | None, uploads: Mapping[str, str]) -> None:
        """BMCs know it by its digest. Of one whose copy is gone they tell when they are served."""
        if given is None:
            return
        digest, key = (uploads.get(name, "") for name in (given.certificate, given.key))
        if self._files.has(digest) and self._files.has(key):
            self._give(digest, self._files.path(digest), self._files.path(key))


class Up:
    """One `up`: what it was prepared from, and what is remembered of it."""

    def __init__(self, work: Work, prepared: Prepared, request: Request) -> None:
        self._work, self._prepared, self._request = work, [prepared], request
        self._kept: list[Kept] = []

    async def remember(self) -> None:
        self._kept = [await self._work.remember(self._prepared[0], self._request)]

    async def carry_out(self, running: Running) -> Ended:
        assert self._kept, "it is remembered first"
        ended = await self._work.up(running, self._prepared[0], self._request, self._kept[0])
        await free(self._prepared)
        await free(self._kept)
        return ended


def record_group(uid: int, name: str) -> str:
    """Whose console records: they stay after the cluster is gone, until they are purged."""
    return f"{uid}/{name}"


def served_profiles(
    cluster: Cluster, uploads: Mapping[str, str], files: Files
) -> dict[str, ServedProfile]:
    """The file's boot profiles with local files found among the uploads."""

    def served(name: str) -> ServedFile | str:
        if name not in uploads:
            return name
        return ServedFile(path=str(files.path(uploads[name])), name=uploads[name][:16])

    def profile(each: BootProfile) -> ServedProfile:
        initrd = tuple(served(name) for name in each.initrd)
        return ServedProfile(each.name, served(each.kernel), initrd, each.cmdline, each.script)

    return {each.name: profile(each) for each in cluster.profiles}


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


def _left(prepared: Prepared, request: Request) -> dict[str, NodeRow]:
    """Nodes that are there, and that an `up` of others leaves where and as they are."""
    if not request.targets:
        return {}
    changed = {*request.targets, *touched(prepared.plan)}
    return {row.name: row for row in prepared.seen.rows if row.name not in changed}


def _member(row: ClusterRow, node: NodeRow, profile: ServedProfile | None) -> Member:
    return Member(
        uid=row.uid,
        cluster=row.name,
        cluster_id=row.id,
        node=node.name,
        host=node.host,
        machine=node.machine,
        profile=profile,
    )


def _unsure(row: ClusterRow) -> str:
    """What to do about hosts of which nobody knows: tags do not tell of all."""
    if row.file != RECOVERED:
        return ""
    return (
        ", where it was recovered: `nospoon orphans`, with its FILE or `--host` for each host that "
        "it may have been on, looks for more"
    )


def _refuse_used(found: Iterable[Observed], away: Mapping[str, str]) -> None:
    """Raises `Conflict` for nodes that somebody else uses in Ironic, and `HostUnreachable` where it
    does not tell.
    """
    if PLACE in away:
        raise HostUnreachable(f"nothing is removed: {away[PLACE].rstrip('.')}", hint=FORGET)
    standings = (each for each in found if each.key.kind is Kind.IRONIC_STANDING)
    if used := sorted(each.key.name for each in standings if each.running):
        raise Conflict(
            f"in use in Ironic, and they would be left without a machine: {listed(used)}",
            hint="Undeploy them, or say --force as well.",
        )


def _fallen_short(outcome: Outcome, what: str, more: str = "") -> Ended:
    failures = [
        {"what": each.what, "node": each.node, "message": each.message} for each in outcome.failures
    ]
    state = OperationState.PARTLY if outcome.done else OperationState.FAILED
    message = (
        f"{what}: {outcome.done} of {outcome.total} done, {len(failures)} failed, "
        f"{outcome.skipped} not begun{more}. Run it again when that is fixed."
    )
    return Ended(state, message, {"failures": failures})
