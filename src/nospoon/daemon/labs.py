"""The board of labs, over what makes and removes machines for it, and its webhooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import uuid4

from nospoon.control.labs.access import KnownLab
from nospoon.control.labs.board import Board
from nospoon.control.labs.racks import Racks
from nospoon.control.labs.views import notice
from nospoon.control.labs.webhooks import Webhooks
from nospoon.lab.effects import Happened
from nospoon.lab.work import RecipeSet
from nospoon.runtime.clock import Clock
from nospoon.runtime.tasks import Tasks
from nospoon.runtime.workers import Workers
from nospoon.store.lab_notices import Notice


@dataclass(frozen=True, slots=True)
class HooksOfLabs:
    """Each lab's, as its file has them when an event is sent."""

    webhooks: Webhooks
    clock: Clock

    def notice(self, known: KnownLab, found: RecipeSet, event: Happened) -> Notice | None:
        if not known.lab.webhooks:
            return None
        now = self.clock()
        body = json.dumps(notice(known, found, event, now))
        return Notice(str(uuid4()), known.key, now, body)

    def send(self, known: KnownLab, notice: Notice) -> None:
        self.webhooks.send(known.lab.webhooks, notice)


def board_over(
    racks: Racks, hooks: Webhooks, *, tasks: Tasks, workers: Workers, clock: Clock
) -> Board:
    """It keeps its records in the store of its racks. `workers`: read and write records."""
    return Board(
        database=racks.database,
        cipher=racks.cipher,
        tasks=tasks,
        racks=racks,
        workers=workers,
        clock=clock,
        hooks=HooksOfLabs(hooks, clock),
    )
