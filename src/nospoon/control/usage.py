"""What nodes take of their hosts, as it is remembered."""

from __future__ import annotations

from uuid import UUID

from nospoon.control.hosts import Hosts
from nospoon.plan.room import Usage
from nospoon.store import bmcs as bmc_rows
from nospoon.store import clusters as stored
from nospoon.store.database import Database


async def of_others(database: Database, hosts: Hosts, cluster_id: UUID) -> dict[str, Usage]:
    """What nodes of other clusters take, by the identity of their hosts."""
    usage: dict[str, Usage] = {}
    disks = await _disks(database, None)
    for row in await database.call(stored.all_nodes):
        if row.cluster_id != cluster_id:
            where = hosts.identity(row.host)
            taken = Usage(row.machine.cpus, row.machine.memory, disks.get(row.uuid, 0))
            usage[where] = usage.get(where, Usage()) + taken
    return usage


async def standing(database: Database, cluster_id: UUID) -> dict[str, Usage]:
    """What nodes of a cluster take, by name."""
    disks = await _disks(database, cluster_id)
    return {
        row.name: Usage(row.machine.cpus, row.machine.memory, disks[row.uuid])
        for row in await database.call(stored.nodes_of, cluster_id)
        if row.uuid in disks
    }


async def _disks(database: Database, cluster_id: UUID | None) -> dict[UUID, int]:
    """Bytes of each node's disks, as its BMC tells of them; of a cluster, or of all."""
    told = await database.call(bmc_rows.records, cluster_id)
    return {bmc.uuid: sum(bmc.disk_sizes) for _, bmc, _ in told}
