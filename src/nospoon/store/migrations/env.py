"""Alembic's entry: migrations run on the connection that the store hands in."""

from __future__ import annotations

from alembic import context

from nospoon.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
