"""Snapshots of a whole cluster: disks and firmware variables of all nodes, of one moment.

Nodes that run are paused, all of them, before the first is taken, and go on when the last one is.
Restoring switches all nodes off, brings each back, and switches on those that were on then; what
was in their memory is not kept. A row is there before anything is taken, and after all is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from uuid import UUID

import structlog

from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.operations import Ended, Operations, Running
from nospoon.engine.progress import Phase, Progress
from nospoon.errors import Conflict, Gone, HostUnreachable, NospoonError, NotFound, ProviderError
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.model.principal import Principal
from nospoon.model.rest.clusters import SnapshotSummary
from nospoon.plan.words import counted
from nospoon.runtime.clock import Clock
from nospoon.runtime.few import few_at_once
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.turns import Turns
from nospoon.services.bmcs.service import BmcService
from nospoon.store import clusters as stored_clusters
from nospoon.store import snapshots as stored
from nospoon.store.clusters import Outline
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow, OperationState
from nospoon.store.snapshots import Member, SnapshotRow, SnapshotState

log = structlog.get_logger()
AT_ONCE = 8
MOST = 100
"""Snapshots of one cluster: each keeps a row for every node."""
AGAIN = 10.0
"""Seconds until a host that is away is asked again to let its nodes go on."""
SWITCHED = 60.0
"""Seconds within which a node has to be off."""
COMPLETE = (
    "`nospoon recover FILE`, with all hosts of the cluster, takes in the rest. Where it takes in "
    "none, disks are newer than the snapshot, or it was half taken: bring the file of that time up "
    "and recover again, or delete it."
)
HALF_MADE = (SnapshotState.TAKING, SnapshotState.REMOVING)

Act = Callable[[Member], Awaitable[None]]
_Disks = tuple[str, Sequence[str]]
"""A node and some of its disks."""


class Snapshots:
    """Takes, restores and deletes them, as operations."""

    def __init__(
        self,
        *,
        database: Database,
        fleet: Fleet,
        hosts: Hosts,
        bmcs: BmcService,
        operations: Operations,
        tasks: Tasks,
        clock: Clock,
    ) -> None:
        self._database, self._fleet, self._hosts, self._bmcs = database, fleet, hosts, bmcs
        self._operations, self._tasks, self._clock = operations, tasks, clock
        self._turns = Turns()

    async def rows(self, caller: Principal, cluster: str) -> list[SnapshotSummary]:
        """A row a snapshot, oldest first. Of each user one list at a time is made, and the store
        counts the nodes of one snapshot at a time: others read in between.
        """
        async with self._turns.of("list", str(caller.uid)):
            row = await self._cluster(caller, cluster)
            found = list[SnapshotSummary]()
            for each in await self._database.read(stored.headings, row.id):
                counts = await self._database.read(stored.counted, row.id, each.name)
                if counts is not None:
                    state, (nodes, on) = str(each.state), counts
                    found.append(SnapshotSummary(each.name, state, each.created, nodes, on))
            return found

    async def create(self, caller: Principal, cluster: str, name: str) -> OperationRow:
        """Begin to take one. Raises `Conflict` for a name that is taken."""
        async with self._beginning(caller):
            return await self._begin_create(caller, cluster, name)

    def _beginning(self, caller: Principal) -> asyncio.Lock:
        """One of each user's is looked at at a time, for each holds what is known of its nodes."""
        return self._turns.of("begin", str(caller.uid))

    async def _begin_create(self, caller: Principal, cluster: str, name: str) -> OperationRow:
        row = await self._cluster(caller, cluster)
        self._operations.require_free(row.id)
        known = await self._database.read(stored.headings, row.id)
        if any(each.name == name and each.state not in HALF_MADE for each in known):
            raise Conflict(f"cluster {cluster} has a snapshot {name!r}", hint="Delete it first.")
        if len(known) >= MOST and not any(each.name == name for each in known):
            raise Conflict(
                f"cluster {cluster} has {len(known)} snapshots, as many as may be",
                hint="Delete one first: `nospoon snapshot list` shows them.",
            )
        members = await self._members(row)
        await self._refuse_unable(members)
        return await self._start("snapshot", row, lambda run: self._create(run, row, name, members))

    async def restore(self, caller: Principal, cluster: str, name: str) -> OperationRow:
        """Begin to bring all its nodes back. Raises `Gone` for nodes that are no more."""
        async with self._beginning(caller):
            return await self._begin_restore(caller, cluster, name)

    async def _begin_restore(self, caller: Principal, cluster: str, name: str) -> OperationRow:
        row = await self._cluster(caller, cluster)
        snapshot = await self._snapshot(row, name)
        if snapshot.state in HALF_MADE:
            raise Conflict(f"snapshot {name!r} is not whole", hint="Delete it.")
        missing = [m.node for m in snapshot.members if self._fleet.get(m.machine) is None]
        if missing:
            raise Gone(
                f"snapshot {name!r} has nodes that no longer exist: {', '.join(missing)}",
                hint="Bring the file of that time up first.",
            )
        await self._refuse_lost(snapshot)
        await self._refuse_part(row, snapshot)
        await self._refuse_blocked(snapshot)
        return await self._start("restore", row, lambda run: self._restore(run, snapshot))

    async def _refuse_part(self, row: Outline, snapshot: SnapshotRow) -> None:
        """Nodes that were not recovered with it keep its state too, by what can be asked; or there
        may be such nodes.
        """
        members = {member.machine for member in snapshot.members}
        others = [each for each in self._fleet.of(row.owner, row.name) if each.uuid not in members]
        kept = await few_at_once(others, lambda each: self._kept_by(each.uuid), at_once=AT_ONCE)
        more = [
            each.node for each, names in zip(others, kept, strict=True) if snapshot.name in names
        ]
        if not more and snapshot.state is not SnapshotState.PARTLY:
            return
        more_nodes = "more nodes than are known"
        of = f"is of {more_nodes}: {', '.join(more)}" if more else f"may be of {more_nodes}"
        raise Conflict(f"snapshot {snapshot.name!r} {of}", hint=COMPLETE)

    async def _kept_by(self, machine: UUID) -> set[str]:
        """Names of the states that a node's disks keep; none of one that no one can ask, or that
        was not made yet.
        """
        try:
            port = self._hosts.driver(machine).snapshots
            disks = await port.list(machine) if port is not None else {}
        except (HostUnreachable, Gone):
            return set()
        return {name for states in disks.values() for name in states}

    async def _refuse_lost(self, snapshot: SnapshotRow) -> None:
        """Before any machine is switched off: all of them can go back, or none does."""
        name = snapshot.name
        looked = await few_at_once(
            snapshot.members,
            lambda m: self._hosts.snapshots(m.machine).list(m.machine),
            at_once=AT_ONCE,
        )
        lost, newer = list[_Disks](), list[_Disks]()
        async for member, kept in paced(zip(snapshot.members, looked, strict=True)):
            without = [disk for disk, names in kept.items() if name not in names]
            gone = [disk for disk in member.disks or kept if name not in kept.get(disk, ())]
            lost.append((member.node, gone))
            newer.append((member.node, [disk for disk in without if disk not in member.disks]))
        if told := _listed(lost):
            raise Gone(
                f"snapshot {name!r} is lost to disks that were replaced or removed since: {told}",
                hint="If they wait to be removed, bring the file of that time up; else delete it.",
            )
        if told := _listed(newer):
            raise Conflict(
                f"snapshot {name!r} is older than disks: {told}",
                hint="Bring the file of that time up first.",
            )

    async def _refuse_blocked(self, snapshot: SnapshotRow) -> None:
        """Before any machine is switched off, too."""
        asked = await few_at_once(
            snapshot.members,
            lambda m: self._hosts.snapshots(m.machine).blocker(m.machine, snapshot.name),
            at_once=AT_ONCE,
        )
        why = zip(snapshot.members, asked, strict=True)
        other = [f"{member.node} ({reason})" for member, reason in why if reason]
        if other:
            raise Conflict(
                f"snapshot {snapshot.name!r} would not come back whole: {'; '.join(other)}",
                hint="Bring the file of that time up first.",
            )

    async def delete(self, caller: Principal, cluster: str, name: str) -> OperationRow:
        """Begin to delete one."""
        async with self._beginning(caller):
            row = await self._cluster(caller, cluster)
            snapshot = await self._snapshot(row, name)
            return await self._start(
                "delete snapshot", row, lambda run: self._delete(run, snapshot)
            )

    async def half_made(self) -> list[SnapshotRow]:
        """What a daemon that ended left half taken, or half deleted."""
        return await self._database.read(stored.in_states, HALF_MADE)

    async def repair(self, rows: Sequence[SnapshotRow]) -> None:
        """Let those nodes go on, and drop what was taken; until their hosts answer."""
        left = list(rows)
        while left:
            left = [row for row in left if not await self._repaired(row)]
            if left:
                await asyncio.sleep(AGAIN)

    async def _repaired(self, row: SnapshotRow) -> bool:
        try:
            await self._each(None, [m for m in row.members if m.on], self._resumed, "go on")
            await self._forget(None, row)
        except NospoonError as error:
            log.warning("a snapshot is half made", name=row.name, why=str(error))
            return False
        return True

    async def _create(
        self, running: Running, cluster: Outline, name: str, members: Sequence[Member]
    ) -> Ended:
        row = SnapshotRow(cluster.id, name, SnapshotState.TAKING, self._clock(), tuple(members))
        for half in await self._database.read(stored.in_states, HALF_MADE, cluster.id):
            await self._forget(running, half)
        await self._database.call(stored.put, row)
        try:
            async with self._paused(running, row) as known:
                await self._each(running, members, self._taken(row), "take")
            await self._note_disks(replace(row, members=known))
        except BaseException:
            await self._hear_out(self._forget(running, row))
            raise
        await self._database.call(stored.set_state, row, SnapshotState.COMPLETE)
        return Ended(OperationState.DONE, f"snapshot {name} of {cluster.name} is taken")

    async def _note_disks(self, row: SnapshotRow) -> None:
        """Which there are, so that one that is missing later is missed."""
        disks: dict[UUID, tuple[str, ...]] = {}

        async def look(member: Member) -> None:
            kept = await self._hosts.snapshots(member.machine).list(member.machine)
            disks[member.machine] = tuple(disk for disk, names in kept.items() if row.name in names)

        await self._each(None, row.members, look, "look at")
        members = [
            replace(member, disks=disks[member.machine]) async for member in paced(row.members)
        ]
        await self._database.call(stored.set_members, replace(row, members=tuple(members)))

    @asynccontextmanager
    async def _paused(
        self, running: Running, row: SnapshotRow
    ) -> AsyncIterator[tuple[Member, ...]]:
        """All members stand still; whatever happens, they go on in the end. Tells who was on."""
        on: set[UUID] = set()

        async def pause(member: Member) -> None:
            if await self._hosts.snapshots(member.machine).pause(member.machine):
                on.add(member.machine)

        try:
            await self._each(running, row.members, pause, "pause")
            known = [
                replace(member, on=member.machine in on) async for member in paced(row.members)
            ]
            await self._database.call(stored.set_members, replace(row, members=tuple(known)))
            yield tuple(known)
        finally:
            stopped = [member for member in row.members if member.machine in on]
            error = await self._hear_out(self._each(running, stopped, self._resumed, "go on"))
        if error is not None:
            raise error

    async def _restore(self, running: Running, row: SnapshotRow) -> Ended:
        await self._database.call(stored.set_state, row, SnapshotState.RESTORING)
        await self._each(running, row.members, self._off, "power off")
        await self._each(running, row.members, self._reverted(row), "restore")
        on = [member for member in row.members if member.on]
        await self._each(running, on, self._on, "power on")
        await self._database.call(stored.set_state, row, SnapshotState.COMPLETE)
        nodes = counted(len(row.members), "node")
        said = f"snapshot {row.name} is restored: {nodes}, {len(on)} of them on"
        return Ended(OperationState.DONE, said)

    async def _delete(self, running: Running, row: SnapshotRow) -> Ended:
        await self._database.call(stored.set_state, row, SnapshotState.REMOVING)
        await self._forget(running, row)
        return Ended(OperationState.DONE, f"snapshot {row.name} is deleted")

    async def _forget(self, running: Running | None, row: SnapshotRow) -> None:
        there = [member for member in row.members if self._fleet.get(member.machine) is not None]
        await self._each(running, there, self._dropped(row), "drop")
        await self._database.call(stored.remove, row)

    async def _resumed(self, member: Member) -> None:
        if member.on and self._fleet.get(member.machine) is not None:
            await self._hosts.snapshots(member.machine).resume(member.machine)

    def _taken(self, row: SnapshotRow) -> Act:
        return lambda m: self._hosts.snapshots(m.machine).create(m.machine, row.name)

    def _reverted(self, row: SnapshotRow) -> Act:
        return lambda m: self._hosts.snapshots(m.machine).restore(m.machine, row.name)

    def _dropped(self, row: SnapshotRow) -> Act:
        return lambda m: self._hosts.snapshots(m.machine).delete(m.machine, row.name)

    async def _off(self, member: Member) -> None:
        await self._bmcs.power(member.machine, PowerCommand.OFF)
        try:
            async with asyncio.timeout(SWITCHED):
                await self._hosts.until(member.machine, PowerState.OFF)
        except TimeoutError as error:
            raise ProviderError(f"node {member.node} is not off after {SWITCHED:.0f} s") from error

    async def _on(self, member: Member) -> None:
        await self._bmcs.power(member.machine, PowerCommand.ON)

    async def _each(
        self, running: Running | None, members: Sequence[Member], act: Act, verb: str
    ) -> None:
        """Do it to each, some at once, journalled; raises the first error when all were tried."""
        done, stop = 0, False

        async def one(member: Member) -> NospoonError | None:
            nonlocal done
            if stop:
                return None
            try:
                await act(member)
            except NospoonError as error:
                self._tell(running, Phase.FAILED, f"{verb}: {error}", member, (done, members))
                return error
            done += 1
            self._tell(running, Phase.DONE, verb, member, (done, members))
            return None

        name = f"{verb} {counted(len(members), 'node')}"
        task = self._tasks.start(few_at_once(members, one, at_once=AT_ONCE), name=name)
        try:
            results = await asyncio.shield(task)
        except asyncio.CancelledError:  # what was begun goes on in threads: hear it out
            stop = True
            await asyncio.wait([task])
            raise
        for result in results:
            if result is not None:
                raise result

    def _tell(
        self,
        running: Running | None,
        phase: Phase,
        message: str,
        member: Member,
        count: tuple[int, Sequence[Member]],
    ) -> None:
        if running is not None:
            what = f"machine/{member.node}"
            running.emit(Progress(phase, message, what, member.node, count[0], len(count[1])))

    async def _hear_out(self, work: Awaitable[None]) -> NospoonError | None:
        """Also when we are cancelled: machines must not stand still, nor half a snapshot stay."""

        async def told() -> NospoonError | None:
            try:
                await work
            except NospoonError as error:
                log.warning("after a snapshot", why=str(error))
                return error
            return None

        task = self._tasks.start(told(), name="end a snapshot")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    async def _members(self, row: Outline) -> list[Member]:
        """Each taken to be on until it is paused: to let one go on that is off does no harm."""
        found = []
        async for each in paced(self._fleet.of(row.owner, row.name)):
            last = self._hosts.last(each.uuid)
            if last is None or last.power not in {PowerState.ON, PowerState.OFF}:
                state = last.power if last is not None else PowerState.UNKNOWN
                raise Conflict(f"node {each.node} is {state}: its state cannot be kept")
            found.append(Member(each.node, each.uuid, on=True))
        return found

    async def _refuse_unable(self, members: Sequence[Member]) -> None:
        known = (self._fleet.get(member.machine) for member in members)
        adopted = [each.node for each in known if each is not None and each.machine.adopted]
        if adopted:
            raise Conflict(
                f"adopted machines, whose disks are their owners': {', '.join(adopted[:5])}",
                hint="Their owners' tools can, such as `virsh snapshot-create`.",
            )
        asked = await few_at_once(
            members, lambda m: self._hosts.snapshots(m.machine).refusal(m.machine), at_once=AT_ONCE
        )
        why = zip(members, asked, strict=True)
        if unable := [f"{member.node} ({reason})" for member, reason in why if reason][:5]:
            raise Conflict(
                f"nodes whose state cannot be kept: {'; '.join(unable)}",
                hint="A snapshot is of all nodes of a cluster, or of none.",
            )

    async def _start(
        self, kind: str, row: Outline, work: Callable[[Running], Awaitable[Ended]]
    ) -> OperationRow:
        return await self._operations.start(
            kind,
            cluster_id=row.id,
            cluster=row.name,
            owner=row.owner,
            first=partial(self._require_same, row),
            work=work,
        )

    async def _require_same(self, row: Outline) -> None:
        """Hosts may take their time until all nodes were looked at: another user's cluster may have
        the id then, and so its nodes' machines. Raises `Conflict`.
        """
        now = await self._database.read(stored_clusters.outline, owner=row.owner, name=row.name)
        if now != row:
            raise Conflict(f"cluster {row.name} was changed meanwhile", hint="Try again.")

    async def _cluster(self, caller: Principal, name: str) -> Outline:
        row = await self._database.read(stored_clusters.outline, owner=caller.uid, name=name)
        if row is None:
            raise NotFound(f"no cluster {name!r}", hint="`nospoon status` shows yours.")
        return row

    async def _snapshot(self, cluster: Outline, name: str) -> SnapshotRow:
        found = await self._database.read(stored.find, cluster.id, name)
        if found is None:
            known = await self._database.read(stored.headings, cluster.id)
            names = ", ".join(each.name for each in known) or "none"
            raise NotFound(f"cluster {cluster.name} has no snapshot {name!r}; it has: {names}")
        return found


def _listed(disks: Sequence[_Disks]) -> str:
    """Of which node which, "" for none."""
    return "; ".join(f"{node} ({', '.join(some)})" for node, some in disks if some)
