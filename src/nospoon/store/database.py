"""One database, one writer thread: `await database.call(function, ...)` is one transaction.

SQLite runs in WAL mode with `synchronous=NORMAL`: a commit survives the death of the process at
any moment, and that of the machine but for the last instants, after which start-up re-observes.
Any SQLAlchemy URL will do; PostgreSQL is the other one that is meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, create_engine, event, insert, select
from sqlalchemy.engine.interfaces import DBAPIConnection

from nospoon.store import tables

P = ParamSpec("P")
R = TypeVar("R")


class Database:
    """The store's connection. Open it once; close it at the end."""

    def __init__(self, engine: Engine, deployment: str) -> None:
        self._engine = engine
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self.deployment = deployment

    @classmethod
    def open(cls, url: str) -> Database:
        """Connect, bring the schema up to date, and know the deployment's id."""
        engine = create_engine(url, connect_args=_connect_args(url))
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _sqlite_pragmas)
        with engine.begin() as connection:
            migrate(connection)
        with engine.begin() as connection:
            return cls(engine, _deployment(connection))

    async def call(
        self,
        function: Callable[Concatenate[Connection, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Run a function of this package in one transaction, in the writer's thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, lambda: self.call_now(function, *args, **kwargs)
        )

    def call_now(
        self,
        function: Callable[Concatenate[Connection, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """The same from the calling thread: for start-up, where no loop runs yet."""
        with self._engine.begin() as connection:
            return function(connection, *args, **kwargs)

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        self._engine.dispose()


def _connect_args(url: str) -> dict[str, object]:
    return {"check_same_thread": False} if url.startswith("sqlite") else {}


def _sqlite_pragmas(connection: DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=NORMAL",
        "foreign_keys=ON",
        "busy_timeout=5000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def migrate(connection: Connection) -> None:
    """Bring the schema to this version's."""
    config = Config()
    config.set_main_option("script_location", "nospoon:store/migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _deployment(connection: Connection) -> str:
    known = connection.execute(select(tables.deployment.c.id)).scalar()
    if known is not None:
        return str(known)
    made = uuid4().hex
    connection.execute(insert(tables.deployment).values(id=made))
    return made
