"""How much those who did not log in are answered: so many datagrams and so many bytes a source.

Sources of UDP are easily forged: what is answered without login goes to whoever the sender names.
So it may be no more than came from there, but for a small allowance without which no handshake
could begin (compare RFC 9000 §8). The state is bounded; the source heard longest ago gives way.
A source is what `peer_key` makes of an address: who has a /64 of IPv6 is one source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from nospoon.model.addresses import peer_key

RATE, BURST = 2000.0, 5000.0
"""Answers a second, and how many may be saved up: ten times what the busiest client needs."""
TOGETHER = 4
"""Times as much for all unknown sources together, however many are forged."""
SOURCES = 32


class Limiter:
    """Buckets by address, what is left of each and since when; one of all unknown sources."""

    __slots__ = ("_buckets", "_unknown")

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, float]] = {}
        self._unknown: tuple[float, float] | None = None

    def allows(self, address: str, now: float, *, known: bool = False) -> bool:
        """Take one from this address's bucket. `known`: it is not forged. Others take one from the
        bucket of all unknown sources, too, for a forged source may be a new one each time.
        """
        if not known and not self._allows_unknown(now):
            return False
        source = peer_key(address)
        left, at = self._buckets.pop(source, (BURST, now))
        left = min(BURST, left + (now - at) * RATE)
        if len(self._buckets) >= SOURCES:
            del self._buckets[next(iter(self._buckets))]
        allowed = left >= 1
        self._buckets[source] = (left - 1 if allowed else left, now)
        return allowed

    def _allows_unknown(self, now: float) -> bool:
        left, at = self._unknown or (TOGETHER * BURST, now)
        left = min(TOGETHER * BURST, left + (now - at) * TOGETHER * RATE)
        allowed = left >= 1
        self._unknown = (left - 1 if allowed else left, now)
        return allowed


@dataclass(frozen=True, slots=True)
class Allowance:
    """Bytes that a source may be sent beyond what came from it, and how many a second come back.

    `sources`: so many are remembered.
    """

    most: float
    rate: float
    sources: int


OF_A_BMC = Allowance(2048.0, 256.0, SOURCES)
"""For each kind of asking: 125 pings, 290 commands, 500 logins that begin."""
OF_THE_DAEMON = Allowance(32768.0, 4096.0, 4096)
"""The same, to all its BMCs together."""


class Asking(Enum):
    """What one who did not log in asks for. Each has budgets of its own: who floods with one kind,
    and forges sources, does not spend what another kind needs.
    """

    PING = auto()
    COMMAND = auto()
    LOGIN = auto()


class Budgets:
    """A budget for each kind of asking by IPMI."""

    __slots__ = ("_of",)

    def __init__(self, allowance: Allowance) -> None:
        self._of = {kind: Budget(allowance) for kind in Asking}

    def came(self, kind: Asking, address: str, size: int, now: float) -> None:
        """So many bytes came from there."""
        self._of[kind].came(address, size, now)

    def pays(self, kind: Asking, address: str, size: int) -> bool:
        """Whether so many bytes may go there; if so, they are taken."""
        return self._of[kind].pays(address, size)

    def proved(self, address: str) -> None:
        """Who is there knows a password."""
        for each in self._of.values():
            each.proved(address)


class Budget:
    """Bytes by address: what is left of each allowance, and when that was."""

    __slots__ = ("_allowance", "_left")

    def __init__(self, allowance: Allowance) -> None:
        self._allowance = allowance
        self._left: dict[str, tuple[float, float]] = {}

    def came(self, address: str, size: int, now: float) -> None:
        """So many bytes came from there."""
        source = peer_key(address)
        known = self._left.pop(source, None)
        left = self._at(known, now) if known is not None else self._beginning(now)
        self._left[source] = (left + size, now)

    def pays(self, address: str, size: int) -> bool:
        """Whether so many bytes may go there; if so, they are taken."""
        source = peer_key(address)
        left, at = self._left.get(source, (0.0, 0.0))
        if size > left:
            return False
        self._left[source] = (left - size, at)
        return True

    def proved(self, address: str) -> None:
        """Who is there knows a password: it is not forged, and begins again."""
        source = peer_key(address)
        known = self._left.get(source)
        if known is not None and known[0] < self._allowance.most:
            self._left[source] = (self._allowance.most, known[1])

    def _at(self, known: tuple[float, float], now: float) -> float:
        left, at = known
        return max(left, min(self._allowance.most, left + (now - at) * self._allowance.rate))

    def _beginning(self, now: float) -> float:
        """A newcomer that takes another's place gets what was left of its allowance: else who
        forges many sources would have a new one each time.
        """
        if len(self._left) < self._allowance.sources:
            return self._allowance.most
        oldest = self._left.pop(next(iter(self._left)))
        return min(self._allowance.most, self._at(oldest, now))
