"""A daemon in this process whose use cases are called without its API; machines are simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.control.controller import Controller
from nospoon.control.operations.work import Removal
from nospoon.control.planning.planner import Planner
from nospoon.control.request import Request
from nospoon.daemon.wiring import Daemon
from nospoon.plan.order.steps import Plan
from nospoon.providers.simulated.surroundings import Surroundings
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.nodes import NodeRow
from nospoon.store.operations import OperationRow

__all__ = ["OTHER", "OWNER", "Asking", "a_control_plane", "file_of"]

HOST = "s"


def file_of(*nodes: str, cluster: str = "c", more: str = "") -> str:
    """A cluster of these nodes on a simulated host, each with a disk."""
    listed = "".join(f"- {{name: {name}, disks: [1GiB]}}\n" for name in nodes)
    return f"cluster: {cluster}\nhosts: {{{HOST}: simulated}}\n{more}nodes:\n{listed}"


@dataclass(slots=True)
class Asking:
    """What a user asks of the use cases of a daemon."""

    daemon: Daemon

    @property
    def planner(self) -> Planner:
        return self.daemon.parts.planner

    @property
    def controller(self) -> Controller:
        return self.daemon.control.controller

    @property
    def host(self) -> Surroundings:
        """The simulated host, whose bad days a test arranges."""
        return self.daemon.parts.simulations._connections[HOST].around

    async def plan(self, text: str, uid: int = OWNER, **more: Any) -> Plan:
        request = Request(self.daemon.parts.admins.principal(uid), file="c.yaml", text=text, **more)
        prepared = await self.planner.prepare(request, await self.planner.clusters.of(request))
        return prepared.plan

    async def up(self, text: str, uid: int = OWNER, **more: Any) -> OperationRow:
        """Once it has ended."""
        request = Request(self.daemon.parts.admins.principal(uid), file="c.yaml", text=text, **more)
        _, operation = await self.controller.up(request)
        assert operation is not None, "there is something to do"
        return await self.ended(operation.id)

    async def down(
        self, cluster: str = "c", uid: int = OWNER, *, purge: bool = False
    ) -> OperationRow:
        operation = await self.controller.down(
            self.daemon.parts.admins.principal(uid), cluster, Removal(purge=purge)
        )
        return await self.ended(operation.id)

    async def ended(self, operation: UUID) -> OperationRow:
        async for _ in self.daemon.control.operations.follow(operation):
            pass
        return await self.daemon.control.operations.get(operation)

    async def row(self, cluster: str = "c", uid: int = OWNER) -> ClusterRow | None:
        return await self.daemon.parts.database.read(stored.find, owner=uid, name=cluster)

    async def nodes(self, cluster: str = "c", uid: int = OWNER) -> dict[str, NodeRow]:
        row = await self.row(cluster, uid)
        assert row is not None
        return {
            each.name: each
            for each in await self.daemon.parts.database.read(node_rows.nodes_of, row.id)
        }

    def made(self) -> set[str]:
        """What is there on the host, as `kind/name`."""
        return {f"{each.key.kind}/{each.key.name}" for each in self.host.world.all()}


@asynccontextmanager
async def a_control_plane(directory: Path, **environment: str) -> AsyncIterator[Asking]:
    async with a_daemon(directory, **environment) as asked:
        yield Asking(asked.daemon)
