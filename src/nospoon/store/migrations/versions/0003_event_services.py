"""Redfish event services and their subscriptions.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "event_services",
        sa.Column("place", sa.String(), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("place", "account"),
    )


def downgrade() -> None:
    op.drop_table("event_services")
