"""Logins at clouds of sets that have machines: those that their lab's file has now.

A set's cluster is made with the logins of its lab's owner. Leases last for days, and the owner may
give the cloud another password meanwhile: the machines are reached, and removed, by the new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.control.labs.access import KnownLab
from nospoon.lab.provision import cluster_name
from nospoon.lab.work import RecipeSet
from nospoon.model.cluster import Host
from nospoon.store import clusters as stored
from nospoon.store.database import Database

UseLogins = Callable[[UUID, Sequence[Host]], Awaitable[None]]
"""Reaches the hosts of a cluster by the logins that these hosts have."""


@dataclass(slots=True)
class SetLogins:
    database: Database
    use: UseLogins
    _known: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names of the logins of labs, by their keys, which their sets have."""

    async def renew(self, sets: Sequence[RecipeSet], known: KnownLab) -> None:
        """Those of a lab's sets, where they are others than the last time."""
        now = await self._hosts(known)
        names = frozenset(each.connection.login for each in now) - {""}
        if names != self._known.get(known.key, frozenset()):
            for found in sets:
                await self._renew(found, known, now)
            self._known[known.key] = names

    async def renew_one(self, found: RecipeSet, known: KnownLab) -> None:
        """Those of one set, which may have been made while its lab's file changed."""
        now = await self._hosts(known)
        if any(each.connection.login for each in now):
            await self._renew(found, known, now)

    async def _renew(self, found: RecipeSet, known: KnownLab, now: Sequence[Host]) -> None:
        name = cluster_name(known.lab.name, found.id)
        row = await self.database.read(stored.find, owner=known.owner, name=name)
        if row is not None and row.file == file_of(found, known):
            await self.use(row.id, now)

    async def _hosts(self, known: KnownLab) -> Sequence[Host]:
        """Of the lab's file."""
        row = await self.database.read(stored.find, owner=known.owner, name=known.cluster)
        return await self.database.read(stored.hosts_of, row.id) if row is not None else ()


def file_of(found: RecipeSet, known: KnownLab) -> str:
    """What the cluster of a set has for its file: a user's own cluster has another."""
    return f"recipe set {found.id} of lab {known.lab.name}"
