"""What a user asks of the use cases, whatever they are wired over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.security.asked import OTHER, OWNER

from nospoon.control.controller import Controller
from nospoon.control.operations.memory import Memory
from nospoon.control.operations.operations import Operations
from nospoon.control.operations.work import Removal
from nospoon.control.planning.planner import Planner
from nospoon.control.request import Request
from nospoon.model.principal import Administrators
from nospoon.plan.order.steps import Plan
from nospoon.providers.simulated.connection import SimulatedConnection
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.store.operations import OperationRow

__all__ = ["HOST", "OTHER", "OWNER", "Asking", "file_of"]

HOST = "s"


def file_of(*nodes: str, cluster: str = "c", more: str = "") -> str:
    """A cluster of these nodes on a simulated host, each with a disk."""
    listed = "".join(f"- {{name: {name}, disks: [1GiB]}}\n" for name in nodes)
    return f"cluster: {cluster}\nhosts: {{{HOST}: simulated}}\n{more}nodes:\n{listed}"


@dataclass(kw_only=True, slots=True)
class Asking:
    """`connection`: to the simulated host of this name."""

    admins: Administrators
    database: Database
    planner: Planner
    memory: Memory
    operations: Operations
    controller: Controller
    connection: Callable[[str], SimulatedConnection]

    @property
    def host(self) -> Surroundings:
        """The simulated host, whose failures a test arranges."""
        return self.connection(HOST).around

    async def plan(self, text: str, uid: int = OWNER, **more: Any) -> Plan:
        request = Request(self.admins.principal(uid), file="c.yaml", text=text, **more)
        prepared = await self.planner.prepare(request, await self.planner.clusters.of(request))
        return prepared.plan

    async def up(self, text: str, uid: int = OWNER, **more: Any) -> OperationRow:
        """Once it has ended."""
        request = Request(self.admins.principal(uid), file="c.yaml", text=text, **more)
        _, operation = await self.controller.up(request)
        assert operation is not None, "there is something to do"
        return await self.ended(operation.id)

    async def down(
        self, cluster: str = "c", uid: int = OWNER, *, purge: bool = False
    ) -> OperationRow:
        operation = await self.controller.down(
            self.admins.principal(uid), cluster, Removal(purge=purge)
        )
        return await self.ended(operation.id)

    async def ended(self, operation: UUID) -> OperationRow:
        async for _ in self.operations.follow(operation):
            pass
        return await self.operations.get(operation)

    async def row(self, cluster: str = "c", uid: int = OWNER) -> ClusterRow | None:
        return await self.database.read(stored.find, owner=uid, name=cluster)

    async def nodes(self, cluster: str = "c", uid: int = OWNER) -> dict[str, NodeRow]:
        row = await self.row(cluster, uid)
        assert row is not None
        return {each.name: each for each in await self.database.read(node_rows.nodes_of, row.id)}

    def made(self) -> set[str]:
        """What is there on the host, as `kind/name`."""
        return {f"{each.key.kind}/{each.key.name}" for each in self.host.world.all()}
