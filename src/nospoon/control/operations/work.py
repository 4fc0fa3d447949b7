"""The work of `up` and `down`: the plan, then a second look. What is known goes first: `Memory`."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import structlog

from nospoon.clusterfile.nearest import nearest
from nospoon.clusterfile.recovered import FILE as RECOVERED
from nospoon.control.fleet.enrolment import FORGET
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.operations.journal import NOBODY, Journal
from nospoon.control.operations.memory import Kept, Memory, record_group
from nospoon.control.operations.operations import Ended, Running
from nospoon.control.operations.roles import Roles
from nospoon.control.operations.starting import Starting
from nospoon.control.planning.pending import Pending, moving
from nospoon.control.planning.planner import Planner
from nospoon.control.planning.prepared import Prepared
from nospoon.control.request import Request
from nospoon.engine.execute import Limits, execute
from nospoon.engine.observe import Drivers, observe_reachable, outside_away
from nospoon.engine.progress import Outcome
from nospoon.errors import Conflict, HostUnreachable
from nospoon.model.cluster import Host
from nospoon.model.ironic import IronicPlace, Leaving
from nospoon.model.principal import Principal
from nospoon.model.resources.keys import IRONIC, NOVA, Key, Kind
from nospoon.model.resources.machines import Machine
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.diff.diff import removal, waiting
from nospoon.plan.order.order import MoveId
from nospoon.plan.order.steps import Action, Plan
from nospoon.plan.placement.placement import elsewhere
from nospoon.plan.text import summary
from nospoon.plan.words import counted, listed
from nospoon.runtime.clock import Clock
from nospoon.runtime.freeing import free
from nospoon.runtime.paced import paced
from nospoon.services.consoles.records import Records
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store import operations as journal
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.store.operations import OperationState

log = structlog.get_logger()


_USUAL = Limits()
CONSOLE_LINES = 5
"""Of a node that failed."""
FetchRecords = Callable[[Collection[str]], Awaitable[None]]
"""Copies what is new in the console records of other hosts, by their `ssh` settings."""


@dataclass(frozen=True, slots=True)
class Removal:
    """How `down` goes about it. `purge`: console records and uploads too; `force`: also nodes that
    are in use in Ironic.
    """

    purge: bool = False
    force: bool = False
    enrolment: Leaving = Leaving.REMOVE


class Work:
    """Carries out `up` and `down` inside operations."""

    def __init__(
        self,
        *,
        database: Database,
        memory: Memory,
        planner: Planner,
        hosts: Hosts,
        fleet: Fleet,
        records: Records,
        fetch_records: FetchRecords,
        pending: Pending,
        starting: Starting,
        clock: Clock,
        patience: float = 0.0,
    ) -> None:
        self._database, self.memory, self._clock = database, memory, clock
        self._planner, self._hosts, self._fleet = planner, hosts, fleet
        self._records, self._fetch_records = records, fetch_records
        self._pending, self._starting, self._patience = pending, starting, patience

    async def up(self, running: Running, prepared: Prepared, request: Request, kept: Kept) -> Ended:
        """Make the cluster what its file says; `kept` is what `Memory.remember` gave."""
        row, seen = kept.row, prepared.seen
        running.note(summary(prepared.plan))
        most = request.parallel
        limits = Limits(per_host=most, pausing=most, waiting=most) if most else Limits()
        roles = await self._starting.roles_of(prepared)
        self._pending.begin(kept.pending)
        try:
            outcome = await self._execute(
                running, prepared.plan, seen.drivers, row, limits=limits,
                moves=moving(kept.pending),
            )  # fmt: skip
        finally:
            self._pending.end(kept.pending)
        await self._look_at_machines(prepared)
        if not outcome.complete:
            await self._add_consoles(outcome, row, self._hosts.ways(seen.drivers))
            await self._add_hosts(outcome, prepared)
            return _fallen_short(outcome, f"up {row.name}")
        as_before = replace(request, fingerprint="", rebalance=False)
        again = await self._planner.prepare(as_before, seen.cluster, surveyed=seen.surveyed)
        await self._database.call(journal.close_intents, row.id)
        if left := prepared.plan.undone(again.plan):
            names = ", ".join(str(step.key) for step in left[:5])
            return Ended(OperationState.PARTLY, f"done, and yet these are not as desired: {names}")
        await self.memory.know_alternatives(prepared, again)
        await self.memory.forget_leavers(prepared, request.targets)
        if not request.targets and seen.cluster.ironic is None:
            await self._database.call(stored.forget_enrolment, row.id)
        unstarted = await self._switch_on(prepared, roles)
        late = [note for each in again.seen.observed if (note := waiting(each))]
        late += [f"{each.key.kind} {each.key.name} stays: {each.why}" for each in again.plan.later]
        held = [again]
        del again
        await free(held)
        amount = len(request.targets) or len(seen.cluster.nodes)
        said = f"cluster {row.name} is up: {counted(amount, 'node')}"
        state = OperationState.PARTLY if unstarted else OperationState.DONE
        return Ended(state, "; ".join((said, *unstarted, *late)))

    async def _nothing(self, caller: Principal, name: str) -> str:
        """That a cluster is not there, and which one its user may have meant."""
        names = [each for _, each, _ in await self._database.read(stored.listed, owner=caller.uid)]
        near = nearest(name, names)
        meant = f". Did you mean {near!r}?" if near else ""
        return f"no cluster {name}: nothing to remove{meant}"

    async def down(
        self,
        running: Running,
        row: ClusterRow | None,
        *,
        caller: Principal,
        name: str,
        how: Removal,
    ) -> Ended:
        """Remove everything of a cluster; what is gone already is no error."""
        purge = how.purge
        if row is None:
            if purge:
                await self._records.purge(record_group(caller.uid, name))
            return Ended(OperationState.DONE, await self._nothing(caller, name))
        plan, drivers, away = await self.removal(row, how)
        if silent := outside_away(away):
            why = f"nothing is removed: {silent.rstrip('.')}. {FORGET}"
            return Ended(OperationState.FAILED, why)
        running.note(summary(plan))
        outcome, ways = await self._execute(running, plan, drivers, row), self._hosts.ways(drivers)
        if away or not outcome.complete:
            reasons = "".join(f"; host {host}: {reason}" for host, reason in away.items())
            return _fallen_short(outcome, f"down {name}", reasons)
        held = [plan]
        del plan
        await free(held)
        await self.memory.forget(row, purge=purge)
        await self._fetch_records(ways)
        if purge:
            await self._records.purge(record_group(caller.uid, name))
        back = f"; `id: {row.id}` in its file takes back what Ironic has of it"
        left = back if how.enrolment is not Leaving.REMOVE and row.enrolled else ""
        return Ended(OperationState.DONE, f"cluster {name} is down{left}{_unsure(row)}")

    async def removal(self, row: ClusterRow, how: Removal) -> tuple[Plan, Drivers, dict[str, str]]:
        """What `down` would remove, with which drivers, and which hosts are away. Raises `Conflict`
        for nodes that stay in Ironic, and someone uses.
        """
        nodes = await self._database.read(node_rows.nodes_of, row.id)
        known = await self._planner.workers.run(row.owner, self._planner.clusters.known, row)
        hosts = {host.name: host for host in known.hosts} if known is not None else {}
        hosts |= {node.host.name: node.host for node in nodes}
        hosts |= {host.name: host for host in await self._planner.clusters.hosts_of(row)}
        self._planner.access.check_hosts(self._planner.access.principal(row.owner), hosts.values())
        drivers: Drivers = self._planner.drivers(hosts.values())
        enrolment = self._planner.enrolment
        ironic = enrolment.drivers(enrolment.place_of(row), row.owner, force=how.force)
        if how.enrolment is Leaving.KEEP and not how.force:
            _refuse_used(*await observe_reachable(ironic, row.id))
        if how.enrolment is Leaving.REMOVE:
            drivers = {**drivers, **ironic}
        observed, away = await observe_reachable(drivers, row.id)
        plan = await self._planner.workers.run(
            row.owner, removal, cluster=row.name, cluster_id=row.id, observed=observed
        )
        held = [nodes, known, observed]
        del nodes, known, observed
        await free(held)
        return plan, drivers, away

    async def use_grants(self) -> None:
        """The administrator's list may have changed: reach what it has now, and nothing else."""
        access = self._planner.access
        log.info("list of grants is read again", file=access.file)
        members = ((each.owner, each.host, each.machine) for each in self._fleet.all())
        why_not = await access.reached(members)
        self._fleet.reach(lambda each: not why_not(each.owner, each.host, each.machine))

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
        tag = OwnerTag(
            self._database.deployment, row.id, row.generation, token, row.name, row.owner
        )
        kept = Journal(
            self._database,
            running.row.id,
            row.id,
            self._clock,
            moving=moves,
            moved=self.memory.moved,
        )
        places = {**self._hosts.calls(drivers), IRONIC: IronicPlace.calls, NOVA: IronicPlace.calls}
        with self._hosts.held(drivers):
            return await execute(
                plan,
                drivers=drivers,
                tag=tag,
                journal=kept,
                emit=running.emit,
                limits=replace(limits, places=places, patience=self._patience),
                calls=running.calls,
            )

    async def _add_consoles(self, outcome: Outcome, row: ClusterRow, ways: Collection[str]) -> None:
        """To nodes that Ironic did not bring where they are wanted: what they said last."""
        of_ironic = str(Key(Kind.IRONIC_STANDING, IRONIC, "")).partition("/")[0]
        failed = [each for each in outcome.failures if each.what.startswith(f"{of_ironic}/")]
        if not failed:
            return
        await self._fetch_records(ways)
        nodes = await self._database.read(node_rows.nodes_of, row.id)
        uuids = {node.name: node.uuid for node in nodes}
        for each in (each for each in failed if each.node in uuids):
            end = await asyncio.to_thread(self._records.end, uuids[each.node], CONSOLE_LINES)
            if end:
                told = f"{each.message}\n  its console's end:\n{textwrap.indent(end, '  | ')}"
                outcome.failures[outcome.failures.index(each)] = replace(each, message=told)

    async def _add_hosts(self, outcome: Outcome, prepared: Prepared) -> None:
        """To nodes for which their cloud found no computer: which other hosts can have them."""
        cluster, facts = prepared.seen.cluster, prepared.seen.surveyed.all_facts
        for index, each in enumerate(outcome.failures):
            host = prepared.allocations.hosts.get(each.node, "")
            if not each.nowhere or not host or len(cluster.hosts) == 1:
                continue
            owner = prepared.seen.owner
            said = await self._planner.workers.run(
                owner, elsewhere, cluster, facts, each.node, host
            )
            if said:
                outcome.failures[index] = replace(
                    each, message=f"{each.message.rstrip('. ')}. {said}"
                )

    async def _switch_on(self, prepared: Prepared, roles: Roles) -> list[str]:
        """Start what was made now, or by an `up` that did not end."""
        made = {
            step.node
            async for step in paced(prepared.plan.steps)
            if step.action in (Action.CREATE, Action.REPLACE) and step.key.kind is Kind.MACHINE
        }
        made |= await self._database.read(journal.begun_machines, prepared.seen.id)
        return await self._starting.switch_on(prepared, made, roles)

    async def _look_at_machines(self, prepared: Prepared) -> None:
        """At those of the cluster: a host may have thousands of others."""
        machines = {row.uuid for row in prepared.seen.rows}
        async for each in paced(list(prepared.desired.values())):
            if isinstance(each.shape, Machine):
                machines.add(each.shape.uuid)
        hosts = prepared.seen.cluster.hosts
        await asyncio.gather(*(self._look_at(host, machines) for host in hosts))

    async def _look_at(self, host: Host, machines: Collection[UUID]) -> None:
        """Of one that is away, its watch tells when it is back."""
        try:
            await self._hosts.look(host, machines)
        except HostUnreachable as error:
            log.warning("host is unreachable", host=host.name, why=str(error))


