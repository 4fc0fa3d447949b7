"""What nodes take of their hosts, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection

from nospoon.control.fleet.hosts import Hosts
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.resource import Observed
from nospoon.plan.placement.room import Claim, Usage
from nospoon.store import capacity
from nospoon.store.claims import stale
from nospoon.store.nodes import NodeRow


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines behind hosts: `names` of all hosts that may lead to one of them, and `identity`,
    by name and place.
    """

    names: Collection[str]
    identity: Callable[[tuple[str, ...]], str]

    @classmethod
    def of(cls, identities: Collection[str], hosts: Hosts) -> Machines:
        return cls(hosts.names_of(identities), hosts.identity_at)

    def used(self, connection: Connection, *, but: UUID) -> dict[str, Usage]:
        """What nodes of other clusters than one take of them, by identity."""
        usage: dict[str, Usage] = {}
        for place, taken in capacity.taken(connection, self.names, but=but).items():
            where = self.identity(place)
            usage[where] = usage.get(where, Usage()) + taken
        return usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What nodes that come to hosts ask of these."""

    claims: tuple[Claim, ...]
    machines: Machines

    def require(self, connection: Connection, cluster: UUID) -> None:
        """In the transaction that remembers the nodes. Raises `Stale` where those of other clusters
        left too little.
        """
        used = self.machines.used(connection, but=cluster) if self.claims else {}
        what = next(filter(None, (each.lacks(used) for each in self.claims)), "")
        if what:
            raise stale(what)


def standing(rows: Iterable[NodeRow], observed: Iterable[Observed]) -> dict[str, Usage]:
    """What nodes of a cluster take that have a BMC, which has the sizes of their disks; by name."""
    disks = {
        each.shape.uuid: each.shape.disk_sizes for each in observed if isinstance(each.shape, Bmc)
    }
    return {
        row.name: Usage(row.machine.cpus, row.machine.memory, sum(disks[row.uuid]))
        for row in rows
        if row.uuid in disks
    }
