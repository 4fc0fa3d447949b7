"""Upgrades a database that an older version of nospoon wrote."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from nospoon import __version__
from nospoon.errors import UsageError


def config(connection: Connection) -> Config:
    """Of Alembic, for migrations on this connection."""
    made = Config()
    made.set_main_option("script_location", "nospoon:store/migrations")
    made.attributes["connection"] = connection
    return made


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Raises `UsageError` for a database of a newer version."""
    try:
        command.upgrade(config(connection), revision)
    except CommandError as error:
        raise UsageError(
            "the database was written by a newer version of nospoon, which this version "
            f"({__version__}) cannot read",
            hint="Upgrade nospoon, or restore the database from a backup of this version.",
        ) from error
