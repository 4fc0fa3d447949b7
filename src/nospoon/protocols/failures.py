"""Failed logins: how long the next attempt of the same source at the same account has to wait.

Rules:

- The first few failures cost nothing; each further one doubles the wait, up to a limit. A login
  that works, or some minutes without a failure, and all is forgotten.
- What counts is where an attempt comes from and whom it names, at one place: a stranger shuts out
  no one who comes from another address. All accounts of a source count together too, more
  leniently: each login that works makes up for a failure of another account.
- The state is bounded; what was seen longest ago gives way.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nospoon.model.addresses import source_key

FREE, FREE_OF_SOURCE = 5, 50
"""Failures of one account, and of all accounts of a source, before attempts wait."""
FIRST, LONGEST = 0.5, 8.0
"""Seconds between attempts: after the first failure that is not free, and at most."""
PATIENCE = 16.0
"""Seconds that an attempt may wait for those before it; later ones are refused."""
FORGOTTEN = 300.0
"""Seconds without a failure after which none is known."""
ENTRIES = 2048
LONGEST_NAME = 64

Key = tuple[object, str, str]


@dataclass(slots=True)
class _Past:
    """`until`: when the next attempt may be made. `at`: of the last failure."""

    count: int = 0
    until: float = 0.0
    at: float = 0.0


class Failures:
    """Failed logins, of any number of places. `now` in seconds of a clock that never goes back.

    `free`: failures of one account that cost nothing.
    """

    __slots__ = ("_free", "_past")

    def __init__(self, free: int = FREE) -> None:
        self._past: OrderedDict[Key, _Past] = OrderedDict()
        self._free = free, FREE_OF_SOURCE

    def wait(self, place: object, source: str, account: str, *, now: float) -> float:
        """Seconds until an attempt may be made."""
        return self._wait(self._all(_keys(place, source, account), now), now)

    def queue(self, place: object, source: str, account: str, *, now: float) -> float | None:
        """The same, and the attempt after this one waits longer; None: too many wait already."""
        if not self._past:  # as nearly always: each request with a password comes here
            return 0.0
        pasts = self._all(_keys(place, source, account), now)
        waiting = max(self._wait(pasts, now), 0.0)
        if waiting > PATIENCE:
            return None
        for past, free in zip(pasts, self._free, strict=True):
            if past is not None and past.count >= free:
                past.until = now + waiting + _pause(past.count - free)
        return waiting

    def failed(self, place: object, source: str, account: str, *, now: float) -> int:
        """An attempt failed. Returns how many did, of this account."""
        keys = _keys(place, source, account)
        for key, free in zip(keys, self._free, strict=True):
            past = self._one(key, now) or _Past()
            past.count, past.at = past.count + 1, now
            if past.count >= free:
                past.until = max(past.until, now + _pause(past.count - free))
            self._past[key] = past
            self._past.move_to_end(key)
        while len(self._past) > ENTRIES:
            self._past.popitem(last=False)
        return self._past[keys[0]].count

    def worked(self, place: object, source: str, account: str) -> None:
        """A login worked: what failed before is forgotten, of this account; and one failure of its
        source, for a conductor of many nodes that has one wrong password is no attacker.
        """
        if not self._past:
            return
        mine, all_of_source = _keys(place, source, account)
        self._past.pop(mine, None)
        past = self._past.get(all_of_source)
        if past is not None:
            past.count -= 1
            if past.count < FREE_OF_SOURCE:
                past.until = 0.0
            if not past.count:
                del self._past[all_of_source]

    def _wait(self, pasts: list[_Past | None], now: float) -> float:
        return max((past.until - now for past in pasts if past is not None), default=0.0)

    def _all(self, keys: tuple[Key, Key], now: float) -> list[_Past | None]:
        return [self._one(key, now) for key in keys]

    def _one(self, key: Key, now: float) -> _Past | None:
        past = self._past.get(key)
        if past is not None and now - past.at > FORGOTTEN:
            del self._past[key]
            return None
        return past


def _keys(place: object, source: str, account: str) -> tuple[Key, Key]:
    peer = source_key(source)
    return (place, peer, f"={account[:LONGEST_NAME]}"), (place, peer, "")


def _pause(failures: int) -> float:
    return float(min(FIRST * 2 ** min(failures, 16), LONGEST))
