"""Clusters and their hosts. Every function takes the transaction's connection first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Row, Table, delete, func, insert, or_, select, update

from nospoon.model.cluster import Host
from nospoon.model.principal import OwnerId
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.claims import Claims, Scope, given_claims
from nospoon.store import capacity, claims, tables
from nospoon.store.decoded import Decoder, InParts, texts
from nospoon.store.encoded import encoded
from nospoon.store.hosts import host_of, record_of
from nospoon.store.nodes import NodeRow, nodes_of, put_nodes

clusters, cluster_hosts, nodes = tables.clusters, tables.cluster_hosts, tables.nodes
_CLUSTERS, _ALLOCATIONS = texts(clusters), InParts(Allocations)


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster as it was last asked for. `uploads`: name in the file -> sha256 of the content.

    `enrolled`: the Ironic in which it may have nodes, encrypted; b"" for none. `desired`: what its
    file says, as `store.desired` packs it, encrypted; b"" where that is in the file's text alone,
    which was written by an earlier version or by `recover`.
    """

    id: UUID
    name: str
    owner: OwnerId
    generation: int
    file: str
    text: str
    uploads: Mapping[str, str]
    allocations: Allocations
    created: float
    enrolled: bytes = field(default=b"", repr=False)
    desired: bytes = field(default=b"", repr=False)

    @property
    def size(self) -> int:
        """Bytes of the file and of what it says."""
        return len(self.text) + len(self.desired)  # both are encrypted: a byte is a character


class Outline(NamedTuple):
    """Which clusters there are, without what they have."""

    id: UUID
    name: str
    owner: OwnerId
    generation: int
    created: float


@dataclass(frozen=True, slots=True)
class Holding:
    """What a cluster has of files. `size`: `ClusterRow.size`."""

    id: UUID
    owner: OwnerId
    uploads: Mapping[str, str]
    size: int


def find(connection: Connection, *, owner: OwnerId, name: str) -> ClusterRow | None:
    """The caller's cluster of this name."""
    query = _CLUSTERS.where(clusters.c.owner == owner, clusters.c.name == name)
    row = connection.execute(query).first()
    return _cluster(row) if row is not None else None


def outline(connection: Connection, *, owner: OwnerId, name: str) -> Outline | None:
    """The same without its file, of which many callers may hold megabytes."""
    query = select(*(clusters.c[each] for each in Outline._fields))
    query = query.where(clusters.c.owner == owner, clusters.c.name == name)
    row = connection.execute(query).first()
    return Outline(UUID(row[0]), *row[1:]) if row is not None else None


def get(connection: Connection, id: UUID) -> ClusterRow | None:  # noqa: A002  (the column's name)
    row = connection.execute(_CLUSTERS.where(clusters.c.id == str(id))).first()
    return _cluster(row) if row is not None else None


def count(connection: Connection) -> tuple[int, int]:
    """How many clusters and nodes there are, of all users."""

    def of(table: Table) -> int:
        return connection.scalar(select(func.count()).select_from(table)) or 0

    return of(clusters), of(nodes)


def listed(connection: Connection, *, owner: OwnerId) -> list[tuple[UUID, str, str]]:
    """Id, name and place of the file of each cluster of a user, by name."""
    query = select(clusters.c.id, clusters.c.name, clusters.c.file).where(clusters.c.owner == owner)
    rows = connection.execute(query.order_by(clusters.c.name))
    return [(UUID(row.id), row.name, row.file) for row in rows]


def outlines(connection: Connection, *, owner: OwnerId | None = None) -> list[Outline]:
    """Of all clusters, or those of one user, by name."""
    query = select(*(clusters.c[name] for name in Outline._fields)).order_by(clusters.c.name)
    if owner is not None:
        query = query.where(clusters.c.owner == owner)
    return [Outline(UUID(id_), *more) for id_, *more in connection.execute(query)]


def outlines_beside(connection: Connection, row: ClusterRow) -> list[Outline]:
    """Of a user's clusters, and of the one with this id, whosever it is."""
    near = or_(clusters.c.owner == row.owner, clusters.c.id == str(row.id))
    query = select(*(clusters.c[name] for name in Outline._fields)).where(near)
    return [Outline(UUID(id_), *more) for id_, *more in connection.execute(query)]


def digests(connection: Connection) -> set[str]:
    """SHA-256 of every upload that a cluster names."""
    rows = connection.execute(select(clusters.c.uploads))
    return {digest for (uploads,) in rows for digest in uploads.values()}


def uploads_of(connection: Connection, owner: OwnerId) -> list[tuple[str, Mapping[str, str]]]:
    """Name and uploads of each cluster of a user, by name."""
    query = select(clusters.c.name, clusters.c.uploads).where(clusters.c.owner == owner)
    return [(name, uploads) for name, uploads in connection.execute(query.order_by("name"))]


def holdings(connection: Connection, *, owner: OwnerId | None = None) -> list[Holding]:
    """Of all clusters, or those of one user, by name; nothing is read that grows with nodes."""
    query = _HOLDINGS if owner is None else _HOLDINGS.where(clusters.c.owner == owner)
    rows = connection.execute(query)
    return [Holding(UUID(row.id), row.owner, row.uploads, row.size) for row in rows]


_HOLDINGS = select(
    clusters.c.id,
    clusters.c.owner,
    clusters.c.uploads,
    (func.length(clusters.c.text) + func.coalesce(func.length(clusters.c.desired), 0)).label(
        "size"
    ),
).order_by(clusters.c.name)


