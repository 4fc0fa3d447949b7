"""The event logs of BMCs.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "bmc_log",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["uuid"], ["nodes.uuid"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("uuid", "number"),
    )


def downgrade() -> None:
    op.drop_table("bmc_log")
