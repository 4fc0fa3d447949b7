"""Nodes of clusters. Every function takes the transaction's connection first."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from operator import itemgetter
from uuid import UUID

import msgspec
from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, select, update

from nospoon.bmc.runtime import Runtime, shared
from nospoon.model.cluster import Host
from nospoon.model.principal import OwnerId
from nospoon.model.resources import earlier
from nospoon.model.resources.machines import Machine
from nospoon.model.sharing import Shared
from nospoon.store import capacity, tables
from nospoon.store.chunks import chunks
from nospoon.store.decoded import Decoder, Once, texts
from nospoon.store.encoded import Encoded, encoded
from nospoon.store.hosts import host_of, read_host, record_of_node, with_settings

clusters, cluster_hosts, nodes = tables.clusters, tables.cluster_hosts, tables.nodes


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


@dataclass(frozen=True, slots=True)
class Account:
    """That of a node's BMC. `password` and `k_g` are encrypted; b"": the file gives none."""

    username: str
    password: bytes = field(repr=False)
    k_g: bytes = field(repr=False)


_TEXTS = texts(nodes)
_NAMES = list(nodes.c.keys())
_WHERE = itemgetter(*map(_NAMES.index, ("cluster_id", "host")))
_SECRET = ("username", "password", "k_g", "pdu_secret")
_VALUES = itemgetter(
    *map(_NAMES.index, ("name", "machine", "profile", *_SECRET, "runtime", "source"))
)
"""Of a row of `_TEXTS`, by place: to ask for each by name takes as long as to read the row."""
_BY_UUID = _TEXTS.where(nodes.c.uuid.in_(bindparam("wanted", expanding=True)))
_NEW = Runtime()
_UNUSED = encoded(_NEW)
"""Of a node that had no BMC yet."""
_SOURCES = {each.value: each for each in Source}
_MACHINE, _RUNTIME_OF = Decoder(Machine), Decoder(Runtime)
MachineOf = Callable[[str, Host], Machine]
"""Reads a machine that is on a host."""
_RUNTIME = (
    update(nodes).where(nodes.c.uuid == bindparam("wanted")).values(runtime=bindparam("kept"))
)
_KEPT = frozenset({"uuid", "runtime"})


def all_nodes(connection: Connection) -> list[NodeRow]:
    """To be kept: equal texts of their machines are one."""
    words = Shared()

    def machine(text: str, host: Host) -> Machine:
        return earlier.of_record(words.text(json.loads(text)), host.declares)

    return _nodes(connection, _TEXTS, select(cluster_hosts), machine)


def nodes_of(connection: Connection, cluster_id: UUID) -> list[NodeRow]:
    query = _TEXTS.where(nodes.c.cluster_id == str(cluster_id)).order_by(nodes.c.name)
    hosts = select(cluster_hosts).where(cluster_hosts.c.cluster_id == str(cluster_id))
    return _nodes(connection, query, hosts, _machine)


def _nodes(
    connection: Connection,
    query: Select[tuple[object, ...]],
    of_clusters: Select[tuple[object, ...]],
    machine: MachineOf,
) -> list[NodeRow]:
    rows = connection.execute(of_clusters)
    known = {(row.cluster_id, row.name): host_of(row.host) for row in rows}

    @cache
    def host(cluster: str, text: str) -> Host:
        found = read_host(text)
        return with_settings(found, known.get((cluster, found.name)))

    runtime, cluster = Once(_runtime), Once(UUID)
    return [
        _node(
            row,
            cluster=cluster(of),
            host=host(of, on),
            machine=machine,
            runtime=runtime,
        )
        for row in connection.execute(query)
        for of, on in (_WHERE(row),)
    ]


