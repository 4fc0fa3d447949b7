"""Guesses at passwords of BMCs that share an endpoint with one that the guesser may use.

Where BMCs share an address and port, a login reaches all those that its name and password fit. So
who may use one of them has ways to guess at another's without a failed login after the other:

- He gives a user of his BMC the name of another's and the password that he guesses. That login
  always works, and shows the other BMC if the guess was right. So the first login with what a BMC's
  client has given a user counts as a guess made by that BMC, whether it is right or not.
- He logs in to his own BMC between guesses at one with the same name. That forgets failed logins
  (`nospoon.protocols.failures`), for a conductor of many nodes that has wrong passwords of a few is
  no attacker. That one repeats them, so each other wrong password is counted here, and no login
  forgets it.
- Where one needs no login, any works there. Those that fit no BMC are counted in the same way.
"""

from __future__ import annotations

from collections import OrderedDict
from uuid import UUID

from nospoon.model.addresses import source_key
from nospoon.protocols.failures import FREE_OF_SOURCE, Failures

WRONG = 4096
"""Wrong names and passwords that are remembered, as digests."""

Place = tuple[str, int]


class Guesses:
    """Guesses of any number of places. `now` as in `Failures`."""

    def __init__(self) -> None:
        self._by_users, self._by_logins = Failures(), Failures(free=FREE_OF_SOURCE)
        self._wrong: OrderedDict[tuple[Place, str, bytes], None] = OrderedDict()

    def queue(self, place: Place, source: str, name: str, *, now: float) -> float | None:
        """Seconds that a login has to wait, None: too many wait already."""
        return self._by_logins.queue(place, source, name, now=now)

    def failed(self, place: Place, source: str, name: str, pair: bytes, *, now: float) -> None:
        """A login failed. `pair`: a digest of its name and password."""
        key = place, source_key(source), pair
        if key not in self._wrong:
            self._by_logins.failed(place, source, name, now=now)
        self._wrong[key] = None
        self._wrong.move_to_end(key)
        if len(self._wrong) > WRONG:
            self._wrong.popitem(last=False)

    def queue_user(self, place: Place, bmc: UUID, name: str, *, now: float) -> float | None:
        """The same, for the first login with what a client of this BMC gave a user."""
        return self._by_users.queue((place, bmc), "", name, now=now)

    def tried_user(self, place: Place, bmc: UUID, name: str, *, now: float) -> None:
        """Such a login is made."""
        self._by_users.failed((place, bmc), "", name, now=now)
