"""User ids beyond 2^31 - 1, and generations: PostgreSQL's integers have 32 bits with a sign.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

COLUMNS = (
    ("clusters", "uid"),
    ("clusters", "generation"),
    ("operations", "uid"),
    ("images", "uid"),
    ("recipe_sets", "uid"),
)


def upgrade() -> None:
    _alter(sa.Integer(), sa.BigInteger())


def downgrade() -> None:
    _alter(sa.BigInteger(), sa.Integer())


def _alter(before: sa.types.TypeEngine[int], after: sa.types.TypeEngine[int]) -> None:
    """SQLite's integers have 64 bits whatever their column says (sqlite.org/datatype3.html)."""
    if op.get_bind().dialect.name == "sqlite":
        return
    for table, column in COLUMNS:
        op.alter_column(table, column, existing_type=before, type_=after)
