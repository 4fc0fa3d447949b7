"""Clusters and their nodes. Every function takes the transaction's connection first."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import (
    Connection,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from nospoon.bmc.runtime import Runtime, shared
from nospoon.model.cluster import Host
from nospoon.model.principal import OwnerId
from nospoon.model.resources import Machine
from nospoon.model.sharing import Shared
from nospoon.plan.addresses.allocate import Allocations
from nospoon.store import tables
from nospoon.store.decoded import Decoder, InParts, Once, texts
from nospoon.store.encoded import Encoded, encoded
from nospoon.store.hosts import host_of, read_host, record_of, record_of_node, with_machines

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
    """Which clusters there are, without what they have. `generation` and `created` say whether what
    one has is the same as before.
    """

    id: UUID
    name: str
    owner: OwnerId
    generation: int
    created: float


@dataclass(frozen=True, slots=True)
class Holding:
    """What a cluster has, without its file, which may be megabytes. `size`: `ClusterRow.size`."""

    id: UUID
    name: str
    owner: OwnerId
    generation: int
    created: float
    uploads: Mapping[str, str]
    allocations: Allocations
    size: int

    @property
    def outline(self) -> Outline:
        return Outline(self.id, self.name, self.owner, self.generation, self.created)


class Source(StrEnum):
    """Where the password of a BMC is from."""

    FILE = "given"
    MADE = "made"
    UNKNOWN = "file"
    """A row of an earlier version, in which all said so."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: where it is and its shape, its account, and its BMC's runtime state.

    `password`, `k_g` and `pdu_secret` are encrypted; b"": the file gives none. `profile` names the
    boot profile that it gets from the network. `source`: of the password.
    """

    cluster_id: UUID
    name: str
    host: Host
    machine: Machine
    profile: str
    username: str
    password: bytes = field(repr=False)
    k_g: bytes = field(default=b"", repr=False)
    pdu_secret: bytes = field(default=b"", repr=False)
    runtime: Runtime = field(default_factory=Runtime)
    source: Source = Source.UNKNOWN

    @property
    def uuid(self) -> UUID:
        return self.machine.uuid


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


def digests(connection: Connection) -> set[str]:
    """SHA-256 of every upload that a cluster names."""
    rows = connection.execute(select(clusters.c.uploads))
    return {digest for (uploads,) in rows for digest in uploads.values()}


def uploads_of(connection: Connection, owner: OwnerId) -> list[tuple[str, Mapping[str, str]]]:
    """Name and uploads of each cluster of a user, by name."""
    query = select(clusters.c.name, clusters.c.uploads).where(clusters.c.owner == owner)
    return [(name, uploads) for name, uploads in connection.execute(query.order_by("name"))]


def holdings(
    connection: Connection,
    *,
    owner: OwnerId | None = None,
    ids: Collection[UUID] | None = None,
    but: UUID | None = None,
) -> list[Holding]:
    """Of all clusters, those of one user, those with these ids, or all but one, by name.
    Allocations may be megabytes: read them where nothing waits for it.
    """
    query = _HOLDINGS if owner is None else _HOLDINGS.where(clusters.c.owner == owner)
    if ids is not None:
        query = query.where(clusters.c.id.in_([str(each) for each in ids]))
    if but is not None:
        query = query.where(clusters.c.id != str(but))
    return [
        Holding(
            UUID(row.id), row.name, row.owner, row.generation, row.created, row.uploads,
            _ALLOCATIONS(row.allocations), row.size,
        )
        for row in connection.execute(query)
    ]  # fmt: skip


_HOLDINGS = select(
    clusters.c.id,
    clusters.c.name,
    clusters.c.owner,
    clusters.c.generation,
    clusters.c.created,
    clusters.c.uploads,
    cast(clusters.c.allocations, Text).label("allocations"),
    (func.length(clusters.c.text) + func.coalesce(func.length(clusters.c.desired), 0)).label(
        "size"
    ),
).order_by(clusters.c.name)


def save(connection: Connection, row: ClusterRow) -> None:
    """Insert or update. Raises `IntegrityError` for an id that another cluster has."""
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
) -> None:
    """Where BMCs of these nodes answered is free."""
    row = get(connection, id)
    if row is not None and names:
        left = encoded(row.allocations.without(names))
        connection.execute(
            update(clusters).where(clusters.c.id == str(id)).values(allocations=left)
        )


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
    return changed


def keep_hosts(connection: Connection, cluster_id: UUID, names: Collection[str]) -> None:
    """Forget all hosts but these."""
    known = {host.name for host in hosts_of(connection, cluster_id)}
    _drop_hosts(connection, cluster_id, sorted(known - set(names)))


def _drop_hosts(connection: Connection, cluster_id: UUID, names: Sequence[str]) -> None:
    of_it = cluster_hosts.c.cluster_id == str(cluster_id)
    for name in names:
        connection.execute(delete(cluster_hosts).where(of_it, cluster_hosts.c.name == name))


def all_nodes(connection: Connection) -> list[NodeRow]:
    """To be kept: equal texts of their machines are one."""
    words = Shared()

    def machine(text: str) -> Machine:
        return msgspec.convert(words.text(json.loads(text)), Machine)

    return _nodes(connection, _TEXTS, select(cluster_hosts), machine)


def nodes_of(connection: Connection, cluster_id: UUID) -> list[NodeRow]:
    query = _TEXTS.where(nodes.c.cluster_id == str(cluster_id)).order_by(nodes.c.name)
    hosts = select(cluster_hosts).where(cluster_hosts.c.cluster_id == str(cluster_id))
    return _nodes(connection, query, hosts, _MACHINE)


def _nodes(
    connection: Connection,
    query: Select[tuple[object, ...]],
    of_clusters: Select[tuple[object, ...]],
    machine: Callable[[str], Machine],
) -> list[NodeRow]:
    rows = connection.execute(of_clusters)
    known = {(row.cluster_id, row.name): host_of(row.host) for row in rows}

    @cache
    def host(cluster: str, text: str) -> Host:
        found = read_host(text)
        return with_machines(found, known.get((cluster, found.name)))

    runtime, cluster = Once(_runtime), Once(UUID)
    return [
        _node(
            row,
            cluster=cluster(row.cluster_id),
            host=host(row.cluster_id, row.host),
            machine=machine,
            runtime=runtime,
        )
        for row in connection.execute(query)
    ]


def node_names(connection: Connection, *, owner: OwnerId) -> dict[UUID, set[str]]:
    """Of the nodes of a user, by their cluster's id."""
    query = select(nodes.c.cluster_id, nodes.c.name).join(clusters).where(clusters.c.owner == owner)
    found: dict[str, set[str]] = {}
    for id_, name in connection.execute(query):
        found.setdefault(id_, set()).add(name)
    return {UUID(id_): names for id_, names in found.items()}


