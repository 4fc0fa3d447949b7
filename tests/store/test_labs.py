"""Recipe sets and states of labs in the store, on both databases."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from nospoon.plan.addresses.allocate import Allocations
from nospoon.store import clusters, labs
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database
from nospoon.store.labs import SetRow

ROW = SetRow("1.1", 1, 1, 1000, "ada", "1000:c/dev", "queued", 10.0, b"record", "key", [])


async def test_sets_are_kept_changed_and_forgotten(database: Database) -> None:
    assert await database.call(labs.next_numbers) == (1, 1)
    history = [(10.0, -1, "queued", ""), (11.0, 0, "panic", "é \x1b")]
    second = replace(ROW, id="1.2", number=2, key="", state="running", history=history)
    await database.call(labs.put, [ROW, second])
    assert await database.call(labs.next_numbers) == (2, 3)
    assert await database.read(labs.find, "1.2") == second
    assert await database.read(labs.by_key, submitter=1000, key="key") == [ROW]
    assert await database.read(labs.by_key, submitter=1001, key="key") == []
    ended = replace(ROW, state="ended", record=b"other")
    await database.call(labs.put, [ended])
    assert await database.call(labs.active) == [second]
    assert await database.read(labs.newest_ended, most=9, submitter=None) == [ended]
    assert await database.read(labs.newest_ended, most=9, submitter=1) == []
    assert await database.read(labs.ended_before, 10.5, most=9) == [ended], "the other runs"
    assert await database.read(labs.ended_before, 10.0, most=9) == []
    await database.call(labs.forget, ["1.1"])
    assert await database.read(labs.find, "1.1") is None
    assert await database.read(labs.find, "1.2") == second


async def test_sets_are_old_by_when_they_ended(database: Database) -> None:
    """A lease may take longer than sets that ended are shown."""
    history = [(10.0, -1, "queued", ""), (70.0, -1, "ended", "completed")]
    long = replace(ROW, state="ended", history=history)
    short = replace(ROW, id="2.1", request=2, number=2, key="", state="ended",
                    history=[(20.0, -1, "ended", "failed")])  # fmt: skip
    last = replace(ROW, id="3.1", request=3, number=3, key="")
    await database.call(labs.put, [long, short, last])
    listed = await database.read(labs.newest_ended, most=9, submitter=None, owner="ada")
    assert listed == [replace(long, history=[]), replace(short, history=[])], "guests write those"
    assert await database.read(labs.newest_ended, most=9, submitter=None, owner="bob") == []
    assert await database.read(labs.ended_before, 70.0, most=1) == [short]
    assert await database.read(labs.ended_before, 70.5, most=1) == [long]
    assert await database.read(labs.ended_before, 70.5, most=9) == [long, short]


async def test_states_of_labs_leave_with_their_cluster(database: Database) -> None:
    row = ClusterRow(uuid4(), "c", 1000, 1, "c.yaml", "", {}, Allocations(), 1.0)
    await database.call(clusters.save, row)
    await database.call(labs.put_state, row.id, "dev", "", {"drained": True})
    await database.call(labs.put_state, row.id, "dev", "m1", {"failures": 1})
    await database.call(labs.put_state, row.id, "dev", "m1", {"failures": 2})
    assert await database.call(labs.states) == {
        (row.id, "dev", ""): {"drained": True},
        (row.id, "dev", "m1"): {"failures": 2},
    }
    await database.call(clusters.remove, row.id)
    assert await database.call(labs.states) == {}
