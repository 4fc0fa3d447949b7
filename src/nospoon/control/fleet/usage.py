"""What nodes take of their hosts, as it is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from nospoon.control.fleet.hosts import Hosts
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.resource import Observed
from nospoon.plan.placement.room import Usage
from nospoon.runtime.paced import paced
from nospoon.store import takings
from nospoon.store.database import Database
from nospoon.store.nodes import NodeRow
from nospoon.store.takings import Taking


async def of_others(database: Database, hosts: Hosts, cluster_id: UUID) -> dict[str, Usage]:
    """What nodes of other clusters take, by the identity of their hosts."""
    usage: dict[str, Usage] = {}
    async for each in paced(await database.read(takings.of_others, cluster_id)):
        where = hosts.identity(each.host)
        usage[where] = usage.get(where, Usage()) + _usage(each)
    return usage


def standing(rows: Iterable[NodeRow], observed: Iterable[Observed]) -> dict[str, Usage]:
    """What nodes of a cluster take that have a BMC, which has the sizes of their disks; by name."""
    disks = {
        each.shape.uuid: each.shape.disk_sizes for each in observed if isinstance(each.shape, Bmc)
    }
    return {
        row.name: Usage(row.machine.cpus, row.machine.memory, sum(disks[row.uuid]))
        for row in rows
        if row.uuid in disks
    }


def _usage(taking: Taking) -> Usage:
    return Usage(taking.cpus, taking.memory, sum(taking.disks or ()))
