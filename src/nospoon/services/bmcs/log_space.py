"""What the event logs of all BMCs of one owner take of this process's memory."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from nospoon.bmc.log import Log, Record

MOST = 500_000
"""Records of one owner: some 100 MiB. A thousand BMCs have full logs then."""
FEWEST = 16
"""That each log keeps, however many BMCs its owner has."""


class LogSpace:
    """Counts records, by owner."""

    def __init__(self) -> None:
        self._of_owner = Counter[int]()
        self._held: dict[UUID, tuple[int, int]] = {}

    def hold(self, machine: UUID, owner: int, log: Log) -> Record | None:
        """The log is as it is now. Returns the record that gives way to the newest, where the owner
        has too many.
        """
        self.release(machine)
        given = None
        if self._of_owner[owner] + len(log.records) > MOST and len(log.records) > FEWEST:
            given = log.give_way()
        if count := len(log.records):
            self._held[machine] = owner, count
            self._of_owner[owner] += count
        return given

    def release(self, machine: UUID) -> None:
        """It has none any more."""
        owner, count = self._held.pop(machine, (0, 0))
        if count:
            self._of_owner[owner] -= count
            if not self._of_owner[owner]:
                del self._of_owner[owner]
