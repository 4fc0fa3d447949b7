"""Services of clusters, as they are now."""

from __future__ import annotations

from nospoon.control.fleet.fleet import Fleet, Member
from nospoon.control.fleet.owned import each_cluster, owned
from nospoon.control.operations.health import AT_ONCE, HealthChecks
from nospoon.control.operations.nodes import Nodes
from nospoon.control.planning.planner import Planner
from nospoon.errors import SpecError
from nospoon.model.machine import PowerState
from nospoon.model.principal import Principal
from nospoon.model.rest.services import ServiceStatus
from nospoon.model.service import Service
from nospoon.plan.addresses.addresses import GuestAddress, looked_at
from nospoon.runtime.few import few_at_once
from nospoon.runtime.turns import Turns
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database


class Services:
    """What runs where, and whether it is healthy."""

    def __init__(
        self,
        *,
        database: Database,
        planner: Planner,
        fleet: Fleet,
        nodes: Nodes,
        checks: HealthChecks,
    ) -> None:
        self._database, self._planner, self._fleet = database, planner, fleet
        self._nodes, self._checks = nodes, checks
        self._turns = Turns()

    async def rows(self, caller: Principal, cluster: str) -> list[ServiceStatus]:
        """A row for each service on each of its nodes, of all of a user's clusters or of one. Who
        lists them twice at a time waits: each is looked at. Raises `NotFound`, and `SpecError` for
        one whose file cannot be read; among all of them it has a row that says so.
        """
        async with self._turns.of(str(caller.uid)):
            if cluster:
                return await self._of(await owned(self._database, owner=caller.uid, name=cluster))
            found: list[ServiceStatus] = []
            async for row in each_cluster(self._database, owner=caller.uid):
                try:
                    found += await self._of(row)
                except SpecError as error:
                    found.append(_unreadable(row, error))
            return found

    async def _of(self, row: ClusterRow) -> list[ServiceStatus]:
        cluster = await self._planner.clusters.stored(row)
        if not cluster.services:
            return []
        workers = self._planner.workers
        addresses = await workers.run(row.owner, looked_at, cluster, row.id, row.allocations)
        used = row.allocations.hosts.values()
        addresses |= await self._checks.outside(cluster, row.id, used)
        members = await self._fleet.by_node(row.owner, row.name)
        places = [
            (each, members[node], addresses.get(node))
            for each in cluster.services
            for node in each.nodes
            if node in members
        ]
        return await few_at_once(places, self._row, at_once=AT_ONCE)

    async def _row(self, place: tuple[Service, Member, GuestAddress | None]) -> ServiceStatus:
        service, member, there = place
        power = self._nodes.power_of(member)
        health, why = "", ""
        if service.health is not None and power is PowerState.ON:
            why = await self._checks.why_not(member.owner, member.uuid, there, service.health)
            health = "unhealthy" if why else "healthy"
        return ServiceStatus(
            service=service.name,
            cluster=member.cluster,
            node=member.node,
            kind=str(member.machine.kind),
            power=str(power),
            health=health,
            why=why,
            unit=service.unit,
            address=there.best if there is not None else "",
            after=list(service.after),
            timeout=service.health.timeout if service.health is not None else 0.0,
        )


def _unreadable(row: ClusterRow, error: SpecError) -> ServiceStatus:
    why = f"its file cannot be read: {error.problems[0]}"
    return ServiceStatus(
        service="", cluster=row.name, node="", kind="", power="", health="", why=why, unit="",
        address="", after=(),
    )  # fmt: skip