@dataclass(frozen=True, slots=True)
class Account:
    """That of a node's BMC. `password` and `k_g` are encrypted; b"": the file gives none."""

    username: str
    password: bytes = field(repr=False)
    k_g: bytes = field(repr=False)


def accounts(connection: Connection, *, owner: OwnerId, cluster: str = "") -> dict[UUID, Account]:
    """Of a user's nodes, all or of one cluster."""
    columns = (nodes.c.uuid, nodes.c.username, nodes.c.password, nodes.c.k_g)
    query = select(*columns).join(clusters).where(clusters.c.owner == owner)
    if cluster:
        query = query.where(clusters.c.name == cluster)
    return {
        UUID(row.uuid): Account(row.username, row.password, row.k_g or b"")
        for row in connection.execute(query)
    }


def node(connection: Connection, uuid: UUID) -> NodeRow | None:
    row = connection.execute(_NODE, {"wanted": str(uuid)}).first()
    if row is None:
        return None
    return _node(
        row,
        cluster=UUID(row.cluster_id),
        host=read_host(row.host),
        machine=_MACHINE,
        runtime=_runtime,
    )


_TEXTS = texts(nodes)
_NODE = _TEXTS.where(nodes.c.uuid == bindparam("wanted"))
_NEW = Runtime()
_UNUSED = encoded(_NEW)
"""Of a node that had no BMC yet."""
SLICE = 500
"""Nodes that are written in one piece, while which no other thread goes on."""
_SOURCES = {each.value: each for each in Source}
_MACHINE, _RUNTIME_OF = Decoder(Machine), Decoder(Runtime)
_RUNTIME = (
    update(nodes).where(nodes.c.uuid == bindparam("wanted")).values(runtime=bindparam("kept"))
)


