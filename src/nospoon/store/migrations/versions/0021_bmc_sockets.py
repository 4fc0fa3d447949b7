"""Sockets of BMCs as rows, so that a plan looks for those that are in its way, and reads no others.

They are filled from the records of BMCs. Those of tags without a user, which earlier versions
wrote, are of their cluster's owner, and root's where it is gone.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

LARGE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
CHUNK = 500
BMCS = sa.table(
    "bmcs",
    sa.column("uuid", sa.String),
    sa.column("cluster_id", sa.String),
    sa.column("record", sa.JSON),
)
CLUSTERS = sa.table("clusters", sa.column("id", sa.String), sa.column("uid", sa.BigInteger))


def upgrade() -> None:
    table = _table()
    connection = op.get_bind()
    of_cluster = {each.id: each.uid for each in connection.execute(sa.select(CLUSTERS))}
    uuids = connection.scalars(sa.select(BMCS.c.uuid).order_by(BMCS.c.uuid)).all()
    for first in range(0, len(uuids), CHUNK):
        some = BMCS.c.uuid.in_(uuids[first : first + CHUNK])
        rows = list[dict[str, object]]()
        for uuid, cluster_id, record in connection.execute(sa.select(BMCS).where(some)).all():
            bmc, tag = _mapping(record.get("bmc")), _mapping(record.get("tag"))
            owner = tag.get("uid")
            its = {
                "uuid": uuid,
                "address": bmc.get("address"),
                "cluster_id": cluster_id,
                "uid": of_cluster.get(cluster_id, 0) if owner is None else owner,
            }
            rows += [each | its for each in _sockets(bmc)]
        if rows:
            connection.execute(sa.insert(table), rows)


def downgrade() -> None:
    op.drop_table("bmc_sockets")


def _table() -> sa.Table:
    table = op.create_table(
        "bmc_sockets",
        sa.Column(
            "uuid", sa.String(36), sa.ForeignKey("bmcs.uuid", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("protocol", sa.String(3), primary_key=True),
        sa.Column("port", sa.Integer(), primary_key=True),
        sa.Column("bound", sa.String(), primary_key=True),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("tls", sa.Boolean(), nullable=False),
        sa.Column("certificate", sa.String(64), nullable=False),
        sa.Column("cluster_id", sa.String(36), nullable=False),
        sa.Column("uid", LARGE, nullable=False),
    )
    for name, columns in (
        ("by_bound", ["protocol", "port", "bound", "cluster_id", "uid", "tls", "certificate"]),
        ("by_address", ["protocol", "port", "address", "uid"]),
        ("of_user", ["uid", "protocol", "port", "bound", "tls", "certificate", "cluster_id"]),
    ):
        op.create_index(f"bmc_sockets_{name}", "bmc_sockets", columns)
    return table


def _sockets(bmc: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """As `nospoon.plan.addresses.ports` had them in this revision."""
    outlet, plain = _mapping(bmc.get("outlet")), {"tls": False, "certificate": ""}
    bound = "0.0.0.0" if bmc.get("pool") else bmc.get("address")  # noqa: S104  (compared, not bound)
    if bmc.get("ipmi_port"):
        yield {"protocol": "UDP", "port": bmc["ipmi_port"], "bound": bound} | plain
    if outlet:
        place = bound if bmc.get("pool") else outlet.get("address")
        yield {"protocol": "UDP", "port": outlet.get("port"), "bound": place} | plain
    if bmc.get("redfish_port"):
        spoken = {"tls": bool(bmc.get("tls")), "certificate": bmc.get("certificate") or ""}
        yield {"protocol": "TCP", "port": bmc["redfish_port"], "bound": bound} | spoken


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
