"""Recipe sets of labs, and what is known of labs and their registered machines.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "recipe_sets",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("request", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, unique=True),
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("lab", sa.String(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("key", sa.String(128)),
        sa.Column("history", sa.JSON(), nullable=False),
    )
    op.create_index("recipe_sets_by_request", "recipe_sets", ["request"])
    op.create_index("recipe_sets_by_state", "recipe_sets", ["state"])
    op.create_table(
        "lab_states",
        sa.Column(
            "cluster_id",
            sa.String(36),
            sa.ForeignKey("clusters.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("lab", sa.String(), primary_key=True),
        sa.Column("machine", sa.String(), primary_key=True),
        sa.Column("record", sa.JSON(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("lab_states")
    op.drop_table("recipe_sets")
