"""Logins at clouds in which machines are made, encrypted, by the names that hosts have for them.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.create_table(
        "cloud_logins",
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("settings", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("cloud_logins")
