"""Which users the BMCs of each Redfish endpoint have, kept as BMCs and their users change.

A page of accounts asks for the names of a number. Thousands of BMCs may share an endpoint, and most
of them have the same few users: this is indexed by user, so that no one looks at each BMC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from uuid import UUID

from nospoon.bmc.users import LAST, OWNER, User, added

Place = tuple[str, int]
"""An address, perhaps that of all of its family, and a port."""
Account = tuple[int, str]
"""IPMI's number of a user, and its name."""


class Directory:
    """Users with a name, by endpoint; of BMCs without AC power, too."""

    def __init__(self) -> None:
        self._at: dict[Place, dict[Account, set[UUID]]] = {}
        self._of: dict[UUID, tuple[Place, frozenset[Account]]] = {}

    def put(self, system: UUID, place: Place, owner: str, users: Iterable[User]) -> None:
        """A BMC answers here, and has these users; `owner` is the name of the node's account."""
        accounts = {(each.id, each.name) for each in added(tuple(users)) if each.name}
        known = place, frozenset(accounts | {(OWNER, owner)})
        if self._of.get(system) == known:
            return
        self.remove(system)
        self._of[system] = known
        here = self._at.setdefault(place, {})
        for account in known[1]:
            here.setdefault(account, set()).add(system)

    def remove(self, system: UUID) -> None:
        """Harmless when it is not known."""
        place, accounts = self._of.pop(system, (("", 0), frozenset()))
        here = self._at.get(place, {})
        for account in accounts:
            here[account].discard(system)
            if not here[account]:
                del here[account]
        if not here:
            self._at.pop(place, None)

    def having(self, name: str, place: Place) -> int:
        """How many BMCs here have a user of this name; one that has two counts twice."""
        here = self._at.get(place, {})
        return sum(len(here.get((number, name), ())) for number in range(OWNER, LAST + 1))

    def at(self, *places: Place) -> Mapping[Account, AbstractSet[UUID]]:
        """Users of the BMCs at these places, and the BMCs that have each; to be looked at."""
        found = [self._at[each] for each in places if each in self._at]
        if len(found) == 1:
            return found[0]
        merged: dict[Account, set[UUID]] = {}
        for users in found:
            for account, systems in users.items():
                merged.setdefault(account, set()).update(systems)
        return merged
