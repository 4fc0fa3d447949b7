"""Recovery: a lost store is made again from the tags of what is on the hosts.

Tags tell of clusters, their ids, names and owners; of nodes and where they are; of networks'
addresses; of where BMCs answered. What they do not tell is new or missing: passwords, and the file,
in whose stead one is written of what was found, until the next `up` brings it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import structlog
from sqlalchemy import Connection

from nospoon.clusterfile.recovered import FILE, cluster_file, with_more
from nospoon.control.fleet.enrolment import Enrolment
from nospoon.control.fleet.fleet import Fleet
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.owned import each_cluster
from nospoon.control.maintenance.found_clusters import (
    Found,
    Known,
    beside,
    found_in,
    names_among,
    others_of,
)
from nospoon.control.maintenance.found_snapshots import joined, snapshots_of
from nospoon.control.maintenance.survey import Scope, Survey
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.served import member_of
from nospoon.control.planning.accounts import random_password
from nospoon.control.planning.logins import Logins
from nospoon.errors import Conflict, Gone, HostUnreachable, NospoonError, NotFound
from nospoon.model.cluster import Cluster, Host
from nospoon.model.principal import Principal
from nospoon.model.rest.upkeep import RecoveredCluster, RecoveryReport
from nospoon.plan.addresses.claims import found_claims
from nospoon.plan.addresses.found import completed, found_allocations
from nospoon.runtime import running
from nospoon.runtime.clock import Clock
from nospoon.runtime.paced import paced
from nospoon.runtime.users import NameOf, names_of, user_name
from nospoon.store import capacity, snapshots
from nospoon.store import clusters as stored
from nospoon.store import logins as login_rows
from nospoon.store import nodes as node_rows
from nospoon.store.capacity import Taking
from nospoon.store.clusters import ClusterRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.store.snapshots import SnapshotRow

log = structlog.get_logger()

SHOWN = 5
"""Of what others have, in a line of the log."""
ONLY_IN_IRONIC = (
    "not recovered: none of its hosts was looked at, or they have nothing of it; "
    "`nospoon orphans --reap` removes its nodes from Ironic"
)


@dataclass(frozen=True, slots=True)
class Part:
    """What is to be remembered of a cluster: its row, nodes that are `new`, and hosts. `lacking`:
    hosts that may have more of it, and did not answer. `whole`: all hosts are known otherwise.
    """

    row: ClusterRow
    new: Sequence[NodeRow]
    hosts: Sequence[Host]
    before: Known | None
    lacking: Sequence[str]
    whole: bool

    @property
    def nodes(self) -> list[NodeRow]:
        """All that are known then."""
        return [*(self.before.nodes if self.before is not None else ()), *self.new]

    @property
    def anything(self) -> bool:
        """Whether rows say something new."""
        return self.before is None or self.row is not self.before.row

    @property
    def said(self) -> str:
        """How it went."""
        how = "recovered" if self.before is None else "completed"
        return f"{how} in part: no answer from {', '.join(self.lacking)}" if self.lacking else how


class Recovery:
    """Makes rows of what the store does not know. Nothing on a host is changed."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        survey: Survey,
        operations: Operations,
        hosts: Hosts,
        fleet: Fleet,
        enrolment: Enrolment,
        logins: Logins,
        clock: Clock,
        name_of: NameOf = user_name,
    ) -> None:
        self.name_of = name_of
        self._database, self._cipher, self._survey = database, cipher, survey
        self._hosts, self._fleet, self._clock = hosts, fleet, clock
        self._operations, self._enrolment, self._logins = operations, enrolment, logins
        self._one_at_a_time = asyncio.Lock()

    async def recover(
        self, caller: Principal, scope: Scope, *, of: Cluster | None = None
    ) -> RecoveryReport:
        """What was taken in, and what else is there.

        `of`: a file's cluster, and no other. `caller`: the owner of clusters whose tags name none.
        """
        # members' clouds may be slow: who asks elsewhere waits for none of them
        seen = await self._survey.around(scope)
        others = await asyncio.to_thread(others_of, seen, await self._known(), of)
        seen += await self._survey.look(Scope(others))
        async with self._one_at_a_time:
            known = await self._known()
            away = [each.place for each in seen if each.away and isinstance(each.place, Host)]
            rows = [
                (each.owner, row)
                for each in await asyncio.to_thread(found_in, seen, caller.uid, known)
                if of is None or each.name == of.name
                if (row := await self._taken_in(each, known.get(each.id), of, away)) is not None
            ]
        names = await names_of((owner for owner, _ in rows), self.name_of)
        return RecoveryReport(
            clusters=[replace(row, owner=names[owner]) for owner, row in rows],
            away={each.name: each.away for each in seen if each.away},
            others={each.name: each.others for each in seen if each.others},
            running=sorted({d for each in seen for d in each.others if running.runs(d)}),
        )

    async def adopt(self, deployment: str, scope: Scope) -> None:
        """From its next start on the daemon is this deployment, whose state was lost.

        Raises `Conflict` when it has clusters already or a daemon of that deployment runs on this
        machine, `NotFound` when nothing carries that tag.
        """
        if running.runs(deployment):
            raise Conflict(
                f"a daemon of deployment {deployment} runs on this machine: its state is not lost",
                hint="Use that daemon, or stop it before you take its deployment over.",
            )
        if await self._database.read(stored.outlines):
            raise Conflict(
                "this daemon has clusters: it cannot become another deployment",
                hint="Recover with an empty state: set NOSPOON_STATE_DIR to a new directory.",
            )
        seen = await self._survey.around(scope)
        if not any(deployment in each.others for each in seen):
            raise NotFound(f"nothing there carries a tag of deployment {deployment!r}")
        await self._database.adopt(deployment)

    async def _known(self) -> dict[UUID, Known]:
        return {
            row.id: Known(
                replace(row, text="", desired=b""),
                await self._database.read(node_rows.nodes_of, row.id),
                await self._survey.hosts_of(row),
                self._operations.current(row.id),
            )
            async for row in each_cluster(self._database)
        }

    async def _taken_in(
        self, found: Found, known: Known | None, of: Cluster | None, away: Sequence[Host]
    ) -> RecoveredCluster | None:
        """What is shown of it, without its owner's name; None where all was known."""
        busy = self._operations.current(found.id) or (known.busy if known is not None else "")
        if known is not None:
            whole = await self._database.read(stored.get, found.id)
            if whole is None:  # removed meanwhile
                return None
            row = replace(known.row, text=whole.text, desired=whole.desired)
            known = replace(known, row=row)
        part = await asyncio.to_thread(self._part, found, known, of, away)
        if busy:
            why = f"skipped: {busy} is under way"
            return _shown(found, part, 0, why) if part.anything else None
        refused = "" if found.hosts or known is not None else ONLY_IN_IRONIC
        if part.anything and not refused:
            settings = self._logins.sealed(part.hosts)
            refused = await self._database.call(_save, part, settings)
        if refused:
            return _shown(found, part, 0, refused)
        async for node in paced(part.new):
            self._fleet.put(member_of(part.row, node, None))
        new = {node.host.name: node.host for node in part.new}
        await asyncio.gather(*(self._hosts.look(host) for host in new.values()))
        try:
            kept, said = await self._snapshots(part), part.said
        except NospoonError as error:
            kept, said = 0, f"{part.said}, but for its snapshots: {error}"
        if not part.anything and not kept and said == part.said:
            return None
        return _shown(found, part, kept, said)

    def _part(
        self, found: Found, known: Known | None, of: Cluster | None, away: Sequence[Host]
    ) -> Part:
        """It writes, and perhaps reads, a cluster file: for a thread."""
        if known is None:
            return self._first(found, of, away)
        return self._more(found, known, of, away)

    def _first(self, found: Found, of: Cluster | None, away: Sequence[Host]) -> Part:
        """Of a cluster that no one knows; any host that is away may have more of it."""
        hosts = beside(found.hosts, of.hosts if of is not None else ())
        row = ClusterRow(
            id=found.id,
            name=found.name,
            owner=found.owner,
            generation=max(each.tag.generation for each in found.things),
            file=FILE,
            text=self._sealed(self._text(found)),
            uploads={},
            allocations=found_allocations(found.things),
            created=self._clock(),
            enrolled=self._enrolment.sealed(found.ironic),
        )
        lacking = names_among(away, hosts) if of is not None else [host.name for host in away]
        nodes = self._nodes(found, found.hosts)
        return Part(row, nodes, hosts, None, lacking, whole=of is not None)

    def _more(self, found: Found, known: Known, of: Cluster | None, away: Sequence[Host]) -> Part:
        """What is found and not known; what is known stays as it is."""
        row, recovered = known.row, known.row.file == FILE
        hosts = beside(known.hosts, found.hosts)
        hosts = beside(hosts, of.hosts if of is not None and recovered else ())
        names = {node.name for node in known.nodes}
        new = [node for node in self._nodes(found, hosts) if node.name not in names]
        ironic = found.ironic if not row.enrolled else None
        if new or len(hosts) > len(known.hosts) or ironic is not None:
            text = self._cipher.decrypt(row.text.encode())
            row = replace(
                row,
                generation=row.generation + 1,
                text=self._sealed(with_more(text, self._text(found))) if recovered else row.text,
                desired=b"" if recovered else row.desired,
                allocations=completed(row.allocations, found.things, names),
                enrolled=row.enrolled or self._enrolment.sealed(ironic),
            )
        sure = of is not None or not recovered
        lacking = names_among(away, hosts) if sure else [host.name for host in away]
        return Part(row, new, hosts, known, lacking, whole=sure)

    async def _snapshots(self, part: Part) -> int:
        """Those that its machines' disks keep; how many are new, or have more nodes now."""
        kept, silent = [], bool(part.lacking)
        async for node in paced(part.nodes):
            try:
                port = self._hosts.driver(node.uuid).snapshots
                kept.append((node, await port.list(node.uuid) if port is not None else {}))
            except (HostUnreachable, Gone):
                silent = True
        whole = part.whole and not silent
        count = 0
        for each in snapshots_of(part.row.id, kept):
            before = await self._database.read(snapshots.find, part.row.id, each.name)
            now = joined(before, each, whole=whole)
            if now != before:
                count += 1
                await self._database.call(_put_snapshot, before, now)
        return count

    def _sealed(self, text: str) -> str:
        return self._cipher.encrypt(text).decode()

    def _text(self, found: Found) -> str:
        return cluster_file(found.name, found.id, found.hosts, found.things, self._logins.of)

    def _nodes(self, found: Found, hosts: Sequence[Host]) -> list[NodeRow]:
        named = {host.name: host for host in hosts}
        return [
            NodeRow(
                cluster_id=found.id,
                name=each.key.name,
                host=named[each.key.place],
                machine=machine,
                profile="",
                username="",
                password=self._cipher.encrypt(random_password()),
            )
            for each, machine in found.machines
        ]


