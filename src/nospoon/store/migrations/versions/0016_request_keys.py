"""Recipe sets by the key of their request, which each submission looks for.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_index("recipe_sets_by_key", "recipe_sets", ["uid", "key"])


def downgrade() -> None:
    op.drop_index("recipe_sets_by_key", "recipe_sets")
