"""What no two clusters may have, and what nodes take of their hosts, as rows of their own.

They are filled from what earlier versions kept beside each cluster. Where two clusters were given
the same port, MAC or name, the one that was created first has its row; the other one keeps what it
has, and is named in the log; ADR 34 says what becomes of it.
Which networks lead from host to host, and their IPv6, is in the clusters' files, which are
encrypted: until its cluster's next `up`, each network has its VXLAN identifier, and none its IPv6.
Hosts are read by the code of today, which reads them as all earlier versions wrote them.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from uuid import UUID

import sqlalchemy as sa
import structlog
from alembic import op

from nospoon.store.hosts import host_of

log = structlog.get_logger()

revision = "0020"
down_revision = "0019"

LARGE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOST = (1 << 63) - 1
MAPPED = bytes(10) + b"\xff\xff"
SLICE = 500
SHOWN = 5
"""Of what two clusters have, in a line of the log."""
CLUSTERS = sa.table(
    "clusters",
    sa.column("id", sa.String),
    sa.column("name", sa.String),
    sa.column("uid", sa.BigInteger),
    sa.column("created", sa.Float),
    sa.column("allocations", sa.JSON),
)
NODES = sa.table(
    "nodes",
    sa.column("uuid", sa.String),
    sa.column("cluster_id", sa.String),
    sa.column("host", sa.JSON),
    sa.column("machine", sa.JSON),
)
BMCS = sa.table("bmcs", sa.column("uuid", sa.String), sa.column("record", sa.JSON))


def upgrade() -> None:
    claims, endpoints, networks, capacity = _tables()
    connection = op.get_bind()
    taken = set[object]()
    order = sa.select(CLUSTERS.c.id).order_by(CLUSTERS.c.created, CLUSTERS.c.id)
    for cluster_id in connection.scalars(order).all():
        row = connection.execute(sa.select(CLUSTERS).where(CLUSTERS.c.id == cluster_id)).one()
        of_it = NODES.c.cluster_id == cluster_id
        with_bmcs = sa.outerjoin(NODES, BMCS, BMCS.c.uuid == NODES.c.uuid)
        columns = (NODES.c.uuid, NODES.c.host, NODES.c.machine, BMCS.c.record)
        nodes = connection.execute(sa.select(*columns).select_from(with_bmcs).where(of_it)).all()
        machines = [_mapping(node.machine) for node in nodes]
        given, twice = _mapping(row.allocations), list[str]()
        rows: dict[str, list[dict[str, object]]] = {"claims": [], "endpoints": []}
        for scope, value in sorted(set(_names(UUID(row.id), row.name, given, machines))):
            if _first((scope, value), taken, twice):
                rows["claims"].append({"scope": scope, "value": value, "cluster_id": row.id})
        for transport, address, port in sorted(set(_endpoints(given))):
            if transport == "tcp" or _first((address, port), taken, twice):
                rows["endpoints"].append(
                    {
                        "transport": transport, "address": address, "port": port,
                        "number": _number(address), "cluster_id": row.id, "uid": row.uid,
                    }
                )  # fmt: skip
        if twice:
            log.warning(
                "a cluster has what an earlier one was given, too",
                cluster=row.name,
                what=twice[:SHOWN],
                more=max(len(twice) - SHOWN, 0),
            )
        _insert(claims, rows["claims"])
        _insert(endpoints, rows["endpoints"])
        _insert(networks, [{"cluster_id": row.id} | each for each in _networks(given)])
        _insert(capacity, [{"cluster_id": row.id} | _takes(*node) for node in nodes])


def downgrade() -> None:
    for table in ("claimed_capacity", "claimed_networks", "claimed_endpoints", "claims"):
        op.drop_table(table)


def _tables() -> tuple[sa.Table, sa.Table, sa.Table, sa.Table]:
    def of_cluster(*, primary_key: bool = True) -> sa.Column[str]:
        goes = sa.ForeignKey("clusters.id", ondelete="CASCADE")
        return sa.Column("cluster_id", sa.String(36), goes, primary_key=primary_key, nullable=False)

    claims = op.create_table(
        "claims",
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("value", sa.String(), primary_key=True),
        of_cluster(primary_key=False),
    )
    op.create_index("claims_of_cluster", "claims", ["cluster_id"])
    endpoints = op.create_table(
        "claimed_endpoints",
        sa.Column("transport", sa.String(3), primary_key=True),
        sa.Column("port", sa.Integer(), primary_key=True),
        sa.Column("address", sa.String(), primary_key=True),
        of_cluster(),
        sa.Column("number", sa.BigInteger()),
        sa.Column("uid", LARGE, nullable=False),
    )
    op.create_index("claimed_endpoints_of_cluster", "claimed_endpoints", ["cluster_id"])
    by_number = ["transport", "number", "port"]
    op.create_index("claimed_endpoints_by_number", "claimed_endpoints", by_number)
    udp = sa.text("transport = 'udp'")
    op.create_index(
        "claimed_endpoints_once", "claimed_endpoints", ["port", "address"], unique=True,
        sqlite_where=udp, postgresql_where=udp,
    )  # fmt: skip
    networks = op.create_table(
        "claimed_networks",
        of_cluster(),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("cidr", sa.String(43), primary_key=True),
        sa.Column("first", sa.LargeBinary(16), nullable=False),
        sa.Column("last", sa.LargeBinary(16), nullable=False),
    )
    op.create_index("claimed_networks_by_range", "claimed_networks", ["first", "last"])
    capacity = op.create_table(
        "claimed_capacity",
        sa.Column(
            "uuid", sa.String(36), sa.ForeignKey("nodes.uuid", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("place", sa.String(), primary_key=True),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("networks_at", sa.String(), nullable=False),
        sa.Column("cluster_id", sa.String(36), nullable=False),
        sa.Column("cpus", sa.BigInteger(), nullable=False),
        sa.Column("memory", sa.BigInteger(), nullable=False),
        sa.Column("disk", sa.BigInteger(), nullable=False),
    )  # fmt: skip
    by_host = ["host", "cluster_id", "place", "cpus", "memory", "disk"]
    op.create_index("claimed_capacity_by_host", "claimed_capacity", by_host)
    op.create_index("claimed_capacity_of_cluster", "claimed_capacity", ["cluster_id", "host"])
    by_networks = ["networks_at", "cluster_id"]
    op.create_index("claimed_capacity_by_networks", "claimed_capacity", by_networks)
    return claims, endpoints, networks, capacity


def _first(what: tuple[object, ...], taken: set[object], twice: list[str]) -> bool:
    if what in taken:
        twice.append(":".join(map(str, what)))
        return False
    taken.add(what)
    return True


def _names(
    cluster: UUID, name: str, given: Mapping[str, object], machines: Iterable[Mapping[str, object]]
) -> Iterator[tuple[str, str]]:
    """As `nospoon.plan.addresses.claims` had them in this revision."""
    yield "pool", f"nospoon-{name}-{cluster.hex[:8]}"
    for network in _mapping(given.get("cidrs")):
        digest = hashlib.sha256(cluster.bytes + b"vxlan" + network.encode()).digest()
        yield "vni", str(int.from_bytes(digest[:3]) or 1)
    for machine in machines:
        for nic in map(_mapping, _listed(machine.get("nics"))):
            if nic.get("mac"):
                yield "mac", str(nic["mac"]).lower()
            bridge = str(nic.get("network") or nic.get("bridge") or "")  # as earlier ones call it
            if bridge[:2] == "ns" and bridge[8:9] == "-" and not machine.get("adopted"):
                yield "bridge", bridge


def _endpoints(given: Mapping[str, object]) -> Iterator[tuple[str, str, int]]:
    """Port 0: the BMC does not answer by this protocol."""
    for end in map(_mapping, _mapping(given.get("endpoints")).values()):
        for transport, port in (("udp", end.get("ipmi_port")), ("tcp", end.get("redfish_port"))):
            if port:
                yield transport, str(end.get("address")), _int(port)
    for outlet in map(_mapping, _mapping(given.get("outlets")).values()):
        yield "udp", str(outlet.get("address")), _int(outlet.get("port"))


def _networks(given: Mapping[str, object]) -> Iterator[dict[str, object]]:
    for name, cidr in _mapping(given.get("cidrs")).items():
        network = IPv4Network(str(cidr))
        first, last = (MAPPED + each.packed for each in (network[0], network[-1]))
        yield {"name": name, "cidr": cidr, "first": first, "last": last}


def _takes(uuid: str, on: object, shape: object, record: object) -> dict[str, object]:
    machine, host = _mapping(shape), host_of(on)
    disks = _listed(_mapping(_mapping(record).get("bmc")).get("disk_sizes"))
    return {
        "uuid": uuid,
        "place": json.dumps([host.name, *host.place]),
        "host": host.name,
        "networks_at": host.networks_at,
        "cpus": min(_int(machine.get("cpus")), MOST),
        "memory": min(_int(machine.get("memory")), MOST),
        "disk": min(sum(map(_int, disks)), MOST),
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


def _number(address: str) -> int | None:
    try:
        return int(IPv4Address(address))
    except AddressValueError:
        return None


def _insert(table: sa.Table, rows: list[dict[str, object]]) -> None:
    for first in range(0, len(rows), SLICE):
        op.get_bind().execute(sa.insert(table), rows[first : first + SLICE])
