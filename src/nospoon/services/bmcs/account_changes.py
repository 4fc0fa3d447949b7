"""Changes of accounts over Redfish: one at a time at each endpoint, a few of each account waiting.

One change takes many turns of the loop where an account is on thousands of BMCs. BMCs of one
endpoint belong to one owner, so no one waits for changes of another owner's accounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nospoon.errors import Conflict
from nospoon.runtime.turns import Turns

MOST = 8
"""Changes that one account asked for at an endpoint, with the one in progress."""


class AccountChanges:
    """Whose turn it is."""

    def __init__(self) -> None:
        self._turns = Turns()
        self._asked: Counter[tuple[tuple[str, int], bytes]] = Counter()

    @asynccontextmanager
    async def turn(self, place: tuple[str, int], account: bytes) -> AsyncIterator[None]:
        """Of this account at this place. Raises `Conflict` where too many of it wait."""
        key = place, account
        if self._asked[key] >= MOST:
            raise Conflict(f"{MOST} changes of accounts are in progress or waiting already")
        self._asked[key] += 1
        try:
            async with self._turns.of(place[0], str(place[1])):
                yield
        finally:
            self._asked[key] -= 1
            if not self._asked[key]:
                del self._asked[key]
