"""How long reboots of a guest wait that come one soon after the other."""

from __future__ import annotations

PAUSES = (0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before reboots of a guest that ran for less than `RUNS`, one after the other: each costs
its host half a second of a processor.
"""
RUNS = 30.0


class Reboots:
    """How long each waits. `began`: when the guest did, by the clock of all arguments."""

    def __init__(self, began: float) -> None:
        self.began, self._early = began, 0

    def pause(self, now: float) -> float:
        """Seconds, of the one that comes now."""
        self._early = self._early + 1 if now - self.began < RUNS else 0
        return PAUSES[min(self._early, len(PAUSES) - 1)]
