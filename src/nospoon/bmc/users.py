"""Users of a BMC besides the node's own account: one table for IPMI and Redfish.

IPMI numbers its users: 1 is the reserved anonymous one, 2 is the node's account of the cluster
file, which only that file changes; 3 to 15 are added and changed by clients (§22.26 to §22.30).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

ANONYMOUS, OWNER, LAST = 1, 2, 15
ADMINISTRATOR, NO_ACCESS = 4, 15
SHORT, LONG = 16, 20
"""Sizes of passwords."""


@dataclass(frozen=True, slots=True)
class User:
    """A user with a number. `privilege`: the highest (§6.8), 15 is no access.

    `password` in the clear, as RAKP needs it; stored encrypted. `long`: it was set as one of 20
    bytes, whatever its length (§22.30). `sol`: may use payload type 1.
    """

    id: int
    name: str = ""
    password: str = field(default="", repr=False)
    privilege: int = NO_ACCESS
    enabled: bool = False
    messaging: bool = False
    sol: bool = True
    long: bool = False

    @property
    def password_size(self) -> int:
        """Bytes in which the password is kept (§22.30)."""
        return LONG if self.long or len(self.password.encode()) > SHORT else SHORT

    @property
    def may_log_in(self) -> bool:
        """Whether a session can be opened with this user."""
        usable = self.enabled and self.messaging and bool(self.name) and bool(self.password)
        return usable and self.privilege <= ADMINISTRATOR


def user(users: Sequence[User], number: int) -> User:
    """The user with this number; one that was never set has no name and no access."""
    return next((each for each in users if each.id == number), User(number))


def added(users: Sequence[User]) -> tuple[User, ...]:
    """Those that clients may add: the node's own account never comes from this table."""
    return tuple(each for each in users if each.id != OWNER)


def with_user(users: Sequence[User], changed: User) -> tuple[User, ...]:
    """The table after a user was changed, by number; one without anything set is left out.

    Raises `ValueError` for the node's own account: a row of it would replace its password.
    """
    if changed.id == OWNER:
        raise ValueError(f"user {OWNER} is the node's own account, which the cluster file sets")
    rest = [each for each in users if each.id != changed.id]
    kept = rest if changed == User(changed.id) else [*rest, changed]
    return tuple(sorted(kept, key=lambda each: each.id))


def without_user(users: Sequence[User], number: int) -> tuple[User, ...]:
    """The table without this user."""
    return with_user(users, User(number))