def node_names(connection: Connection, *, owner: OwnerId) -> dict[UUID, set[str]]:
    """Of the nodes of a user, by their cluster's id."""
    query = select(nodes.c.cluster_id, nodes.c.name).join(clusters).where(clusters.c.owner == owner)
    found: dict[str, set[str]] = {}
    for id_, name in connection.execute(query):
        found.setdefault(id_, set()).add(name)
    return {UUID(id_): names for id_, names in found.items()}


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
    return by_uuid(connection, [uuid]).get(uuid)


def by_uuid(connection: Connection, uuids: Collection[UUID]) -> dict[UUID, NodeRow]:
    """Those of these nodes that are known."""
    host, cluster = Once(read_host), Once(UUID)
    rows = [
        _node(
            row,
            cluster=cluster(of),
            host=host(on),
            machine=_machine,
            runtime=_runtime,
        )
        for row in connection.execute(_BY_UUID, {"wanted": [str(uuid) for uuid in uuids]})
        for of, on in (_WHERE(row),)
    ]
    return {row.uuid: row for row in rows}


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
    for part in chunks(rows):
        values = [_node_values(row, on[id(row.host)]) for row in part]
        fresh = [each for each in values if each["uuid"] not in known]
        renewed = [
            {"wanted": each["uuid"]} | {name: each[name] for name in each.keys() - _KEPT}
            for each in values
            if each["uuid"] in known
        ]
        for statement, some in ((insert(nodes), fresh), (renew, renewed)):
            if some:
                connection.execute(statement, some)


def settle(connection: Connection, uuid: UUID, host: Host) -> None:
    """From now on a node is on this host."""
    record = encoded(record_of_node(host))
    connection.execute(update(nodes).where(nodes.c.uuid == str(uuid)).values(host=record))
    capacity.settle(connection, uuid, host)


def know_machines(connection: Connection, machines: Mapping[UUID, Machine]) -> None:
    """From now on nodes have these machines, by their UUIDs."""
    for uuid, machine in machines.items():
        known = nodes.c.uuid == str(uuid)
        connection.execute(update(nodes).where(known).values(machine=encoded(machine)))


def renew_accounts(connection: Connection, rows: Sequence[NodeRow]) -> None:
    """From now on the nodes' BMCs have the accounts of these rows."""
    if rows:
        renewed = [{"wanted": str(row.uuid), **_account(row)} for row in rows]
        connection.execute(update(nodes).where(nodes.c.uuid == bindparam("wanted")), renewed)


def drop_nodes(connection: Connection, uuids: Sequence[UUID]) -> None:
    _drop(connection, [str(uuid) for uuid in uuids])


def _drop(connection: Connection, uuids: Sequence[str]) -> None:
    if uuids:
        of_it = delete(nodes).where(nodes.c.uuid == bindparam("wanted"))
        connection.execute(of_it, [{"wanted": uuid} for uuid in uuids])


def save_runtimes(connection: Connection, of: Sequence[tuple[UUID, Runtime]]) -> Sequence[None]:
    kept = [{"wanted": str(uuid), "kept": msgspec.to_builtins(runtime)} for uuid, runtime in of]
    connection.execute(_RUNTIME, kept)
    return [None] * len(kept)


def _machine(text: str, host: Host) -> Machine:
    try:
        return _MACHINE(text)
    except msgspec.ValidationError:
        return earlier.of_record(json.loads(text), host.declares)


def _runtime(text: str) -> Runtime:
    return shared(_RUNTIME_OF(text))


def _node(
    row: Row[tuple[object, ...]],
    *,
    cluster: UUID,
    host: Host,
    machine: MachineOf,
    runtime: Callable[[str], Runtime],
) -> NodeRow:
    name, shape, profile, username, password, k_g, pdu_secret, kept, source = _VALUES(row)
    return NodeRow(
        cluster_id=cluster,
        name=name,
        host=host,
        machine=machine(shape, host),
        profile=sys.intern(profile),
        username=sys.intern(username),
        password=password,
        k_g=k_g or b"",
        pdu_secret=pdu_secret or b"",
        runtime=runtime(kept),
        source=_SOURCES[source],
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
