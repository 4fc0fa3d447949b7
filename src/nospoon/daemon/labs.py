"""The board of labs, over what makes and removes machines for it, and its webhooks."""

from __future__ import annotations

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


def board_over(
    racks: Racks, hooks: Webhooks, *, tasks: Tasks, workers: Workers, clock: Clock
) -> Board:
    """It keeps its records in the store of its racks. `workers`: read and write records."""

    def notify(known: KnownLab, found: RecipeSet, event: Happened) -> None:
        if known.lab.webhooks:
            hooks.send(known.key, known.lab.webhooks, notice(known, found, event, clock()))

    return Board(
        database=racks.database,
        cipher=racks.cipher,
        tasks=tasks,
        racks=racks,
        workers=workers,
        clock=clock,
        notify=notify,
    )
