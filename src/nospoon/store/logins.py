"""Logins at clouds, encrypted, by the names that hosts have for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, delete, insert, select

from nospoon.store import tables

logins = tables.cloud_logins


def put(connection: Connection, settings: Mapping[str, bytes]) -> None:
    """Remember these; one of a name that is there already says the same."""
    known = set(connection.execute(select(logins.c.name)).scalars())
    for name in sorted(settings.keys() - known):
        connection.execute(insert(logins).values(name=name, settings=settings[name]))


def all_of_them(connection: Connection) -> dict[str, bytes]:
    return {row.name: row.settings for row in connection.execute(select(logins))}


def keep(connection: Connection, names: Collection[str]) -> None:
    """Forget all but these."""
    known = set(connection.execute(select(logins.c.name)).scalars())
    for name in sorted(known.difference(names)):
        connection.execute(delete(logins).where(logins.c.name == name))
