"""The desired state of a cluster as a value, encrypted: its file is not read again for it.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("clusters", sa.Column("desired", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("clusters", "desired")
