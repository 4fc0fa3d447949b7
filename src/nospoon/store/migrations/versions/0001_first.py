"""The first schema.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "bmcs",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("cluster_id", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("uuid"),
    )
    op.create_index("bmcs_by_cluster", "bmcs", ["cluster_id"], unique=False)
    op.create_table(
        "clusters",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("file", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("uploads", sa.JSON(), nullable=False),
        sa.Column("allocations", sa.JSON(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uid", "name"),
    )
    op.create_table(
        "deployment", sa.Column("id", sa.String(), nullable=False), sa.PrimaryKeyConstraint("id")
    )
    op.create_table(
        "journal",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("operation_id", sa.String(length=36), nullable=False),
        sa.Column("cluster_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("half", sa.String(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("journal_open", "journal", ["state"], unique=False)
    op.create_table(
        "operations",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("cluster_id", sa.String(length=36), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("finished", sa.Float(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("operations_by_cluster", "operations", ["cluster_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("operation_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("operation_id", "seq"),
    )
    op.create_table(
        "nodes",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("cluster_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("host", sa.JSON(), nullable=False),
        sa.Column("machine", sa.JSON(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("username", sa.String(), nullable=False),
        sa.Column("password", sa.LargeBinary(), nullable=False),
        sa.Column("runtime", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["cluster_id"], ["clusters.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uuid"),
        sa.UniqueConstraint("cluster_id", "name"),
    )


def downgrade() -> None:
    op.drop_table("nodes")
    op.drop_table("events")
    op.drop_index("operations_by_cluster", table_name="operations")
    op.drop_table("operations")
    op.drop_index("journal_open", table_name="journal")
    op.drop_table("journal")
    op.drop_table("deployment")
    op.drop_table("clusters")
    op.drop_index("bmcs_by_cluster", table_name="bmcs")
    op.drop_table("bmcs")
