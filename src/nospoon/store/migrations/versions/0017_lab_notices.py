"""Events of labs that webhooks have not got yet.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "lab_notices",
        sa.Column("number", sa.Integer(), primary_key=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("lab", sa.String(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("body", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("lab_notices")
