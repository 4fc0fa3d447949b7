"""Which passwords fit which hashes: checked in turns, and remembered.

bcrypt takes up to some 200 ms of a thread for each check. Whoever reaches a port may ask for
checks, so owners of BMCs take turns, and so do the sources of each owner's port: a flood at one
owner's BMCs delays a login at another's by one check. A login that was right is remembered with all
that was found out for it, so that it needs no check again.
"""

from __future__ import annotations

from collections import OrderedDict

from nospoon.runtime.fair_worker import FairWorker

REMEMBERED = 16384
"""Outcomes for right logins, of one owner."""


class CheckedPasswords:
    """Outcomes by owner, account of a hash and pair of name and password (see `Accounts.pair`)."""

    def __init__(self) -> None:
        self.worker = FairWorker("checks of passwords")
        self._of: dict[int, OrderedDict[tuple[bytes, bytes], bool]] = {}

    def outcome(self, owner: int, account: bytes, pair: bytes) -> bool | None:
        """Whether the pair fits the account's hash, None where that is not known."""
        known = self._of.get(owner)
        found = known.get((account, pair)) if known is not None else None
        if known is not None and found is not None:
            known.move_to_end((account, pair))
        return found

    def remember(self, owner: int, account: bytes, pair: bytes, *, fits: bool) -> None:
        """Of a pair that logged in; the one that was needed longest ago gives way."""
        known = self._of.setdefault(owner, OrderedDict())
        known[account, pair] = fits
        known.move_to_end((account, pair))
        if len(known) > REMEMBERED:
            known.popitem(last=False)
