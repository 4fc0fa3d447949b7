"""What planning knows of a cluster: first what there is, then what is to be made of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from nospoon.control.planning.accounts import Account
from nospoon.control.planning.places import Places
from nospoon.control.planning.reach import Surveyed
from nospoon.engine.observe import Drivers
from nospoon.model.cluster import Cluster
from nospoon.model.host_facts import Adoptable
from nospoon.model.principal import OwnerId
from nospoon.model.resources.keys import Key
from nospoon.model.resources.resource import Observed, Resource
from nospoon.model.seed import Seed
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.diff.adoption import Claimed
from nospoon.plan.order.kinds import whose
from nospoon.plan.order.steps import Plan
from nospoon.plan.resolution.around import ImageFacts
from nospoon.store.clusters import ClusterRow
from nospoon.store.nodes import NodeRow


@dataclass(frozen=True, slots=True)
class Seen:
    """What is asked for, what is remembered, and what there is.

    `owner`: who asks. `said`: what the file says; in `cluster` the machines of others that it
    matches are nodes. `earlier` is None for a new cluster, `rows` are its nodes as they are
    remembered. `away`: host -> why no one knows what is there. `adopted`: the machines of others
    that are its nodes, by UUID; `skipped`: which cannot be, and why.
    """

    id: UUID
    owner: OwnerId
    said: Cluster
    cluster: Cluster
    earlier: ClusterRow | None
    rows: Sequence[NodeRow]
    uploads: Mapping[str, str]
    images: Mapping[str, ImageFacts]
    surveyed: Surveyed
    places: Places
    drivers: Drivers = field(default_factory=dict)
    observed: tuple[Observed, ...] = ()
    away: Mapping[str, str] = field(default_factory=dict)
    adopted: Mapping[UUID, Adoptable] = field(default_factory=dict)
    skipped: Sequence[str] = ()

    @property
    def unseen(self) -> frozenset[str]:
        """The nodes that are on hosts which are away."""
        if not self.away:
            return frozenset()
        return frozenset(row.name for row in self.rows if row.host.name in self.away)

    def unmade(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """The nodes of which nothing is on their hosts (node -> host), by what can be seen."""
        there = {(whose(each.key), each.key.place) for each in self.observed}
        return frozenset(
            node
            for node, host in hosts.items()
            if host not in self.away and (node, host) not in there
        )


def claimed(rows: Iterable[NodeRow]) -> list[Claimed]:
    """The nodes that are machines of others, as they are remembered."""
    return [Claimed(row.host.name, row.name, row.machine) for row in rows if row.machine.adopted]


@dataclass(frozen=True)
class Prepared:
    """A plan and everything it was made from. `seeds` of its machines, by digest: they are found
    as long as this is held; `notes`: on what was found; `returns`: nodes that get a former root.
    """

    seen: Seen
    accounts: Mapping[str, Account]
    allocations: Allocations
    desired: Mapping[Key, Resource]
    plan: Plan
    seeds: Mapping[str, Seed] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    returns: tuple[str, ...] = ()

    @cached_property
    def stranded(self) -> frozenset[str]:
        """The nodes that are on hosts which are away, or that are to be there."""
        if not self.seen.away:
            return frozenset()
        places = [(row.name, row.host.name) for row in self.seen.rows]
        places += self.allocations.hosts.items()
        return frozenset(node for node, host in places if host in self.seen.away)
