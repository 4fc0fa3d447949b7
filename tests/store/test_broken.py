"""A database that stops working while it is used."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError

from nospoon.errors import OutOfSpace, ProviderError
from nospoon.store.database import Database, _why


def fill(connection: Connection) -> None:
    """As on a disk that is full: SQLite says the same of a file that may not grow."""
    pages = connection.execute(text("PRAGMA page_count")).scalar_one()
    connection.execute(text(f"PRAGMA max_page_count = {pages}"))
    connection.execute(text("CREATE TABLE more (content BLOB)"))
    connection.execute(text("INSERT INTO more VALUES (zeroblob(1000000))"))


async def test_a_full_disk_is_named_in_our_words(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        with pytest.raises(OutOfSpace) as caught:
            await database.call(fill)
    finally:
        database.close()
    assert caught.value.message == "the database does not work: its disk is full"
    assert "run the same command again" in caught.value.hint


async def test_a_damaged_database_says_how_it_is_restored(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'store.db'}")

    def damage(connection: Connection) -> None:
        connection.execute(text("PRAGMA writable_schema = 1"))
        connection.execute(text("UPDATE sqlite_master SET rootpage = 9999 WHERE name = 'clusters'"))
        connection.execute(text("PRAGMA writable_schema = RESET"))
        connection.execute(text("SELECT count(*) FROM clusters"))

    try:
        with pytest.raises(ProviderError) as caught:
            await database.call(damage)
    finally:
        database.close()
    assert caught.value.message == "the database does not work: it is damaged"
    assert "nospoon recover" in caught.value.hint


class OfPostgres(Exception):
    """What psycopg raises."""

    def __init__(self, message: str, sqlstate: str | None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("message", "state", "why"),
    [
        ("could not extend file: No space left on device", "53100", "its disk is full"),
        ("terminating connection", "57P01", "its server shuts down, or starts"),
        ("something new", "XX000", "PostgreSQL refuses it (SQLSTATE XX000)"),
        ('connection failed: FATAL:  role "x" does not exist', None,
         'PostgreSQL refuses it: role "x" does not exist'),
        ("connection refused", None, "no PostgreSQL server answers"),
    ],
)  # fmt: skip
def test_errors_of_postgresql_are_named(message: str, state: str | None, why: str) -> None:
    assert _why(DatabaseError("SELECT 1", None, OfPostgres(message, state))) == why
