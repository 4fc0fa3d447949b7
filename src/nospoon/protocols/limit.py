"""How many datagrams of those who did not log in get an answer: a token bucket a source.

Sources of UDP are easily forged: what is answered without login goes to whoever the sender names.
The state is bounded; the source heard longest ago gives way.
"""

from __future__ import annotations

RATE, BURST = 2000.0, 5000.0
"""Answers a second, and how many may be saved up: ten times what the busiest client needs."""
SOURCES = 32


class Limiter:
    """Buckets by address: what is left of each, and when that was."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, address: str, now: float) -> bool:
        """Take one from this address's bucket."""
        left, at = self._buckets.pop(address, (BURST, now))
        left = min(BURST, left + (now - at) * RATE)
        if len(self._buckets) >= SOURCES:
            del self._buckets[next(iter(self._buckets))]
        allowed = left >= 1
        self._buckets[address] = (left - 1 if allowed else left, now)
        return allowed
