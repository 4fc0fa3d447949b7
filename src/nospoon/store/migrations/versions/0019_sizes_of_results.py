"""Characters of results of operations, which were counted in all of them each time that one ended;
the journal by operations.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

OPERATIONS = sa.table("operations", sa.column("result", sa.JSON), sa.column("size", sa.BigInteger))


def upgrade() -> None:
    size = sa.Column("size", sa.BigInteger(), nullable=False, server_default="0")
    op.add_column("operations", size)
    length = sa.func.length(sa.cast(OPERATIONS.c.result, sa.Text))
    op.get_bind().execute(sa.update(OPERATIONS).values(size=length))
    op.create_index("operations_of_user", "operations", ["uid", "created", "id", "size", "state"])
    op.create_index("journal_of_operation", "journal", ["operation_id"])


def downgrade() -> None:
    op.drop_index("journal_of_operation", "journal")
    op.drop_index("operations_of_user", "operations")
    op.drop_column("operations", "size")
