"""The schema of the store: a new database gets it whole, an older one by migrations.

Most starts of a daemon find it as it should be. They, and the first one, do without Alembic, whose
import takes a tenth of a start.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from nospoon.store import tables

HEAD = "0021"
"""The newest revision below `migrations/versions`, whose schema `tables` describes."""

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Where Alembic keeps the revision of a database (alembic.sqlalchemy.org, tutorial)."""


def bring_up_to_date(connection: Connection) -> None:
    """Raises `UsageError` for a database of a newer version of nospoon."""
    known = inspect(connection).get_table_names()
    if not known:
        _create(connection)
    elif _version.name not in known or _revisions(connection) != [HEAD]:
        from nospoon.store.migrations.run import upgrade  # noqa: PLC0415  (heavy: if there is need)

        upgrade(connection)


def _create(connection: Connection) -> None:
    """All or nothing. SQLite's driver begins no transaction for a schema on its own."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    tables.metadata.create_all(connection, checkfirst=False)
    _version.create(connection)
    connection.execute(insert(_version).values(version_num=HEAD))


def _revisions(connection: Connection) -> list[str]:
    return list(connection.execute(select(_version.c.version_num)).scalars())
