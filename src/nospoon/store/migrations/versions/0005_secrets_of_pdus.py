"""Community and pass phrases of the PDU that feeds a node, from the cluster file.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("nodes", sa.Column("pdu_secret", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("nodes", "pdu_secret")
