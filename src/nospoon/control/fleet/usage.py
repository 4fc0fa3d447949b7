"""What nodes take of their hosts, as it is remembered."""

from __future__ import annotations

from uuid import UUID

from nospoon.control.fleet.hosts import Hosts
from nospoon.plan.placement.room import Usage
from nospoon.runtime.paced import paced
from nospoon.store import takings
from nospoon.store.database import Database
from nospoon.store.takings import Taking


async def of_others(database: Database, hosts: Hosts, cluster_id: UUID) -> dict[str, Usage]:
    """What nodes of other clusters take, by the identity of their hosts."""
    usage: dict[str, Usage] = {}
    async for each in paced(await database.read(takings.of_others, cluster_id)):
        where = hosts.identity(each.host)
        usage[where] = usage.get(where, Usage()) + _usage(each)
    return usage


async def standing(database: Database, cluster_id: UUID) -> dict[str, Usage]:
    """What nodes of a cluster take, by name."""
    found = await database.read(takings.of, cluster_id)
    return {each.name: _usage(each) for each in found if each.disks is not None}


def _usage(taking: Taking) -> Usage:
    return Usage(taking.cpus, taking.memory, sum(taking.disks or ()))
