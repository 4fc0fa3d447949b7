"""Users of the daemon: who calls, and whose a stored thing is.

Each request has a `Principal`, made from the socket's peer. What is stored keeps the user id of its
owner alone: which rights owners have is decided by the `Administrators` of this daemon.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

OwnerId: TypeAlias = int
"""The user id of the owner of a stored thing."""
ROOT: OwnerId = 0


@dataclass(frozen=True, slots=True)
class Principal:
    """A user who calls, or whose cluster the daemon works on. `admin`: without limits."""

    uid: OwnerId
    admin: bool = False

    def owns(self, owner: OwnerId) -> bool:
        """Whether a thing of this owner is theirs to use; for administrators all things are."""
        return self.admin or self.uid == owner


@dataclass(frozen=True, slots=True)
class Administrators:
    """Users without limits: root, and the user whose daemon it is."""

    uids: frozenset[OwnerId] = frozenset({ROOT})

    def __contains__(self, owner: OwnerId) -> bool:
        return owner in self.uids

    def principal(self, uid: OwnerId) -> Principal:
        """A user with the rights that it has here."""
        return Principal(uid, admin=uid in self.uids)
