"""The key K_G of a node's BMC, from the cluster file.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("k_g", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "k_g")
