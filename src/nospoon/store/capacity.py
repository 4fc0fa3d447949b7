"""What nodes take of their hosts: a row for each node and place, so that what others take of a host
is a sum by index.

A node that is about to move takes its capacity at both places until its machine is made at the
second. Rows go with their nodes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import (
    Connection,
    Delete,
    Float,
    Insert,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from nospoon.model.cluster import Host
from nospoon.plan.placement.room import Usage
from nospoon.store import tables
from nospoon.store.chunks import chunks

capacity = tables.claimed_capacity
OF_A_NODE = (
    capacity.c.host, capacity.c.networks_at, capacity.c.cpus, capacity.c.memory, capacity.c.disk,
)  # fmt: skip
MOST = (1 << 63) - 1
"""Of a column."""
Place = tuple[str, ...]
"""A host's name, and where it leads."""


@dataclass(frozen=True, slots=True)
class Taking:
    """Of a node, at each of the places where it is or is to be. `memory` and `disk` in bytes."""

    uuid: UUID
    hosts: tuple[Host, ...]
    cpus: int
    memory: int
    disk: int


def put(connection: Connection, cluster: UUID, takings: Iterable[Taking]) -> None:
    """These nodes of a cluster take this from now on, and nothing elsewhere; other nodes of it as
    before. Nothing is written that is so already.
    """
    of_it = capacity.c.cluster_id == str(cluster)
    query = select(capacity.c.uuid, capacity.c.place, *OF_A_NODE).where(of_it)
    known = {(uuid, place): tuple(row) for uuid, place, *row in connection.execute(query)}
    wanted = {
        (str(each.uuid), place_of(host)): (
            host.name, host.networks_at,
            min(each.cpus, MOST), min(each.memory, MOST), min(each.disk, MOST),
        )
        for each in takings
        for host in each.hosts
    }  # fmt: skip
    nodes = {uuid for uuid, _ in wanted}
    gone = [key for key in known if key not in wanted and key[0] in nodes]
    changed = [key for key, row in wanted.items() if key in known and known[key] != row]
    new = [key for key in wanted if key not in known]
    away = [{"its_uuid": uuid, "its_place": place} for uuid, place in (*gone, *changed)]
    _each(connection, _DROP, away)
    rows = [
        {"cluster_id": str(cluster), "uuid": key[0], "place": key[1]}
        | dict(zip((column.name for column in OF_A_NODE), wanted[key], strict=True))
        for key in (*new, *changed)
    ]
    _each(connection, _INSERT, rows)


def settle(connection: Connection, uuid: UUID, host: Host) -> None:
    """A node is at this place, and at no other any more."""
    elsewhere = capacity.c.place != place_of(host)
    connection.execute(delete(capacity).where(capacity.c.uuid == str(uuid), elsewhere))


def lead_elsewhere(connection: Connection, cluster: UUID, hosts: Mapping[str, Host]) -> None:
    """Hosts of a cluster, by name, lead to these places from now on."""
    of_it = capacity.c.cluster_id == str(cluster)
    for name, host in hosts.items():
        moved = update(capacity).where(of_it, capacity.c.host == name)
        connection.execute(moved.values(place=place_of(host), networks_at=host.networks_at))


def taken(connection: Connection, hosts: Collection[str], *, but: UUID) -> dict[Place, Usage]:
    """What nodes of other clusters than one take of hosts with these names, by place."""
    found = dict[Place, Usage]()
    columns = (capacity.c.cpus, capacity.c.memory, capacity.c.disk)
    # as floats: SQLite refuses a sum beyond 2^63, and PostgreSQL's would be no number of Python's
    sums = [func.sum(cast(column, Float)) for column in columns]
    for names in chunks(sorted(hosts)):
        on = capacity.c.host.in_(names)
        query = select(capacity.c.place, *sums).where(on, capacity.c.cluster_id != str(but))
        for place, *usage in connection.execute(query.group_by(capacity.c.place)):
            found[tuple(json.loads(place))] = Usage(*usage)
    return found


def on_networks_of(connection: Connection, hosts: Collection[Host], *, but: UUID) -> set[str]:
    """Ids of other clusters than one with nodes where machines at these hosts have their networks,
    whatever each calls the host.
    """
    wanted = sorted({host.networks_at for host in hosts} - {""})
    found, query = set[str](), select(capacity.c.cluster_id).distinct()
    for some in chunks(wanted):
        there = capacity.c.networks_at.in_(some)
        found.update(connection.scalars(query.where(there, capacity.c.cluster_id != str(but))))
    return found


def place_of(host: Host) -> str:
    """As a column has it. ASCII: what a place is called may be of any bytes."""
    return json.dumps([host.name, *host.place])


_INSERT = insert(capacity)
_DROP = delete(capacity).where(
    capacity.c.uuid == bindparam("its_uuid"), capacity.c.place == bindparam("its_place")
)


def _each(
    connection: Connection, statement: Insert | Delete, rows: Sequence[Mapping[str, object]]
) -> None:
    for some in chunks(rows):
        connection.execute(statement, some)
