"""An id that a cluster leaves may be another user's next: what was begun for the first ends."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from tests.security.asked import OTHER, OWNER, a_daemon

from nospoon.control.operations.operations import Ended, Running
from nospoon.errors import Conflict
from nospoon.store import clusters as stored
from nospoon.store.operations import OperationState

ID = UUID("5d0f2f0e-0000-4000-8000-00000000000a")
FILE = "cluster: {0}\nid: {1}\nhosts: {{sim: simulated}}\nnodes: [{{name: n}}]\n"


async def test_a_snapshot_that_was_looked_at_is_not_taken_of_another_users_machines(
    tmp_path: Path,
) -> None:
    """Its hosts had the caller wait for as long as they liked: a restore that had begun switched
    off the machines that had these names and the id by then, whoever owned them.
    """
    async with a_daemon(tmp_path) as asked:
        await asked.up(OWNER, FILE.format("mine", ID))
        database = asked.daemon.parts.database
        before = await database.read(stored.outline, owner=OWNER, name="mine")
        assert before is not None
        gone = await asked.ask(OWNER, "POST", "/v1/clusters/mine/down", {})
        await asked.finished(OWNER, gone.json["id"])
        await asked.up(OTHER, FILE.format("theirs", ID))
        theirs = await database.read(stored.outline, owner=OTHER, name="theirs")
        assert theirs is not None
        assert theirs.id == before.id
        begun = list[Running]()

        async def work(running: Running) -> Ended:
            begun.append(running)
            return Ended(OperationState.DONE, "")

        snapshots = asked.daemon.control.snapshots
        with pytest.raises(Conflict, match="cluster mine was changed meanwhile"):
            await snapshots._start("restore", before, work)
        row = await snapshots._start("restore", theirs, work)
        await asked.finished(OTHER, str(row.id))
        assert [each.row.owner for each in begun] == [OTHER]
