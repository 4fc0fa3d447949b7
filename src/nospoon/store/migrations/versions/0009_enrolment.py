"""The Ironic in which a cluster may have nodes, encrypted: it may have a password.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("clusters", sa.Column("enrolled", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("clusters", "enrolled")
