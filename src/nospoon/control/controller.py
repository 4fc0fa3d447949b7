"""The controller: every use case of nospoon, for one caller at a time.

It asks the planner for plans and begins operations that carry them out; what is done to one node
is `nodes`'. Callers see what is theirs and nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from nospoon import __version__
from nospoon.control.content.files import Files
from nospoon.control.content.library import Library
from nospoon.control.content.named_files import places_of
from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.owned import each_cluster, owned, require_owned
from nospoon.control.labs.service import Labs
from nospoon.control.maintenance import bundle
from nospoon.control.maintenance.host_check import HostChecker
from nospoon.control.maintenance.orphans import Orphans
from nospoon.control.maintenance.recover import Recovery
from nospoon.control.maintenance.survey import Survey
from nospoon.control.operations.downloads import fetch_all
from nospoon.control.operations.nodes import Nodes
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.services import Services
from nospoon.control.operations.snapshots import Snapshots
from nospoon.control.operations.verify import Verifier
from nospoon.control.operations.work import Removal, Up, Work
from nospoon.control.planning import status as shown
from nospoon.control.planning.exports import Exports
from nospoon.control.planning.host_list import listed
from nospoon.control.planning.planner import Planner
from nospoon.control.planning.prepared import Prepared
from nospoon.control.request import Request
from nospoon.errors import (
    Conflict,
    NospoonError,
    PlanRefused,
    ProviderError,
    SpecError,
    Stale,
    UsageError,
)
from nospoon.model.cluster import Cluster
from nospoon.model.machine import PowerState
from nospoon.model.node_kind import NodeKind
from nospoon.model.principal import OwnerId, Principal
from nospoon.model.rest.clusters import ClusterStatus, ClusterSummary, Exported
from nospoon.model.rest.daemon import DaemonStatus
from nospoon.model.rest.hosts import HostFinding, HostSummary
from nospoon.model.rest.nodes import NodeLogin
from nospoon.plan.diff.in_ironic import undeployed
from nospoon.plan.order.steps import Plan
from nospoon.plan.text import plan_text
from nospoon.plan.words import listed as listed_words
from nospoon.runtime.clock import Clock
from nospoon.runtime.freeing import free
from nospoon.runtime.paced import paced
from nospoon.runtime.turns import Turns
from nospoon.services.consoles.service import ConsoleService
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow

AGAIN = 5
"""How often a plan on which no one agreed is made again, when others take the same meanwhile."""
AS_FILED = "as configured"


@dataclass(slots=True)
class Controller:
    """All parts are handed in by the composition root. `found`: what start-up found. `settings`:
    environment variables of the daemon -> digests of their texts.
    """

    database: Database
    files: Files
    library: Library
    hosts: Hosts
    fleet: Fleet
    nodes: Nodes
    planner: Planner
    work: Work
    verifier: Verifier
    operations: Operations
    survey: Survey
    orphans: Orphans
    recovery: Recovery
    snapshots: Snapshots
    services: Services
    exports: Exports
    labs: Labs
    consoles: ConsoleService
    clock: Clock
    stop: Callable[[], None]
    log_file: Path
    started: float
    settings: Mapping[str, str] = field(default_factory=dict)
    found: str = ""
    turns: Turns = field(default_factory=Turns)

    async def plan(self, request: Request) -> Plan:
        """What `up` would do. While an operation changes the cluster, `Conflict` says so. Another
        plan of the same user waits: each may take a processor for seconds.
        """
        async with self.turns.of("plan", str(request.caller.uid)):
            cluster = await self.planner.clusters.of(request)
            row = await self.database.read(stored.find, owner=request.caller.uid, name=cluster.name)
            try:
                prepared = [await self.planner.prepare(request, cluster)]
            except ProviderError:
                if row is not None:
                    self.operations.require_free(row.id)
                raise
            plan = prepared[0].plan
            del cluster, row
            await free(prepared)
            return plan

    async def fetch(self, request: Request) -> OperationRow | None:
        """Begin to fetch what a file names by URL; None when all of it is here."""
        uid = request.caller.uid  # the request itself, whose file may be a long one, is not kept
        async with self.turns.of("plan", str(uid)):
            cluster = [await self.planner.clusters.of(request)]
            name, urls = cluster[0].name, await self.planner.to_fetch(request, cluster[0])
            await free(cluster)
            if not urls:
                return None
            places = await self.planner.workers.run(uid, places_of, request, urls)
        return await self.operations.start(
            "fetch",
            cluster_id=uuid4(),  # it holds up no one
            cluster=name,
            owner=uid,
            work=lambda running: fetch_all(running, places, self.files, owner=uid),
        )

    async def list_hosts(self, caller: Principal) -> Sequence[HostSummary]:
        """The hosts of the caller's clusters; they are asked whether they answer."""
        async with self._look_of(caller.uid):
            return await listed(self.database, self.planner, self.hosts, caller=caller)

    async def check_hosts(self, request: Request) -> Sequence[HostFinding]:
        """What the hosts of a file have of what they need; changes nothing."""
        checker = HostChecker(self.hosts, self.clock, self.planner.pool_root_of)
        async with self._look_of(request.caller.uid):
            cluster = await self.planner.clusters.of(request)
            await self.planner.access.check_file(request, cluster, self.planner.workers)
            return await checker.check(cluster, self.planner.workers, request.caller.uid)

    async def up(self, request: Request) -> tuple[Plan, OperationRow | None]:
        """Begin to bring a cluster to its file, by which plan; None when nothing is to be done."""
        async with self.turns.of("plan", str(request.caller.uid)):
            cluster = await self.planner.clusters.of(request)
            row = await self.database.read(stored.find, owner=request.caller.uid, name=cluster.name)
            if row is not None:
                self.operations.require_free(row.id)
            return await self._begun(request, cluster, again=AGAIN)

    async def _begun(
        self, request: Request, cluster: Cluster, *, again: int
    ) -> tuple[Plan, OperationRow | None]:
        """A plan on which no one agreed is made again when others meanwhile took what it chose, or
        changed what it was made from.
        """
        prepared = await self.planner.prepare(request, cluster)
        plan = prepared.plan
        if plan.empty and not plan.remembers and not plan.starts:
            self.files.stored(prepared.seen.uploads.values())
            held = [prepared]
            del cluster, prepared
            await free(held)
            return plan, None
        names = await self.planner.workers.run(request.caller.uid, undeployed, plan.steps)
        if names and not request.force:
            raise Conflict(
                f"deployed in Ironic, and no longer in the file: {listed_words(names)}",
                hint="Put them back, undeploy them, or add --force to lose what is on them.",
            )
        work = Up(self.work, prepared, request)
        try:
            return prepared.plan, await self.operations.start(
                "up",
                cluster_id=prepared.seen.id,
                cluster=cluster.name,
                owner=request.caller.uid,
                first=work.remember,
                work=work.carry_out,
            )
        except Stale:
            if request.fingerprint or not again:
                raise
            return await self._begun(request, cluster, again=again - 1)

    async def removal(self, caller: Principal, name: str, how: Removal) -> Plan:
        """What `down` would do; an empty plan for a cluster that is not there."""
        async with self._look_of(caller.uid):
            row = await self.database.read(stored.find, owner=caller.uid, name=name)
            if row is None:
                return Plan(cluster=name, cluster_id=_unused_id(caller.uid, name), steps=())
            plan, _, _ = await self.work.removal(row, how)
        return plan

    async def down(self, caller: Principal, name: str, how: Removal) -> OperationRow:
        """Begin to remove everything of a cluster."""
        row = await self.database.read(stored.find, owner=caller.uid, name=name)
        if row is not None:
            self.labs.board.labs.require_unused(row.id)
        return await self.operations.start(
            "down",
            cluster_id=row.id if row is not None else _unused_id(caller.uid, name),
            cluster=name,
            owner=caller.uid,
            work=lambda running: self.work.down(running, row, caller=caller, name=name, how=how),
        )

    async def clusters(self, caller: Principal) -> list[ClusterSummary]:
        """A row a cluster."""
        rows = await self.database.read(stored.listed, owner=caller.uid)
        nodes, on = Counter[str](), Counter[str]()
        async for member in paced(self.fleet.all()):
            if member.owner == caller.uid:
                nodes[member.cluster] += 1
                on[member.cluster] += self.nodes.power_of(member) is PowerState.ON
        return [
            ClusterSummary(
                name=name,
                nodes=nodes[name],
                on=on[name],
                id=str(id_),
                file=file,
                operation=self.operations.current(id_),
            )
            for id_, name, file in rows
        ]

    async def status(self, caller: Principal, name: str) -> ClusterStatus:
        """Looked at now, not remembered."""
        async with self._look_of(caller.uid):
            return await self._status(caller, name)

    async def _status(self, caller: Principal, name: str) -> ClusterStatus:
        row = await owned(self.database, owner=caller.uid, name=name)
        try:
            prepared = [await self._looked_at(row)]
        except (ProviderError, PlanRefused, SpecError) as error:
            return self._unknown(row, str(error))
        states, broken, bonds, floating, rest = await self.planner.workers.run(
            caller.uid,
            lambda: (
                shown.node_states(prepared[0]),
                shown.faults(prepared[0]),
                shown.portgroups(prepared[0]),
                shown.floating_ips(prepared[0]),
                shown.other_drift(prepared[0]),
            ),
        )
        await free(prepared)
        members = await self.fleet.by_node(caller.uid, name)
        nodes = [
            self.nodes.state(
                node,
                members.get(node),
                state,
                broken.get(node, ""),
                drift,
                portgroups=bonds.get(node, []),
                floating_ips=floating.get(node, []),
            )
            async for node, (state, drift) in paced(states.items())
        ]
        await free([states, broken, bonds, floating])
        return ClusterStatus(name, str(row.id), nodes, rest)

    async def _looked_at(self, row: ClusterRow) -> Prepared:
        """For who looks (`_look_of`)."""
        request = replace(await self.planner.clusters.request_of(row), fetches=False)
        return await self.planner.prepare(request, await self.planner.clusters.of(request))

    def _look_of(self, owner: OwnerId) -> asyncio.Lock:
        """Who looks at a cluster has it: of each user one at a time, for each asks hosts and clouds
        for everything that they have, and holds what is known of it, file and all.
        """
        return self.turns.of("look", str(owner))

    def _unknown(self, row: ClusterRow, reason: str) -> ClusterStatus:
        members = self.fleet.of(row.owner, row.name)
        nodes = [self.nodes.state(m.node, m, "unknown") for m in members]
        return ClusterStatus(row.name, str(row.id), nodes, [reason])

    async def verify(
        self,
        caller: Principal,
        name: str,
        *,
        nodes: list[str],
        reboot_running: bool,
        timeout: float,  # noqa: ASYNC109
    ) -> OperationRow:
        """Begin to boot the probe on nodes and compare."""
        await require_owned(self.database, owner=caller.uid, name=name)
        members = [each for each in self.fleet.of(caller.uid, name) if _is_baremetal(each)]
        chosen = [
            self.fleet.find(caller.uid, f"{name}/{node}")
            async for node in paced(dict.fromkeys(nodes))
        ]
        _refuse_others([each for each in chosen if not _is_baremetal(each)])
        async with self._look_of(caller.uid):
            row = await owned(self.database, owner=caller.uid, name=name)
            prepared, id_ = await self._looked_at(row), row.id
            del row
        return await self.operations.start(
            "verify",
            cluster_id=id_,
            cluster=name,
            owner=caller.uid,
            work=lambda running: self.verifier.verify(
                running,
                chosen or members,
                prepared.desired,
                reboot_running=reboot_running,
                timeout=timeout,
            ),
        )

    async def about(self, caller: Principal) -> DaemonStatus:
        """The daemon itself. What start-up found names nodes of all: administrators see it."""
        clusters, nodes = await self.database.read(stored.count)
        return DaemonStatus(
            version=__version__,
            pid=os.getpid(),
            uptime=round(self.clock() - self.started, 1),
            clusters=clusters,
            nodes=nodes,
            deployment=self.database.deployment,
            found=self.found if caller.admin else "",
        )

    async def support_bundle(self, caller: Principal, cluster: str) -> bytes:
        """A .tar.gz for a bug report: of one cluster, or of all that the caller has. One of each
        user at a time.
        """
        async with self.turns.of("bundle", str(caller.uid)):
            return await self._support_bundle(caller, cluster)

    async def _support_bundle(self, caller: Principal, cluster: str) -> bytes:
        if cluster:
            await require_owned(self.database, owner=caller.uid, name=cluster)
        operations = await self.operations.list(caller.uid)
        log = await asyncio.to_thread(bundle.log_tail, self.log_file)
        if not caller.admin:
            machines = {str(member.uuid) for member in self.fleet.of(caller.uid)}
            whose = bundle.Whose(caller.uid, machines, {str(each.id) for each in operations})
            log = await asyncio.to_thread(bundle.lines_of, log, whose)
        texts = bundle.Texts()
        texts.add("versions.txt", await bundle.versions())
        texts.add("daemon.json", bundle.as_json(await self.about(caller)))
        texts.add("daemon.log", log)
        texts.add("operations.json", await self._as_json(caller.uid, operations))
        said = list[str]()
        async for row in each_cluster(self.database, owner=caller.uid):
            if cluster in ("", row.name):
                said += await self._bundle(row, texts)
        rows = await self.nodes.bmc_rows(caller, "")
        secrets = [
            secret
            for row in rows
            for secret in (row.password, row.k_g, row.pdu_secret, row.pdu_community)
            if secret
        ]
        secrets += [*self.labs.passwords(caller), *said]
        pack = bundle.Bundle(texts.by_name, secrets).pack
        return await self.planner.workers.run(caller.uid, pack)

    async def _as_json(self, owner: OwnerId, value: object) -> str:
        return await self.planner.workers.run(owner, bundle.as_json, value)

    async def _bundle(self, row: ClusterRow, texts: bundle.Texts) -> Collection[str]:
        """Adds what is known of a cluster; gives what of its file is to be masked."""
        secrets = set[str]()
        try:
            request = await self.planner.clusters.request_of(row)
            plan = plan_text(await self.plan(replace(request, fetches=False)))
        except NospoonError as error:
            plan = str(error)
        try:
            cluster = await self.planner.clusters.stored(row)
            resolved = await self.planner.workers.run(
                row.owner, bundle.cluster_as_json, cluster, texts.left
            )
            secrets = await self.planner.workers.run(row.owner, bundle.lines_of_user_data, cluster)
        except SpecError as error:  # an earlier version took the file
            resolved = str(error)
        if text := await self.planner.clusters.text_of(row):
            texts.add(f"{row.name}/cluster.yaml", text)
        texts.add(f"{row.name}/ironic.json", await self._in_ironic(row))
        texts.add(f"{row.name}/resolved.json", resolved)
        texts.add(f"{row.name}/plan.txt", plan)
        status = await self.status(self.planner.access.principal(row.owner), row.name)
        texts.add(f"{row.name}/status.json", await self._as_json(row.owner, status))
        for member in self.fleet.of(row.owner, row.name):
            said = b""
            if texts.left:
                said = await self.consoles.tail(member.uuid, bundle.CONSOLE_TAIL, user=row.owner)
            texts.add(f"{row.name}/consoles/{member.node}.log", said.decode(errors="replace"))
        return secrets

    async def _in_ironic(self, row: ClusterRow) -> str:
        try:
            return await self._as_json(row.owner, await self.planner.enrolment.told_of(row))
        except NospoonError as error:
            return str(error)

    async def export(self, caller: Principal, name: str, to: str) -> Exported:
        """A cluster as what another tool reads, with credentials: for its owner only."""
        async with self.turns.of("export", str(caller.uid)):
            row = await owned(self.database, owner=caller.uid, name=name)
            return await self.exports.export(row, to)

    async def login(self, caller: Principal, reference: str) -> NodeLogin:
        """Where ssh finds a node: at an address that the file or our DHCP gives it, or at one that
        a cloud leads to it.
        """
        member = self.fleet.find(caller.uid, reference)
        async with self.turns.of("export", str(caller.uid)):
            row = await owned(self.database, owner=caller.uid, name=member.cluster)
            address = await self.exports.address(row, member.node)
            if not address and member.host.declares.has_ports:
                async with self._look_of(caller.uid):
                    floating = shown.floating_ips(await self._looked_at(row))
                address = next(iter(floating.get(member.node, ())), "")
        return NodeLogin(
            node=member.path,
            kind=str(member.machine.kind),
            address=address,
            jump=member.host.ssh,
        )


def _unused_id(owner: OwnerId, name: str) -> UUID:
    """A steady id for a cluster that is not there, so that two `down`s of it exclude each other."""
    return uuid5(NAMESPACE_URL, f"nospoon:{owner}:{name}")


def _is_baremetal(member: Member) -> bool:
    return member.machine.kind is NodeKind.BAREMETAL


def _refuse_others(others: Sequence[Member]) -> None:
    if others:
        kinds = [f"{each.node} ({each.machine.kind})" for each in others]
        raise UsageError(
            f"verify boots the probe on bare metal, and these are of another kind: "
            f"{listed_words(kinds)}",
            hint="Leave them out.",
        )
