"""What one user reads costs no other user the store's one thread: only rows of that user's, and
few columns of everybody's.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, text
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.plan.addresses.allocate import Allocations, Endpoint
from nospoon.store import clusters as stored
from nospoon.store.clusters import ClusterRow
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


async def test_neither_a_plan_nor_an_up_decodes_what_others_have(tmp_path: Path) -> None:
    """What they were given is rows, of which those are read that may be in the way."""
    many = [
        ClusterRow(
            uuid4(), f"theirs-{number}", OTHER, 1, "f", "text", {},
            Allocations(endpoints={"n": Endpoint("127.0.0.2", 7000 + number, 0)}), 1.0,
        )
        for number in range(1000)
    ]  # fmt: skip

    def store(connection: Connection) -> None:
        for row in many:
            stored.save(connection, row)
        # whoever decodes one finds out
        connection.execute(text("UPDATE clusters SET allocations = '[]', uploads = '{}'"))

    async with a_daemon(tmp_path) as asked:
        await asked.daemon.parts.database.call(store)
        body = {"file": "c.yaml", "text": MINE}
        assert (await asked.ask(OWNER, "POST", "/v1/plan", body)).status == 200
        assert (await asked.up(OWNER, MINE)).status == 202
        (bmc,) = (await asked.ask(OWNER, "GET", "/v1/bmcs")).json
        assert bmc["cluster"] == "mine"


async def test_a_plan_decodes_no_record_of_anothers_bmc(tmp_path: Path) -> None:
    """Also where their sockets are beside those of the plan."""

    def make_unreadable(connection: Connection) -> None:
        connection.execute(text("UPDATE bmcs SET record = '[]'"))

    port = "bmc: {redfish_port: 8123}\n"
    async with a_daemon(tmp_path) as asked:
        assert (await asked.up(OWNER, port + THEIRS)).status == 202
        await asked.daemon.parts.database.call(make_unreadable)
        for uid in (OWNER, OTHER):
            body = {"file": "c.yaml", "text": MINE}
            assert (await asked.ask(uid, "POST", "/v1/plan", body)).status == 200
        refused = await asked.ask(
            OTHER, "POST", "/v1/plan", {"file": "c.yaml", "text": port + MINE}
        )
        assert "another user's BMCs answer Redfish at" in refused.body.decode()


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
