"""Sockets of BMCs as rows: those that are in the way of others are looked up by index.

They are of BMCs that are there, and not of what clusters were given: after an `up` that failed, a
BMC may answer where its cluster has nothing any more, until it is changed or removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Connection, and_, func, insert, select, tuple_

from nospoon.model.addresses import ANY, ANY_IPV4
from nospoon.model.principal import OwnerId
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.addresses.ports import TCP, Bound, Neighbour, sockets
from nospoon.store import tables
from nospoon.store.chunks import chunks

Place = tuple[str, int]
"""An address and a port."""
WIDE = (ANY, ANY_IPV4)
table, clusters = tables.bmc_sockets, tables.clusters


@dataclass(frozen=True, slots=True)
class Beside:
    """What of other clusters may be in the way of a cluster's sockets. `foreign`: where another
    user's BMCs answer Redfish; `elsewhere`: how many sockets the user's other clusters have.
    """

    neighbours: tuple[Neighbour, ...]
    foreign: frozenset[Place]
    elsewhere: int


def beside(
    connection: Connection,
    cluster: UUID,
    owner: OwnerId,
    *,
    wanted: Collection[Bound],
    redfish: Collection[Place],
) -> Beside:
    """For a cluster of a user that is to have these. `redfish`: where its BMCs are to answer."""
    return Beside(
        tuple(_neighbours(connection, cluster, owner, wanted)),
        frozenset(_foreign(connection, owner, redfish)),
        _elsewhere(connection, cluster, owner),
    )


def put(connection: Connection, made: Iterable[tuple[Bmc, OwnerTag]]) -> None:
    """Of BMCs that have none yet. They go with them."""
    values = [
        {
            "uuid": str(bmc.uuid),
            "protocol": bound.protocol,
            "port": bound.port,
            "bound": bound.address,
            "address": bmc.address,
            "tls": bound.tls,
            "certificate": bound.certificate,
            "cluster_id": str(tag.cluster),
            "owner": tag.uid or 0,  # root's where it is no user's
        }
        for bmc, tag in made
        for bound in {bound for _, bound in sockets(bmc)}
    ]
    if values:
        connection.execute(_INSERT, values)


def _neighbours(
    connection: Connection, cluster: UUID, owner: OwnerId, wanted: Iterable[Bound]
) -> Iterator[Neighbour]:
    """Each socket of each other cluster once, however many BMCs have it."""
    by_protocol = dict[str, set[Place]]()
    for each in wanted:
        by_protocol.setdefault(each.protocol, set()).add((each.address, each.port))
    columns = (table.c.bound, table.c.port, table.c.tls, table.c.certificate, table.c.cluster_id)
    names = dict[str, str]()
    for protocol, places in sorted(by_protocol.items()):
        query = select(*columns, table.c.owner).distinct().order_by(*columns)
        others = query.where(table.c.protocol == protocol, table.c.cluster_id != str(cluster))
        for near in _near(table.c.bound, places):
            for row in connection.execute(others.where(near)):
                bound = Bound(protocol, row.bound, row.port, row.tls, row.certificate)
                is_own = row.owner == owner
                if is_own and row.cluster_id not in names:
                    names[row.cluster_id] = _name(connection, row.cluster_id)
                yield Neighbour(bound, names[row.cluster_id] if is_own else "", is_own)


def _name(connection: Connection, cluster: str) -> str:
    """Of a cluster, "" where only BMCs are left of it."""
    return connection.scalar(select(clusters.c.name).where(clusters.c.id == cluster)) or ""


def _foreign(connection: Connection, owner: OwnerId, places: Collection[Place]) -> Iterator[Place]:
    is_others = and_(table.c.protocol == TCP, table.c.owner != owner)
    if connection.execute(select(1).where(is_others).limit(1)).first() is None:
        return  # each place was asked for, of ten thousand
    others = select(table.c.address, table.c.port).distinct().where(is_others)
    for near in _near(table.c.address, places):
        yield from ((address, port) for address, port in connection.execute(others.where(near)))


def _elsewhere(connection: Connection, cluster: UUID, owner: OwnerId) -> int:
    columns = (table.c.protocol, table.c.port, table.c.bound, table.c.tls, table.c.certificate)
    its = select(*columns).where(table.c.owner == owner, table.c.cluster_id != str(cluster))
    return connection.scalar(select(func.count()).select_from(its.distinct().subquery())) or 0


def _near(column: Column[str], places: Collection[Place]) -> Iterator[ColumnElement[bool]]:
    """What one of these is in the way of, or is in the way of one: the same place, the port of all
    addresses, and for a port of all addresses that of any.
    """
    wide = sorted({port for address, port in places if address in WIDE})
    narrow = sorted({(port, address) for address, port in places if address not in WIDE})
    for ports in chunks(wide):
        yield table.c.port.in_(ports)
    for ports in chunks(sorted({port for port, _ in narrow})):
        yield and_(table.c.port.in_(ports), column.in_(WIDE))
    for some in chunks(narrow):
        yield tuple_(table.c.port, column).in_(some)


_INSERT = insert(table)
