"""The controller: every use case of nospoon, for one caller at a time.

It asks the planner for plans, begins operations that carry them out, and answers about nodes from
what the fleet and the BMC service know. Callers see what is theirs and nothing else.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid4, uuid5

from nospoon import __version__
from nospoon.bmc.faults import ABOUT, Fault
from nospoon.bmc.runtime import Runtime
from nospoon.control import bundle
from nospoon.control import status as shown
from nospoon.control.downloads import fetch_all
from nospoon.control.exports import Exported, Exports
from nospoon.control.fetch import url_of
from nospoon.control.files import Files
from nospoon.control.fleet import Fleet, Member
from nospoon.control.host_check import Finding, HostChecker
from nospoon.control.hosts import Hosts
from nospoon.control.media import Media
from nospoon.control.operations import Operations
from nospoon.control.orphans import Orphans
from nospoon.control.planner import Planner, Prepared
from nospoon.control.recover import Recovery
from nospoon.control.request import Request
from nospoon.control.snapshots import Snapshots
from nospoon.control.survey import Survey
from nospoon.control.verify import Verifier
from nospoon.control.work import Removal, Up, Work, record_group
from nospoon.errors import NospoonError, NotFound, PlanRefused, ProviderError, Stale
from nospoon.model.boot import BootDevice, BootMode, BootOverride, OverrideEnabled
from nospoon.model.cluster import Cluster
from nospoon.model.machine import PowerCommand, PowerState
from nospoon.plan.steps import Plan
from nospoon.plan.text import plan_text
from nospoon.runtime.clock import Clock
from nospoon.services.bmcs.service import BmcService
from nospoon.services.consoles.service import Attached, ConsoleService
from nospoon.spec.document import Document
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow, NodeRow
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database
from nospoon.store.operations import OperationRow

AGAIN = 5
"""How often a plan on which nobody agreed is made anew, when others take the same meanwhile."""
AS_FILED = "as the file says"


@dataclass(slots=True)
class Controller:
    """All parts are handed in by the composition root. `found`: what start-up found."""

    database: Database
    cipher: Cipher
    files: Files
    hosts: Hosts
    fleet: Fleet
    planner: Planner
    work: Work
    verifier: Verifier
    operations: Operations
    survey: Survey
    orphans: Orphans
    recovery: Recovery
    snapshots: Snapshots
    exports: Exports
    bmc_service: BmcService
    consoles: ConsoleService
    media: Media
    clock: Clock
    stop: Callable[[], None]
    log_file: Path
    started: float
    found: str = ""

    async def plan(self, request: Request) -> Plan:
        """What `up` would do. While an operation changes the cluster, `Conflict` says so."""
        cluster = await self.planner.cluster_of(request)
        row = await self.database.call(stored.find, uid=request.uid, name=cluster.name)
        try:
            return (await self.planner.prepare(request, cluster)).plan
        except ProviderError:
            if row is not None:
                self.operations.require_free(row.id)
            raise

    async def fetch(self, request: Request) -> OperationRow | None:
        """Begin to fetch what a file names by URL; None when all of it is here."""
        urls = await self.planner.to_fetch(request)
        if not urls:
            return None
        document = Document(request.text, request.file)
        places = {url: document.place_of(url_of(url)) for url in urls}
        return await self.operations.start(
            "fetch",
            cluster_id=uuid4(),  # it holds up nobody
            cluster=(await self.planner.cluster_of(request)).name,
            uid=request.uid,
            work=lambda running: fetch_all(running, places, self.files),
        )

    async def check_hosts(self, request: Request) -> Sequence[Finding]:
        """What the hosts of a file have of what they need; changes nothing."""
        checker = HostChecker(self.hosts, self.clock, self.planner.pool_root_of)
        return await checker.check(await self.planner.cluster_of(request))

    async def up(self, request: Request) -> tuple[Plan, OperationRow | None]:
        """Begin to bring a cluster to its file, by which plan; None when nothing is to be done."""
        cluster = await self.planner.cluster_of(request)
        row = await self.database.call(stored.find, uid=request.uid, name=cluster.name)
        if row is not None:
            self.operations.require_free(row.id)
        return await self._begun(request, cluster, again=AGAIN)

    async def _begun(
        self, request: Request, cluster: Cluster, *, again: int
    ) -> tuple[Plan, OperationRow | None]:
        """A plan on which nobody agreed is made anew when others meanwhile took what it chose, or
        changed what it was made from.
        """
        prepared = await self.planner.prepare(request, cluster)
        if prepared.plan.empty and not prepared.plan.remembers:
            return prepared.plan, None
        work = Up(self.work, prepared, request)
        try:
            return prepared.plan, await self.operations.start(
                "up",
                cluster_id=prepared.id,
                cluster=cluster.name,
                uid=request.uid,
                first=work.remember,
                work=work.carry_out,
            )
        except Stale:
            if request.fingerprint or not again:
                raise
            return await self._begun(request, cluster, again=again - 1)

    async def removal(self, uid: int, name: str, how: Removal) -> Plan:
        """What `down` would do; an empty plan for a cluster that is not there."""
        row = await self.database.call(stored.find, uid=uid, name=name)
        if row is None:
            return Plan(cluster=name, cluster_id=_nobody(uid, name), steps=())
        plan, _, _ = await self.work.removal(row, how)
        return plan

    async def down(self, uid: int, name: str, how: Removal) -> OperationRow:
        """Begin to remove everything of a cluster."""
        row = await self.database.call(stored.find, uid=uid, name=name)
        return await self.operations.start(
            "down",
            cluster_id=row.id if row is not None else _nobody(uid, name),
            cluster=name,
            uid=uid,
            work=lambda running: self.work.down(running, row, uid=uid, name=name, how=how),
        )

    async def clusters(self, uid: int) -> list[dict[str, Any]]:
        """A row a cluster."""
        rows = await self.database.call(stored.all_clusters, uid=uid)
        return [
            {
                "name": row.name,
                "nodes": len(members := self.fleet.of(uid, row.name)),
                "on": sum(1 for member in members if self._power(member) is PowerState.ON),
                "id": str(row.id),
                "file": row.file,
                "operation": self.operations.current(row.id),
            }
            for row in rows
        ]

    async def status(self, uid: int, name: str) -> dict[str, Any]:
        """{"cluster", "id", "nodes": [...], "drift": [...]}: looked at now, not remembered."""
        row = await self._row(uid, name)
        try:
            prepared = await self._looked_at(row)
        except (ProviderError, PlanRefused) as error:
            return self._unknown(row, str(error))
        states = shown.node_states(prepared)
        broken, bonds = shown.faults(prepared), shown.portgroups(prepared)
        members = {member.node: member for member in self.fleet.of(uid, name)}
        nodes = [
            {
                **self._status_row(
                    node, state, _joined(broken.get(node, ""), drift), members.get(node)
                ),
                "portgroups": bonds.get(node, []),
            }
            for node, (state, drift) in states.items()
        ]
        drift = shown.other_drift(prepared)
        return {"cluster": name, "id": str(row.id), "nodes": nodes, "drift": drift}

    async def _looked_at(self, row: ClusterRow) -> Prepared:
        request = replace(self._request_of(row), fetches=False)
        return await self.planner.prepare(request, await self.planner.cluster_of(request))

    def _status_row(
        self, node: str, state: str, drift: str, member: Member | None
    ) -> dict[str, Any]:
        about = self._about(member) if member is not None else {}
        return {
            "node": node,
            "host": about.get("host", ""),
            "state": state,
            "power": about.get("power", ""),
            "boot": about.get("boot", ""),
            "bmc": about.get("ipmi") or about.get("redfish", ""),
            "drift": _joined(about.get("fault", ""), drift),
        }

    def _unknown(self, row: ClusterRow, reason: str) -> dict[str, Any]:
        members = self.fleet.of(row.uid, row.name)
        nodes = [self._status_row(m.node, "unknown", "", m) for m in members]
        return {"cluster": row.name, "id": str(row.id), "nodes": nodes, "drift": [reason]}

    async def verify(
        self,
        uid: int,
        name: str,
        *,
        nodes: list[str],
        reboot_running: bool,
        timeout: float,  # noqa: ASYNC109
    ) -> OperationRow:
        """Begin to boot the probe on nodes and compare."""
        row = await self._row(uid, name)
        members = self.fleet.of(uid, name)
        chosen = [self.fleet.find(uid, f"{name}/{node}") for node in dict.fromkeys(nodes)]
        prepared = await self._looked_at(row)
        return await self.operations.start(
            "verify",
            cluster_id=row.id,
            cluster=name,
            uid=uid,
            work=lambda running: self.verifier.verify(
                running,
                chosen or members,
                prepared.desired,
                reboot_running=reboot_running,
                timeout=timeout,
            ),
        )

    async def nodes(self, uid: int, cluster: str) -> list[dict[str, Any]]:
        """A row a node."""
        return [self._about(member) for member in self.fleet.of(uid, cluster)]

    async def node(self, uid: int, reference: str) -> dict[str, Any]:
        """Everything of one node, without its password."""
        member = self.fleet.find(uid, reference)
        return {**self._about(member), **shown.shape_json(member.machine, member.host.name)}

    async def bmcs(self, uid: int, cluster: str) -> list[dict[str, Any]]:
        """A row a BMC, with credentials: for its owner only."""
        rows: dict[UUID, NodeRow] = {
            row.uuid: row for row in await self.database.call(stored.all_nodes)
        }
        return [
            {
                **self._about(member),
                "username": rows[member.uuid].username,
                "password": self.cipher.decrypt(rows[member.uuid].password),
                "k_g": self._k_g(rows[member.uuid]),
                "pdu_secret": self._pdu_secret(member),
            }
            for member in self.fleet.of(uid, cluster)
        ]

    async def power(self, uid: int, reference: str, command: PowerCommand) -> dict[str, Any]:
        """A chassis command through the node's BMC: {"node", "result"}."""
        member = self.fleet.find(uid, reference)
        result = await self.bmc_service.power(member.uuid, command)
        return {"node": member.path, "result": result}

    async def fault(self, uid: int, reference: str, fault: Fault, seconds: float | None) -> None:
        """From now on, for so many seconds or until cleared, this goes wrong with a node's BMC."""
        member = self.fleet.find(uid, reference)
        until = self.bmc_service.now + seconds if seconds is not None else None
        self.bmc_service.set_fault(member.uuid, replace(fault, until=until))

    async def faults(self, uid: int, reference: str) -> list[dict[str, Any]]:
        """A row for each fault on demand of a node."""
        member, now = self.fleet.find(uid, reference), self.bmc_service.now
        return [
            {"kind": str(each.kind), "fault": each.text(now), "about": ABOUT[each.kind]}
            for each in self.bmc_service.faults(member.uuid)
        ]

    async def clear_faults(self, uid: int, reference: str) -> None:
        """All is well again with a node's BMC."""
        self.bmc_service.clear_faults(self.fleet.find(uid, reference).uuid)

    async def boot(
        self,
        uid: int,
        reference: str,
        *,
        target: BootDevice | None,
        enabled: OverrideEnabled,
        mode: BootMode | None,
    ) -> dict[str, Any]:
        """Set the boot override that the node's BMC holds: {"node", "boot"}."""
        member = self.fleet.find(uid, reference)
        wanted = BootOverride(target, enabled, mode) if target is not None else BootOverride()
        await self.bmc_service.set_override(member.uuid, wanted)
        return {"node": member.path, "boot": self._about(member)["boot"]}

    async def insert(
        self, uid: int, reference: str, url: str, *, username: str, password: str, verify: bool
    ) -> dict[str, Any]:
        """Fetch an image and put it into the node's CD drive: {"node", "media"}."""
        member = self.fleet.find(uid, reference)
        await self.media.insert(
            member.uuid, url, username=username, password=password, verify=verify
        )
        return {"node": member.path, "media": url}

    async def insert_uploaded(
        self, uid: int, reference: str, sha256: str, name: str
    ) -> dict[str, Any]:
        """Put an uploaded image into the node's CD drive: {"node", "media"}."""
        member = self.fleet.find(uid, reference)
        await self.media.insert_uploaded(member.uuid, sha256, name)
        return {"node": member.path, "media": name}

    async def eject(self, uid: int, reference: str) -> dict[str, Any]:
        """Empty the node's CD drive: {"node", "media"}."""
        member = self.fleet.find(uid, reference)
        await self.media.eject(member.uuid)
        return {"node": member.path, "media": ""}

    async def console(self, uid: int, reference: str) -> Attached:
        """Attach to a node's console."""
        member = self.fleet.find(uid, reference)
        return await self.consoles.attach(member.uuid)

    async def console_log(self, uid: int, reference: str, *, follow: bool) -> AsyncIterator[bytes]:
        """The record of a node's console; of CLUSTER/NODE also after `down`, until its purge."""
        try:
            machine = self.fleet.find(uid, reference).uuid
        except NotFound:
            cluster, _, node = reference.partition("/")
            kept = await self.consoles.kept(record_group(uid, cluster), node)
            if kept is None:
                raise
            machine = kept
        return self.consoles.read(machine, follow=follow)

    async def about(self) -> dict[str, Any]:
        """The daemon itself."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "uptime": round(self.clock() - self.started, 1),
            "clusters": len(await self.database.call(stored.all_clusters)),
            "nodes": len(await self.database.call(stored.all_nodes)),
            "deployment": self.database.deployment,
            "found": self.found,
        }

    async def support_bundle(self, uid: int, cluster: str) -> bytes:
        """A .tar.gz for a bug report: of one cluster, or of all that the caller has."""
        if cluster:
            await self._row(uid, cluster)
        texts = {
            "versions.txt": await bundle.versions(),
            "daemon.json": bundle.as_json(await self.about()),
            "daemon.log": bundle.log_tail(self.log_file),
            "operations.json": bundle.as_json(await self.operations.list(uid)),
        }
        for row in await self.database.call(stored.all_clusters, uid=uid):
            if cluster in ("", row.name):
                texts |= await self._bundled(row)
        rows = await self.bmcs(uid, "")
        secrets = [
            row[key] for row in rows for key in ("password", "k_g", "pdu_secret") if row[key]
        ]
        return bundle.Bundle(texts, secrets).pack()

    async def _bundled(self, row: ClusterRow) -> dict[str, str]:
        request = self._request_of(row)
        try:
            plan = plan_text(await self.plan(replace(request, fetches=False)))
        except NospoonError as error:
            plan = str(error)
        texts = {
            f"{row.name}/cluster.yaml": request.text,
            f"{row.name}/ironic.json": await self._in_ironic(row),
            f"{row.name}/resolved.json": bundle.as_json(self.planner.read(row.file, request.text)),
            f"{row.name}/plan.txt": plan,
            f"{row.name}/status.json": bundle.as_json(await self.status(row.uid, row.name)),
        }
        for member in self.fleet.of(row.uid, row.name):
            said = b"".join([c async for c in self.consoles.read(member.uuid, follow=False)])
            texts[f"{row.name}/consoles/{member.node}.log"] = said.decode(errors="replace")
        return texts

    async def _in_ironic(self, row: ClusterRow) -> str:
        try:
            return bundle.as_json(await self.planner.enrolment.told_of(row))
        except NospoonError as error:
            return str(error)

    async def export(self, uid: int, name: str, to: str) -> Exported:
        """A cluster as what another tool reads, with credentials: for its owner only."""
        return await self.exports.export(await self._row(uid, name), to)

    async def _row(self, uid: int, name: str) -> ClusterRow:
        row = await self.database.call(stored.find, uid=uid, name=name)
        if row is None:
            known = [each.name for each in await self.database.call(stored.all_clusters, uid=uid)]
            hint = f"Yours: {', '.join(known)}." if known else "You have none."
            raise NotFound(f"no cluster {name!r}", hint=hint)
        return row

    def _request_of(self, row: ClusterRow) -> Request:
        text = self.cipher.decrypt(row.text.encode())
        return Request(uid=row.uid, file=row.file, text=text, uploads=row.uploads)

    def _power(self, member: Member) -> PowerState:
        last = self.hosts.last(member.uuid)
        return last.power if last is not None else PowerState.UNKNOWN

    def _fault_of(self, member: Member) -> str:
        """What is wrong with its power, and what shall be wrong."""
        served, now = self.bmc_service.status(member.uuid), self.bmc_service.now
        demanded = (f"on demand: {f.text(now)}" for f in self.bmc_service.faults(member.uuid))
        return _joined(served.power_fault if served is not None else "", *demanded)

    def _k_g(self, row: NodeRow) -> str:
        return self.cipher.decrypt(row.k_g) if row.k_g else ""

    def _pdu_secret(self, member: Member) -> str:
        served = self.bmc_service.status(member.uuid)
        return served.config.pdu_secret if served is not None else ""

    def _about(self, member: Member) -> dict[str, Any]:
        served = self.bmc_service.status(member.uuid)
        return {
            "node": member.node,
            "cluster": member.cluster,
            "host": member.host.name,
            "power": str(self._power(member)),
            "fault": self._fault_of(member),
            "boot": _boot(served.aggregate.runtime) if served is not None else AS_FILED,
            "media": served.aggregate.runtime.media if served is not None else "",
            **(shown.endpoints(served.bmc) if served is not None else shown.NOWHERE),
            "uuid": str(member.uuid),
        }


def _nobody(uid: int, name: str) -> UUID:
    """A steady id for a cluster that is not there, so that two `down`s of it exclude each other."""
    return uuid5(NAMESPACE_URL, f"nospoon:{uid}:{name}")


def _boot(runtime: Runtime) -> str:
    """What a BMC's clients set, which goes before the file."""
    override = runtime.override
    if override.active:
        return f"{override.target} ({override.enabled})"
    return f"{', '.join(runtime.boot_order)} (BootOrder)" if runtime.boot_order else AS_FILED


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
