"""Delete rows of a BMC's table of users that stand for the node's own account, number 2.

An empty PATCH of that account stored such a row, with a placeholder as its password, which then
replaced the password of the cluster file.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

OWNER = 2
NODES = sa.table("nodes", sa.column("uuid", sa.String), sa.column("runtime", sa.JSON))


def upgrade() -> None:
    connection = op.get_bind()
    for uuid, runtime in connection.execute(sa.select(NODES.c.uuid, NODES.c.runtime)).all():
        kept = without_owner(runtime)
        if kept != runtime:
            change = sa.update(NODES).where(NODES.c.uuid == uuid).values(runtime=kept)
            connection.execute(change)


def without_owner(runtime: dict[str, Any]) -> dict[str, Any]:
    """The stored state of a BMC without rows of the node's own account."""
    settings = runtime.get("settings", {})
    users = [each for each in settings.get("users", ()) if each["id"] != OWNER]
    if len(users) == len(settings.get("users", ())):
        return runtime
    return {**runtime, "settings": {**settings, "users": users}}


def downgrade() -> None:
    """The rows are not needed by any version."""
