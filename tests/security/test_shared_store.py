"""What one user reads costs no other user the store's one thread: only rows of that user's, and
few columns of everybody's.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import Connection, text
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.control.planning.saved import refuse_collisions, save
from nospoon.errors import Stale
from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow, Holding
from nospoon.store.database import Database

MINE = "cluster: mine\nhosts: {s: simulated}\nnodes: [{}]\n"
THEIRS = "cluster: theirs\nhosts: {s: simulated}\nnodes: [{count: 2}]\n"


def _make_unreadable(connection: Connection) -> None:
    """Whoever decodes a whole node of a cluster `theirs`, or that cluster itself, finds out."""
    theirs = "(SELECT id FROM clusters WHERE name = 'theirs')"
    connection.execute(text(f"UPDATE nodes SET runtime = '[]' WHERE cluster_id IN {theirs}"))


async def test_what_all_users_share_decodes_no_nodes_of_others(tmp_path: Path) -> None:
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, THEIRS)).status == 202
        assert (await asked.up(OTHER, MINE)).status == 202
        await asked.daemon.parts.database.call(_make_unreadable)
        about = (await asked.ask(OTHER, "GET", "/v1/daemon")).json
        assert (about["clusters"], about["nodes"]) == (2, 3)
        (bmc,) = (await asked.ask(OTHER, "GET", "/v1/bmcs")).json
        assert bmc["cluster"] == "mine"
        assert bmc["password"]
        assert len((await asked.ask(OWNER, "GET", "/v1/bmcs?cluster=theirs")).json) == 2
        body = {"file": "c.yaml", "text": MINE}
        assert (await asked.ask(OTHER, "POST", "/v1/plan", body)).status == 200


async def test_an_up_decodes_what_others_have_only_where_that_came_meanwhile(
    tmp_path: Path,
) -> None:
    """Writes of all users wait for the transaction in which a cluster is remembered."""
    database = Database.open(f"sqlite:///{tmp_path}/s")
    place = Allocations(endpoints={"n": Endpoint("127.0.0.1", 6230, 0)})
    other = ClusterRow(uuid4(), "theirs", OTHER, 1, "f", "text", {}, Allocations(), 1.0)
    mine = replace(other, id=uuid4(), name="mine", owner=OWNER, allocations=place)
    later = replace(mine, id=uuid4(), name="later", owner=OTHER)

    def spoil(connection: Connection) -> None:
        connection.execute(text("UPDATE clusters SET allocations = '[]' WHERE name = 'theirs'"))

    try:
        await database.call(stored.save, other)
        compared = refuse_collisions(mine, await database.read(stored.holdings))
        await database.call(spoil)
        remember = partial(save, limited=True, compared=compared)
        await database.call(remember, mine, [], [])
        await database.call(stored.remove, mine.id)
        await database.call(stored.save, later)
        with pytest.raises(Stale, match="took the same addresses"):
            await database.call(remember, mine, [], [])
        await database.call(stored.save, replace(later, generation=2, allocations=Allocations()))
        await database.call(remember, mine, [], [])
        with pytest.raises(Stale, match="took the same addresses"):
            refuse_collisions(later, list(await database.read(_readable)))
    finally:
        database.close()


def _readable(connection: Connection) -> list[Holding]:
    ids = [each.id for each in stored.outlines(connection) if each.name != "theirs"]
    return stored.holdings(connection, ids=ids)


async def test_reads_whose_caller_left_are_not_run_and_changes_are(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/s")
    go, ran = threading.Event(), list[str]()

    def wait(_: Connection) -> None:
        go.wait()

    def run(_: Connection, what: str) -> None:
        ran.append(what)

    async with asyncio.TaskGroup() as group:
        group.create_task(database.call(wait))
        group.create_task(database.read(wait))
        left = [
            group.create_task(database.read(run, "read")),
            group.create_task(database.call(run, "change")),
        ]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        go.set()
    await database.read(run, "last")
    database.close()
    assert ran == ["change", "last"]
