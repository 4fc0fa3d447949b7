"""A lab with thousands of registered machines is shown while others have their turns."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import cast
from uuid import uuid4

import msgspec

from nospoon.api import long_answers
from nospoon.control.labs.known import KnownLabs
from nospoon.control.labs.service import Labs
from nospoon.lab.scheduler import Scheduler
from nospoon.model.lab import Lab, Registered
from nospoon.model.principal import Principal
from nospoon.runtime.reach import Reach
from nospoon.runtime.slices import Slices
from nospoon.runtime.tasks import Tasks

MACHINES = 50
OWNER = 1001


async def test_its_machines_are_made_rows_of_in_slices() -> None:
    scheduler = Scheduler()
    labs = KnownLabs(scheduler, lambda: None)
    machines = tuple(Registered(f"m{n}", address="192.0.2.1") for n in range(MACHINES))
    labs.put(uuid4(), OWNER, "c", [Lab("dev", machines=machines)])
    (known,) = labs.known.values()
    board = SimpleNamespace(
        scheduler=scheduler, known=labs.known, slices=Slices(seconds=0), out=lambda _: []
    )

    async def find(*_: object) -> tuple[object, None]:
        return known, None

    turns = [0]

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    parts = SimpleNamespace(board=board, _lab=find, registered=SimpleNamespace(reach=Reach()))
    service = cast("Labs", parts)
    parts._machine_row = partial(Labs._machine_row, service)
    async with Tasks("test") as tasks:
        other = tasks.start(others(), name="others")
        shown = await Labs.show(service, Principal(OWNER), "dev")
        other.cancel()
    assert turns[0] >= MACHINES
    assert [each.machine for each in shown.machines] == [each.name for each in machines]
    answer = await long_answers.lab(shown)
    assert bytes(answer.body) == msgspec.json.encode(shown)
