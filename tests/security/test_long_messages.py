"""What a member's cloud or Ironic says while an operation goes on is kept as its events, failures
and journal: some of it. An Ironic that protected a hundred nodes with a reason of 4 MiB each took
2.5 GB of the daemon's memory, and as much of its disk, with one `up`.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tests.engine.test_execute import FAST, Bench, Moody

from nospoon.control.operations import operations
from nospoon.control.operations.operations import Ended, Operations, Running
from nospoon.engine import execute
from nospoon.engine.progress import Phase
from nospoon.errors import ProviderError
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.model.resources.tags import OwnerTag
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.telling import tell
from nospoon.store.database import Database

LONG = "x" * (1 << 20)


class Talking(Moody):
    """Says more than it should."""

    async def create(self, resource: Resource, tag: OwnerTag) -> None:
        for number in range(execute.MOST_NOTES + 5):
            tell(f"{number} {LONG}")
        await super().create(resource, tag)


async def test_messages_of_an_operation_are_cut() -> None:
    bench = Bench(1, limits=FAST)
    place = next(key for key in bench.drivers if key[1] is Kind.MACHINE)
    bench.drivers[place] = Talking(bench.drivers[place], [ProviderError(LONG)] * 10)
    outcome = await bench.run(await bench.plan())
    (failure,) = outcome.failures
    assert failure.message == "x" * execute.LONGEST_MESSAGE
    assert max(len(each.message) for each in bench.told) == execute.LONGEST_MESSAGE
    assert max(map(len, bench.journal.errors.values())) == execute.LONGEST_MESSAGE
    phases = [each.phase for each in bench.told]
    assert phases.count(Phase.NOTE) == execute.MOST_NOTES


async def test_an_operation_ends_with_a_part_of_a_long_error(tmp_path: Path) -> None:
    async def failing(running: Running) -> Ended:
        raise ProviderError(f"{running.row.kind} {LONG}")

    database = Database.open(f"sqlite:///{tmp_path}/store.db")
    try:
        async with Tasks("test") as tasks:
            all_ = Operations(database, tasks, lambda: 0.0, after=lambda: None)
            row = await all_.start("up", cluster_id=uuid4(), cluster="c", owner=0, work=failing)
            last = [each async for some in all_.follow(row.id) for each in some][-1]
        assert last["message"] == f"up {LONG}"[: operations.LONGEST_END]
    finally:
        database.close()