def put_nodes(connection: Connection, rows: Sequence[NodeRow]) -> None:
    """Insert nodes, or renew the accounts of those that are there; runtime state is kept. A node
    that is another machine now, by its UUID, is a new one.
    """
    of_clusters = nodes.c.cluster_id.in_({str(row.cluster_id) for row in rows})
    wanted = {(str(row.cluster_id), row.name): str(row.uuid) for row in rows}
    known, replaced = set[str](), list[str]()
    there = select(nodes.c.uuid, nodes.c.cluster_id, nodes.c.name).where(of_clusters)
    for uuid, cluster_id, name in connection.execute(there):
        if wanted.get((cluster_id, name), uuid) == uuid:
            known.add(uuid)
        else:
            replaced.append(uuid)
    _drop(connection, replaced)
    hosts = {id(row.host): row.host for row in rows}  # a few that many nodes share
    on = {key: encoded(record_of_node(host)) for key, host in hosts.items()}
    renew = update(nodes).where(nodes.c.uuid == bindparam("wanted"))
    for first in range(0, len(rows), SLICE):
        values = [_node_values(row, on[id(row.host)]) for row in rows[first : first + SLICE]]
        fresh = [each for each in values if each["uuid"] not in known]
        renewed = [
            {"wanted": each["uuid"]} | {name: each[name] for name in each.keys() - _KEPT}
            for each in values
            if each["uuid"] in known
        ]
        for statement, some in ((insert(nodes), fresh), (renew, renewed)):
            if some:
                connection.execute(statement, some)


_KEPT = frozenset({"uuid", "runtime"})


def settle(connection: Connection, uuid: UUID, host: Host) -> None:
    """From now on a node is on this host."""
    record = encoded(record_of_node(host))
    connection.execute(update(nodes).where(nodes.c.uuid == str(uuid)).values(host=record))


def renew_account(connection: Connection, row: NodeRow) -> None:
    """From now on a node's BMC has the account of this row."""
    connection.execute(update(nodes).where(nodes.c.uuid == str(row.uuid)).values(_account(row)))


def drop_nodes(connection: Connection, uuids: Sequence[UUID]) -> None:
    _drop(connection, [str(uuid) for uuid in uuids])


def _drop(connection: Connection, uuids: Sequence[str]) -> None:
    if uuids:
        of_it = delete(nodes).where(nodes.c.uuid == bindparam("wanted"))
        connection.execute(of_it, [{"wanted": uuid} for uuid in uuids])


def save_runtime(connection: Connection, uuid: UUID, runtime: Runtime) -> None:
    kept = msgspec.to_builtins(runtime)
    connection.execute(_RUNTIME, {"wanted": str(uuid), "kept": kept})


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


def _runtime(text: str) -> Runtime:
    return shared(_RUNTIME_OF(text))


def _node(
    row: Row[tuple[object, ...]],
    *,
    cluster: UUID,
    host: Host,
    machine: Callable[[str], Machine],
    runtime: Callable[[str], Runtime],
) -> NodeRow:
    return NodeRow(
        cluster_id=cluster,
        name=row.name,
        host=host,
        machine=machine(row.machine),
        profile=sys.intern(row.profile),
        username=sys.intern(row.username),
        password=row.password,
        k_g=row.k_g or b"",
        pdu_secret=row.pdu_secret or b"",
        runtime=runtime(row.runtime),
        source=_SOURCES[row.source],
    )


def _node_values(row: NodeRow, host: Encoded) -> dict[str, object]:
    return {
        "uuid": str(row.uuid),
        "cluster_id": str(row.cluster_id),
        "name": row.name,
        "host": host,
        "machine": encoded(row.machine),
        "profile": row.profile,
        "runtime": _UNUSED if row.runtime == _NEW else msgspec.to_builtins(row.runtime),
        **_account(row),
    }


def _account(row: NodeRow) -> dict[str, object]:
    return {
        "username": row.username,
        "password": row.password,
        "source": str(row.source),
        "k_g": row.k_g or None,
        "pdu_secret": row.pdu_secret or None,
    }
