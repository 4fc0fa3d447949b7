"""How much users have at once of recipe sets that have not ended, and how much they may."""

from __future__ import annotations

from collections.abc import Sequence

from nospoon.errors import Conflict
from nospoon.lab.work import RecipeSet
from nospoon.model.principal import OwnerId

MOST_QUEUED = 10_000
"""Sets of one user that have not ended."""
MOST_WEIGHT = 64 << 20
"""Bytes of the sets of one user that have not ended: kickstarts, and what each recipe may have."""


class Loads:
    """`weights`: owner and bytes of each set, by its id."""

    def __init__(self) -> None:
        self.weights: dict[str, tuple[OwnerId, int]] = {}
        self._load: dict[OwnerId, tuple[int, int]] = {}
        """Sets that have not ended, and their bytes, of each user who has any."""

    def add(self, found: RecipeSet) -> None:
        owner, weight = self.weights[found.id] = found.submitter, _weight(found)
        self._weigh(owner, 1, weight)

    def drop(self, set_id: str) -> None:
        """It has ended, and that is stored."""
        if (noted := self.weights.pop(set_id, None)) is not None:
            self._weigh(noted[0], -1, -noted[1])

    def _weigh(self, owner: OwnerId, amount: int, weight: int) -> None:
        before = self._load.get(owner, (0, 0))
        self._load[owner] = (before[0] + amount, before[1] + weight)
        if not self._load[owner][0]:
            del self._load[owner]

    def require_room(self, owner: OwnerId, new: Sequence[RecipeSet]) -> None:
        """Raises `Conflict` where a user may not have these besides."""
        amount, weight = self._load.get(owner, (0, 0))
        if amount + len(new) > MOST_QUEUED:
            raise Conflict(f"{amount} recipe sets of yours have not ended: {MOST_QUEUED} may")
        weight += sum(map(_weight, new))
        if weight > MOST_WEIGHT:
            raise Conflict(
                f"your recipe sets that have not ended would take {weight >> 20} MiB, with their "
                f"kickstarts and the machines that they may have: {MOST_WEIGHT >> 20} MiB may",
                hint="Submit the next ones when some have ended.",
            )


def _weight(found: RecipeSet) -> int:
    """Bytes that a set takes, by and large."""
    return 1024 + sum(
        1024
        + 4 * (len(run.asked.kickstart) + len(run.asked.cmdline))
        + sum(128 + 16 * (len(o.machines) + 8 * len(o.sizes)) for o in run.options.values())
        for run in found.runs
    )