def _shown(found: Found, part: Part, kept: int, said: str) -> RecoveredCluster:
    return RecoveredCluster(
        cluster=found.name,
        owner="",
        nodes=len(part.nodes),
        hosts=", ".join(host.name for host in part.hosts),
        ironic=str(found.ironic or ""),
        bmcs=len(part.row.allocations.endpoints),
        snapshots=kept,
        said=said,
        cluster_id=str(found.id),
    )


def _save(connection: Connection, part: Part, settings: Mapping[str, bytes]) -> str:
    """Rows of one cluster, and the logins of its hosts; or the reason why there can be none."""
    row, before = part.row, part.before
    if before is None and stored.find(connection, owner=row.owner, name=row.name) is not None:
        return "not recovered: a cluster of that name and owner is there, with another id"
    now = stored.get(connection, row.id)
    if (now and now.generation) != (before and before.row.generation):
        return "skipped: it was changed meanwhile; recover it again"
    machines = (each.machine for each in part.nodes)
    lost = stored.save_found(
        connection, row, found_claims(row.id, row.name, row.allocations, machines)
    )
    if lost.udp or lost.names:
        log.warning(
            "another cluster has some of what a cluster was found with",
            cluster=row.name,
            ports=sorted(lost.udp)[:SHOWN],
            names=sorted(lost.names)[:SHOWN],
        )
    node_rows.put_nodes(connection, part.new)
    capacity.put(connection, row.id, map(_taking, part.new))
    known = {host.name for host in stored.hosts_of(connection, row.id)}
    stored.put_hosts(connection, row.id, [h for h in part.hosts if h.name not in known])
    login_rows.put(connection, settings)
    return ""


def _taking(row: NodeRow) -> Taking:
    """Of a node that was found, whose disks have sizes once its BMC is there again."""
    return Taking(row.uuid, (row.host,), row.machine.cpus, row.machine.memory, 0)


def _put_snapshot(connection: Connection, before: SnapshotRow | None, now: SnapshotRow) -> None:
    if before is None:
        snapshots.put(connection, now)
        return
    snapshots.set_members(connection, now)
    snapshots.set_state(connection, before, now.state)
