"""A store of an earlier version, with its cluster up, is this version's.

`earlier` has what a version of schema 0010 left (commit ae550098, before connections declared) of
two simulated nodes, one of which is on: its database as SQL, its key and the host's memory.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import MetaData, create_engine, insert, select, text
from tests.control.in_process import HOST, AskingDaemon, a_control_plane

from nospoon.model.boot import BootDevice, OverrideEnabled
from nospoon.model.machine import PowerState
from nospoon.store.migrations.run import upgrade
from nospoon.store.operations import OperationState
from nospoon.testing.postgresql import PostgreSql

EARLIER = Path(__file__).parent / "earlier"
TEXT = (EARLIER / "c.yaml").read_text()
PASSWORD, ROOT = "uq1qNTOkAtLRzOKD", 0
SCHEMA = "0010"


@dataclass(frozen=True)
class Place:
    """The directory of a daemon that was of the earlier version, and where its database is."""

    directory: Path
    environment: dict[str, str]

    def a_daemon(self) -> AbstractAsyncContextManager[AskingDaemon]:
        return a_control_plane(self.directory, **self.environment)


def moved(database: Path, server: PostgreSql) -> str:
    """The URL of a database that the earlier version would have had in PostgreSQL: the tables are
    its own migrations', and their rows those of the other database.
    """
    name = f"t{uuid4().hex}"
    admin = create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    url, of_it = server.url(name), MetaData()
    source, target = create_engine(f"sqlite:///{database}"), create_engine(url)
    with source.connect() as read, target.begin() as written:
        upgrade(written, SCHEMA)
        of_it.reflect(written)
        for table in of_it.sorted_tables:
            if table.name != "alembic_version" and (rows := read.execute(select(table)).all()):
                written.execute(insert(table), [dict(row._mapping) for row in rows])
    source.dispose()
    target.dispose()
    database.unlink()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    state, environment = tmp_path / "state", dict[str, str]()
    (state / "simulated").mkdir(parents=True)
    with sqlite3.connect(state / "nospoon.db") as database:
        database.executescript((EARLIER / f"{SCHEMA}.sql").read_text())
    database.close()
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("postgresql")
        environment["NOSPOON_DATABASE"] = moved(state / "nospoon.db", server)
    shutil.copy(EARLIER / "nospoon.key", state)
    (state / "nospoon.key").chmod(0o600)
    memory = (EARLIER / f"{HOST}.json").read_text().replace("POOLS", f"{tmp_path}/pool")
    (state / "simulated" / f"{HOST}.json").write_text(memory)
    return Place(tmp_path, environment)


def boots(asking: AskingDaemon) -> dict[str, tuple[PowerState, int]]:
    """Whether each machine is on, and how often it was started since it was made."""
    return {
        each.node: (asking.host.state(each.uuid).power, asking.host.state(each.uuid).boots)
        for each in asking.daemon.parts.fleet.all()
    }


async def test_its_cluster_is_up_as_it_was_and_the_next_up_has_nothing_to_do(place: Place) -> None:
    async with place.a_daemon() as asking:
        before = asking.made()
        plan = await asking.plan(TEXT, uid=ROOT)
        assert (plan.empty, plan.remembers) == (True, False)
        assert boots(asking) == {"a": (PowerState.ON, 1), "b": (PowerState.OFF, 0)}
        assert {f"machine/{each}" for each in "ab"} < before == asking.made()


async def test_its_bmcs_keep_their_accounts_and_what_they_were_set_to(place: Place) -> None:
    async with place.a_daemon() as asking:
        nodes = {each.node: each.uuid for each in asking.daemon.parts.fleet.all()}
        served = asking.daemon.parts.bmcs.status(nodes["b"])
        assert served is not None
        assert served.aggregate.runtime.override.target is BootDevice.NETWORK
        assert served.aggregate.runtime.override.enabled is OverrideEnabled.ONCE
        kept = (await asking.nodes(uid=ROOT))["b"]
        assert asking.daemon.parts.cipher.decrypt(kept.password) == PASSWORD


async def test_the_migration_is_whole(place: Place) -> None:
    async with place.a_daemon() as asking:
        await asking.up(TEXT.replace("1GiB", "2GiB"), uid=ROOT)
        assert (await asking.plan(TEXT.replace("1GiB", "2GiB"), uid=ROOT)).empty
    async with place.a_daemon() as asking:  # which reads no file of before
        assert (await asking.plan(TEXT.replace("1GiB", "2GiB"), uid=ROOT)).empty
        assert (await asking.down(uid=ROOT)).state is OperationState.DONE
        assert asking.made() == set()
