"""The tables. Times are Unix seconds; JSON columns hold encoded dataclasses of the model."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

LARGE = BigInteger().with_variant(Integer(), "sqlite")
"""User ids have 32 bits without a sign, and generations may follow one of a tag that has 31."""

deployment = Table("deployment", metadata, Column("id", String, primary_key=True))

clusters = Table(
    "clusters",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("name", String, nullable=False),
    Column("uid", LARGE, key="owner", nullable=False),
    Column("generation", LARGE, nullable=False),
    Column("file", String, nullable=False),
    Column("text", Text, nullable=False),
    Column("uploads", JSON, nullable=False),
    Column("allocations", JSON, nullable=False),
    Column("created", Float, nullable=False),
    Column("enrolled", LargeBinary, nullable=True),
    Column("desired", LargeBinary, nullable=True),
    UniqueConstraint("owner", "name"),
)

cluster_hosts = Table(
    "cluster_hosts",
    metadata,
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("host", JSON, nullable=False),
)

cloud_logins = Table(
    "cloud_logins",
    metadata,
    Column("name", String, primary_key=True),
    Column("settings", LargeBinary, nullable=False),
)

nodes = Table(
    "nodes",
    metadata,
    Column("uuid", String(36), primary_key=True),
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), nullable=False),
    Column("name", String, nullable=False),
    Column("source", String, nullable=False),
    Column("host", JSON, nullable=False),
    Column("machine", JSON, nullable=False),
    Column("profile", String, nullable=False),
    Column("username", String, nullable=False),
    Column("password", LargeBinary, nullable=False),
    Column("runtime", JSON, nullable=False),
    Column("k_g", LargeBinary, nullable=True),
    Column("pdu_secret", LargeBinary, nullable=True),
    UniqueConstraint("cluster_id", "name"),
)

claims = Table(
    "claims",
    metadata,
    Column("scope", String(16), primary_key=True),
    Column("value", String, primary_key=True),
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), nullable=False),
    Index("claims_of_cluster", "cluster_id"),
)

claimed_endpoints = Table(
    "claimed_endpoints",
    metadata,
    Column("transport", String(3), primary_key=True),
    Column("port", Integer, primary_key=True),
    Column("address", String, primary_key=True),
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True),
    Column("number", BigInteger),
    Column("uid", LARGE, key="owner", nullable=False),
    Index("claimed_endpoints_of_cluster", "cluster_id"),
    Index("claimed_endpoints_by_number", "transport", "number", "port"),
    # clusters of one user share an address and port of Redfish
    Index(
        "claimed_endpoints_once",
        "port",
        "address",
        unique=True,
        sqlite_where=text("transport = 'udp'"),
        postgresql_where=text("transport = 'udp'"),
    ),
)
"""`number`: of an IPv4 address, to look for those of a range."""

claimed_networks = Table(
    "claimed_networks",
    metadata,
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String, primary_key=True),
    Column("cidr", String(43), primary_key=True),
    Column("first", LargeBinary(16), nullable=False),
    Column("last", LargeBinary(16), nullable=False),
    Index("claimed_networks_by_range", "first", "last"),
)

claimed_capacity = Table(
    "claimed_capacity",
    metadata,
    Column("uuid", ForeignKey("nodes.uuid", ondelete="CASCADE"), primary_key=True),
    Column("place", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("networks_at", String, nullable=False),
    Column("cluster_id", String(36), nullable=False),
    Column("cpus", BigInteger, nullable=False),
    Column("memory", BigInteger, nullable=False),
    Column("disk", BigInteger, nullable=False),
    Index("claimed_capacity_by_host", "host", "cluster_id", "place", "cpus", "memory", "disk"),
    Index("claimed_capacity_of_cluster", "cluster_id", "host"),
    Index("claimed_capacity_by_networks", "networks_at", "cluster_id"),
)

bmcs = Table(
    "bmcs",
    metadata,
    Column("uuid", String(36), primary_key=True),
    Column("cluster_id", String(36), nullable=False),
    Column("host", String, nullable=False),
    Column("name", String, nullable=False),
    Column("record", JSON, nullable=False),
    Index("bmcs_by_cluster", "cluster_id"),
)

bmc_sockets = Table(
    "bmc_sockets",
    metadata,
    Column("uuid", ForeignKey("bmcs.uuid", ondelete="CASCADE"), primary_key=True),
    Column("protocol", String(3), primary_key=True),
    Column("port", Integer, primary_key=True),
    Column("bound", String, primary_key=True),
    Column("address", String, nullable=False),
    Column("tls", Boolean, nullable=False),
    Column("certificate", String(64), nullable=False),
    Column("cluster_id", String(36), nullable=False),
    Column("uid", LARGE, key="owner", nullable=False),
    # both have all that is asked for, so that no row of 10,000 is read beside its index
    Index(
        "bmc_sockets_by_bound",
        *("protocol", "port", "bound", "cluster_id", "owner", "tls", "certificate"),
    ),
    Index("bmc_sockets_by_address", "protocol", "port", "address", "owner"),
    Index(
        "bmc_sockets_of_user",
        *("owner", "protocol", "port", "bound", "tls", "certificate", "cluster_id"),
    ),
)
"""`address`: where the BMC answers; `bound`: what its socket is bound to, which those of a pool
share.
"""

bmc_log = Table(
    "bmc_log",
    metadata,
    Column("uuid", ForeignKey("nodes.uuid", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("record", JSON, nullable=False),
)

event_services = Table(
    "event_services",
    metadata,
    Column("place", String, primary_key=True),
    Column("account", String(64), primary_key=True),
    Column("record", JSON, nullable=False),
)

operations = Table(
    "operations",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("kind", String, nullable=False),
    Column("cluster_id", String(36), nullable=False),
    Column("cluster", String, nullable=False),
    Column("uid", LARGE, key="owner", nullable=False),
    Column("state", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("finished", Float),
    Column("message", Text, nullable=False),
    Column("result", JSON, nullable=False),
    Column("size", BigInteger, nullable=False, server_default="0"),
    Index("operations_by_cluster", "cluster_id"),
    # what is asked of all of a user's: SQLite reads a row of 50 MB up to what is asked of it
    Index("operations_of_user", "owner", "created", "id", "size", "state"),
)

images = Table(
    "images",
    metadata,
    Column("uid", LARGE, key="owner", primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("sha256", String(64), nullable=False),
    Column("format", String(16), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("hypervisor_type", String(16), nullable=False),
    Column("created", Float, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("state", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("members", JSON, nullable=False),
)

recipe_sets = Table(
    "recipe_sets",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("request", Integer, nullable=False),
    Column("number", Integer, nullable=False, unique=True),
    Column("uid", LARGE, key="submitter", nullable=False),
    Column("owner", String(64), nullable=False),
    Column("lab", String, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created", Float, nullable=False),
    Column("record", LargeBinary, nullable=False),
    Column("key", String(128)),
    Column("history", JSON, nullable=False),
    Index("recipe_sets_by_request", "request"),
    Index("recipe_sets_by_state", "state"),
    Index("recipe_sets_by_key", "submitter", "key"),
)

lab_states = Table(
    "lab_states",
    metadata,
    Column("cluster_id", ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True),
    Column("lab", String, primary_key=True),
    Column("machine", String, primary_key=True),
    Column("record", JSON, nullable=False),
)

lab_notices = Table(
    "lab_notices",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("id", String(36), nullable=False, unique=True),
    Column("lab", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("body", String, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("scope", String, primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("beat", Integer, nullable=False),
    Column("controller", String, nullable=False),
    Column("instance", String, nullable=False),
    Column("since", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("operation_id", ForeignKey("operations.id", ondelete="CASCADE"), primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("data", JSON, nullable=False),
)

journal = Table(
    "journal",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("operation_id", String(36), nullable=False),
    Column("cluster_id", String(36), nullable=False),
    Column("kind", String, nullable=False),
    Column("host", String, nullable=False),
    Column("name", String, nullable=False),
    Column("half", String, nullable=False),
    Column("token", String, nullable=False),
    Column("state", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("error", Text, nullable=False),
    Index("journal_open", "state"),
    Index("journal_of_operation", "operation_id"),
)
