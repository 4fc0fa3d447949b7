"""Name power restore policies as the cluster file does, which now sets the one of each BMC.

All began with "always-on"; as nothing tells whether a client set that, it is forgotten.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

NODES = sa.table("nodes", sa.column("uuid", sa.String), sa.column("runtime", sa.JSON))


def upgrade() -> None:
    _change(with_policy_of_file)


def downgrade() -> None:
    _change(with_policy_of_bmc)


def _change(rename: Callable[[dict[str, object]], dict[str, object]]) -> None:
    connection = op.get_bind()
    for uuid, runtime in connection.execute(sa.select(NODES.c.uuid, NODES.c.runtime)).all():
        renamed = rename(runtime)
        if renamed != runtime:
            change = sa.update(NODES).where(NODES.c.uuid == uuid).values(runtime=renamed)
            connection.execute(change)


def with_policy_of_file(runtime: dict[str, Any]) -> dict[str, Any]:
    """The stored state of a BMC with the policy that a client set, if it did."""
    settings = dict(runtime.get("settings", {}))
    match settings.get("policy"):
        case "always-off":
            settings["policy"] = "off"
        case "always-on":
            del settings["policy"]
        case _:
            return runtime
    return {**runtime, "settings": settings}


def with_policy_of_bmc(runtime: dict[str, Any]) -> dict[str, Any]:
    """The stored state of a BMC as versions before this one read it."""
    settings = dict(runtime.get("settings", {}))
    if settings.get("policy") not in {"on", "off"}:
        return runtime
    return {**runtime, "settings": {**settings, "policy": f"always-{settings['policy']}"}}
