"""Which passwords fit which hashes: checked in turns, and remembered.

bcrypt takes up to some 200 ms of a thread for each check. Whoever reaches a port may ask for
checks, so owners of BMCs take turns, and so do the sources of each owner's port: a flood at one
owner's BMCs delays a login at another's by one check. A login that was right is remembered with all
that was found out for it, so that it needs no check again. The account that it led to is remembered
until who may use BMCs changes, so that thousands of hashes need not be looked through again.
"""

from __future__ import annotations

from collections import OrderedDict

from nospoon.runtime.fair_worker import FairWorker

REMEMBERED = 16384
"""Outcomes for right logins, of one owner."""
SETTLED = 2048
"""Accounts that right logins led to."""


class CheckedPasswords:
    """Outcomes by owner, account of a hash and pair of name and password (see `Accounts.pair`)."""

    def __init__(self) -> None:
        self.worker = FairWorker("checks of passwords")
        self._of: dict[int, OrderedDict[tuple[bytes, bytes], bool]] = {}
        self._settled: OrderedDict[object, tuple[int, bytes]] = OrderedDict()

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

    def settled(self, login: object, changes: int) -> bytes | None:
        """The account that this login leads to, None where that is not known.

        `changes`: how often who may use BMCs has changed (`Accounts.changes`).
        """
        known, found = self._settled.get(login, (None, None))
        return found if known == changes else None

    def settle(self, login: object, changes: int, account: bytes) -> None:
        """A right login leads to this account, as long as nothing changes."""
        self._settled[login] = changes, account
        self._settled.move_to_end(login)
        if len(self._settled) > SETTLED:
            self._settled.popitem(last=False)