class Up:
    """One `up`: what it was prepared from, and what is remembered of it."""

    def __init__(self, work: Work, prepared: Prepared, request: Request) -> None:
        self._work, self._prepared, self._request = work, [prepared], request
        self._kept: list[Kept] = []

    async def remember(self) -> None:
        self._kept = [await self._work.memory.remember(self._prepared[0], self._request)]

    async def carry_out(self, running: Running) -> Ended:
        assert self._kept, "it is remembered first"
        ended = await self._work.up(running, self._prepared[0], self._request, self._kept[0])
        await free(self._prepared)
        await free(self._kept)
        return ended


def _unsure(row: ClusterRow) -> str:
    """What to do about hosts of which no one knows: tags do not tell of all."""
    if row.file != RECOVERED:
        return ""
    return (
        ", where it was recovered: `nospoon orphans`, with its FILE or `--host` for each host that "
        "it may have been on, looks for more"
    )


def _refuse_used(found: Iterable[Observed], away: Mapping[str, str]) -> None:
    """Raises `Conflict` for nodes that someone else uses in Ironic, and `HostUnreachable` where it
    does not tell.
    """
    if silent := outside_away(away):
        raise HostUnreachable(f"nothing is removed: {silent.rstrip('.')}", hint=FORGET)
    standings = (each for each in found if each.key.kind is Kind.IRONIC_STANDING)
    if used := sorted(each.key.name for each in standings if each.running):
        raise Conflict(
            f"in use in Ironic, and they would be left without a machine: {listed(used)}",
            hint="Undeploy them, or say --force as well.",
        )


def _fallen_short(outcome: Outcome, what: str, more: str = "") -> Ended:
    failures = [
        {"what": each.what, "node": each.node, "message": each.message, "passes": each.passes}
        for each in outcome.failures
    ]
    state = OperationState.PARTLY if outcome.done else OperationState.FAILED
    message = (
        f"{what}: {outcome.done} of {outcome.total} done, {len(failures)} failed, "
        f"{outcome.skipped} not begun{more}. Run it again when that is fixed."
    )
    return Ended(state, message, {"failures": failures})
