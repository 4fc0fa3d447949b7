"""What nodes take of their hosts: a few columns, for there may be very many of them."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import BigInteger, Connection, Text, cast, select

from nospoon.model.cluster import Host
from nospoon.store import tables
from nospoon.store.decoded import Once
from nospoon.store.hosts import read_host

nodes, bmcs = tables.nodes, tables.bmcs


@dataclass(frozen=True, slots=True)
class Taking:
    """Of one node. `memory` in bytes. `disks`: bytes of each, as its BMC tells of them; None where
    there is no BMC on record.
    """

    name: str
    host: Host
    cpus: int
    memory: int
    disks: tuple[int, ...] | None


def of_others(connection: Connection, cluster: UUID) -> list[Taking]:
    """Of the nodes of all clusters but one."""
    host = Once(read_host)
    return [
        Taking(
            row.name,
            host(row.host),
            row.cpus,
            row.memory,
            tuple(row.disks or ()) if row.uuid is not None else None,
        )
        for row in connection.execute(_TAKINGS.where(nodes.c.cluster_id != str(cluster)))
    ]


_TAKINGS = select(
    nodes.c.name,
    cast(nodes.c.host, Text).label("host"),
    nodes.c.machine["cpus"].as_integer().label("cpus"),
    cast(nodes.c.machine["memory"].as_string(), BigInteger).label("memory"),
    bmcs.c.uuid,
    bmcs.c.record["bmc"]["disk_sizes"].label("disks"),
).outerjoin(bmcs, bmcs.c.uuid == nodes.c.uuid)