def save(
    connection: Connection,
    row: ClusterRow,
    claimed: Claims | None = None,
    *,
    hosts: Collection[Host] = (),
) -> None:
    """Insert or update, with its rows of what no other may have; None: as it was allocated.
    `hosts`: that its nodes are on.

    Raises `IntegrityError` for an id that another cluster has, and `Stale` for what another has of
    what is new.
    """
    _write(connection, row)
    wanted = given_claims(row.allocations) if claimed is None else claimed
    claims.put(connection, row.id, row.owner, wanted, hosts=hosts)


def save_found(connection: Connection, row: ClusterRow, claimed: Claims) -> Claims:
    """The same of a cluster that was found, or more of it: it is there, whatever others have, and
    what it has stays. Returns what of it others have, which has no row.
    """
    _write(connection, row)
    free = claims.free_of(connection, row.id, claimed)
    known = claims.of(connection, row.id)
    claims.write(connection, row.id, row.owner, free.beside(known), known=known)
    return replace(claimed, udp=claimed.udp - free.udp, names=claimed.names - free.names)


def _write(connection: Connection, row: ClusterRow) -> None:
    values = {
        "generation": row.generation,
        "file": row.file,
        "text": row.text,
        "uploads": dict(row.uploads),
        "allocations": encoded(row.allocations),
        "created": row.created,
        "enrolled": row.enrolled or None,
        "desired": row.desired or None,
    }
    whose = {"id": str(row.id), "owner": row.owner, "name": row.name}
    same = (clusters.c[column] == value for column, value in whose.items())
    changed = connection.execute(update(clusters).where(*same).values(values)).rowcount
    if not changed:
        connection.execute(insert(clusters).values(**whose, **values))


def remove(connection: Connection, id: UUID) -> None:  # noqa: A002  (the column's name)
    connection.execute(delete(clusters).where(clusters.c.id == str(id)))


def forget_enrolment(connection: Connection, id: UUID) -> None:  # noqa: A002  (the column's name)
    """Nothing of it is in any Ironic."""
    of_it = clusters.c.id == str(id)
    connection.execute(update(clusters).where(of_it).values(enrolled=None))


def forget_places(
    connection: Connection,
    id: UUID,  # noqa: A002  (the column's name)
    names: Collection[str],
    gone: Collection[tuple[Scope, str]] = (),
) -> None:
    """Where BMCs of these nodes answered is free, and what is `gone` with them."""
    row = get(connection, id)
    if row is not None and names:
        left = row.allocations.without(names)
        kept = encoded(left)
        connection.execute(
            update(clusters).where(clusters.c.id == str(id)).values(allocations=kept)
        )
        claims.forget(connection, id, row.owner, given_claims(left), gone)


def hosts_of(connection: Connection, cluster_id: UUID) -> list[Host]:
    """Where a cluster may have things, by name."""
    of_it = select(cluster_hosts).where(cluster_hosts.c.cluster_id == str(cluster_id))
    rows = connection.execute(of_it.order_by(cluster_hosts.c.name))
    return [host_of(row.host) for row in rows]


def all_hosts(connection: Connection) -> list[Host]:
    """Where some cluster may have things."""
    rows = connection.execute(select(cluster_hosts.c.host)).scalars()
    return [host_of(each) for each in rows]


def logins_of(connection: Connection, *, owner: OwnerId) -> dict[tuple[UUID, str], str]:
    """Names of logins at clouds that a user's clusters have, by cluster and host."""
    query = select(cluster_hosts).join(clusters).where(clusters.c.owner == owner)
    return {
        (UUID(row.cluster_id), row.name): login
        for row in connection.execute(query)
        if (login := host_of(row.host).connection.login)
    }


def put_hosts(connection: Connection, cluster_id: UUID, hosts: Sequence[Host]) -> None:
    """Remember these, as they are now; others that are known stay."""
    _drop_hosts(connection, cluster_id, [host.name for host in hosts])
    for host in hosts:
        encoded = record_of(host)
        values = {"cluster_id": str(cluster_id), "name": host.name, "host": encoded}
        connection.execute(insert(cluster_hosts).values(values))


def change_hosts(
    connection: Connection, cluster_id: UUID, change: Callable[[Sequence[Host]], Sequence[Host]]
) -> list[NodeRow]:
    """Remember a cluster's hosts as `change` makes them. Returns the nodes whose hosts are others
    now.
    """
    before = hosts_of(connection, cluster_id)
    now = {host.name: host for host in change(before)}
    if [*now.values()] == [*before]:
        return []
    put_hosts(connection, cluster_id, [*now.values()])
    rows = nodes_of(connection, cluster_id)
    changed = [replace(row, host=now.get(row.host.name, row.host)) for row in rows]
    put_nodes(connection, changed)
    capacity.lead_elsewhere(connection, cluster_id, now)
    return changed


def keep_hosts(connection: Connection, cluster_id: UUID, names: Collection[str]) -> None:
    """Forget all hosts but these."""
    known = {host.name for host in hosts_of(connection, cluster_id)}
    _drop_hosts(connection, cluster_id, sorted(known - set(names)))


def _drop_hosts(connection: Connection, cluster_id: UUID, names: Sequence[str]) -> None:
    of_it = cluster_hosts.c.cluster_id == str(cluster_id)
    for name in names:
        connection.execute(delete(cluster_hosts).where(of_it, cluster_hosts.c.name == name))


_UPLOADS = Decoder(dict[str, str])


def _cluster(row: Row[tuple[object, ...]]) -> ClusterRow:
    return ClusterRow(
        id=UUID(row.id),
        name=row.name,
        owner=row.owner,
        generation=row.generation,
        file=row.file,
        text=row.text,
        uploads=_UPLOADS(row.uploads),
        allocations=_ALLOCATIONS(row.allocations),
        created=row.created,
        enrolled=row.enrolled or b"",
        desired=row.desired or b"",
    )
