"""A look at hosts and Ironics for everything of this deployment, whatever cluster it belongs to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from uuid import UUID

from nospoon.clusterfile.host_at import host_at
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.owned import each_cluster
from nospoon.control.planning.planner import Planner
from nospoon.engine.observe import Drivers, observe
from nospoon.errors import NospoonError
from nospoon.model.cluster import Host
from nospoon.model.declared import CallLimits
from nospoon.model.ironic import IronicPlace
from nospoon.model.principal import OwnerId, Principal
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Observed
from nospoon.model.resources.tags import OwnerTag
from nospoon.plan.order.kinds import KINDS
from nospoon.providers.base import Driver
from nospoon.providers.cloud_calls import ADMINISTRATION
from nospoon.runtime.paced import paced
from nospoon.store import nodes as node_rows
from nospoon.store.clusters import ClusterRow
from nospoon.store.database import Database

PATIENCE = 900.0
"""Seconds for which a cloud or an Ironic, which users choose, may be looked at."""
TOO_SLOW = f"it did not say everything within {PATIENCE:.0f} s"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where one looks. `owners`: of clouds and Ironics that users' files name, who has things
    there: tags there that name others, or clusters of others, are not believed, for its users
    choose what a cloud answers. `clusters`: whose those of the store are.
    """

    hosts: tuple[Host, ...] = ()
    ironics: tuple[IronicPlace, ...] = ()
    owners: Mapping[tuple[str, ...], frozenset[int]] = field(default_factory=dict)
    clusters: Mapping[UUID, int] = field(default_factory=dict)

    def believes(self, place: tuple[str, ...], tag: OwnerTag) -> bool:
        """Whether what has this tag may be what it says, at a host's `server` or an Ironic."""
        owners = self.owners.get(place)
        if owners is None:
            return True
        return tag.uid in owners and self.clusters.get(tag.cluster, tag.uid) in owners


@dataclass(frozen=True, slots=True)
class Seen:
    """What one host or Ironic has. `others`: other deployment -> how many things; `away`: why
    no one knows.
    """

    place: Host | IronicPlace
    found: tuple[tuple[Observed, Driver], ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    away: str = ""

    @property
    def name(self) -> str:
        """Of the host; Ironic's are told by where they are."""
        return self.place.name if isinstance(self.place, Host) else str(self.place)

    @property
    def calls(self) -> CallLimits:
        return self.place.declares.calls if isinstance(self.place, Host) else self.place.calls

    def clusters(self) -> dict[UUID, Seen]:
        """What was found of each cluster; with thousands of things, for a thread."""
        result: dict[UUID, list[tuple[Observed, Driver]]] = {}
        for observed, driver in self.found:
            result.setdefault(observed.tag.cluster, []).append((observed, driver))
        return {id_: replace(self, found=tuple(some)) for id_, some in result.items()}

    @property
    def things(self) -> list[Observed]:
        return [observed for observed, _ in self.found]

    @property
    def drivers(self) -> Drivers:
        """The drivers that found the things, under the hosts' names in their keys."""
        return {(observed.key.place, observed.key.kind): driver for observed, driver in self.found}


class Survey:
    """Looks at hosts and Ironics. Changes nothing."""

    def __init__(
        self, *, database: Database, planner: Planner, hosts: Hosts, default_uri: str
    ) -> None:
        self._database, self._planner, self._hosts = database, planner, hosts
        self._default_uri = default_uri

    def given(self, uris: Mapping[str, str], file: str, text: str) -> Scope:
        """Hosts and Ironic of a cluster file, and hosts that were named; none: this machine."""
        cluster = self._planner.clusters.read(file, text, ADMINISTRATION) if text else None
        hosts = list(cluster.hosts) if cluster is not None else []
        hosts += [host_at(name, uri) for name, uri in uris.items()]
        ironic = cluster.ironic if cluster is not None else None
        here = host_at("here", self._default_uri)
        return Scope(tuple(hosts) or (here,), (ironic,) if ironic is not None else ())

    async def known(self) -> Scope:
        """The hosts and Ironics of all clusters, and this machine."""
        hosts, ironics = [host_at("here", self._default_uri)], []
        access, owner = self._planner.access, dict[UUID, Principal]()
        why_not = cache(access.why_not)
        owners: dict[tuple[str, ...], frozenset[int]] = {}
        async for row in each_cluster(self._database):
            owner[row.id] = user = access.principal(row.owner)
            known = await self._planner.clusters.hosts_of(row)
            hosts += [host for host in known if not why_not(user, host)]
            for host in known:
                if host.connection.login:
                    _add_owner(owners, host.server, row.owner)
            place = self._planner.enrolment.place_of(row)
            if place is not None:
                ironics.append(place)
                _add_owner(owners, _ironic(place), row.owner)
        nodes = await self._database.read(node_rows.all_nodes)
        async for node in paced(nodes):
            its = owner.get(node.cluster_id)
            if its is None:  # of a cluster that was made meanwhile
                continue
            if node.host.connection.login:
                _add_owner(owners, node.host.server, its.uid)
            if not why_not(its, node.host):
                hosts.append(node.host)
        by_place = {each.where: each for each in ironics}
        clusters = {id_: user.uid for id_, user in owner.items()}
        return Scope(tuple(_each_once(hosts)), tuple(by_place.values()), owners, clusters)

    async def hosts_of(self, row: ClusterRow) -> Sequence[Host]:
        """Where a cluster of the store may have things."""
        return await self._planner.clusters.hosts_of(row)

    async def around(self, scope: Scope) -> list[Seen]:
        """As `look`, at all that are known where the scope names no host."""
        return await self.look(scope if scope.hosts else await self.known())

    async def look(self, scope: Scope) -> list[Seen]:
        """What each has, Ironics first; things that several hosts show are told of once."""
        ironics = await asyncio.gather(*(self._look_in(each, scope) for each in scope.ironics))
        hosts = _each_once(scope.hosts)
        seen = await asyncio.gather(*(self._look_at(host, scope) for host in hosts))
        return [*ironics, *await asyncio.to_thread(_told_once, seen)]

    async def _look_in(self, place: IronicPlace, scope: Scope) -> Seen:
        """What is in an Ironic; what carries no tag of nospoon's is not looked at."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._found_in(place, scope)
        except TimeoutError:
            return Seen(place, away=TOO_SLOW)

    async def _found_in(self, place: IronicPlace, scope: Scope) -> Seen:
        enrolment = self._planner.enrolment
        try:
            drivers = enrolment.drivers(place, ADMINISTRATION)
            found = [
                (each, driver)
                for key, driver in drivers.items()
                async for each in paced(await observe({key: driver}, None))
                if scope.believes(_ironic(place), each.tag)
            ]
            tags = Counter(
                tag.deployment for tag, _ in await enrolment.nodes(place, ADMINISTRATION)
            )
        except NospoonError as error:
            return Seen(place, away=str(error))
        del tags[self._database.deployment]
        return Seen(place, tuple(found), tags)

    async def _look_at(self, host: Host, scope: Scope) -> Seen:
        try:
            async with asyncio.timeout(PATIENCE if host.connection.login else None):
                return await self._found_at(host, scope)
        except TimeoutError:
            return Seen(host, away=TOO_SLOW)

    async def _found_at(self, host: Host, scope: Scope) -> Seen:
        try:
            connection = self._hosts.use(host).connection
            await connection.check()
            drivers = self._planner.drivers([host])
            tags = dict(await connection.deployments())
            found = [
                (each, driver)
                for key, driver in drivers.items()
                async for each in paced(await observe({key: driver}, None))
                if key[1] is Kind.BMC or scope.believes(host.server, each.tag)
            ]
        except NospoonError as error:
            return Seen(host, away=str(error))
        except ImportError as error:
            return Seen(host, away=f"{error.name} is not installed here")
        tags.pop(self._database.deployment, None)
        return Seen(host, tuple(found), tags)


def _add_owner(
    owners: dict[tuple[str, ...], frozenset[int]], place: tuple[str, ...], owner: OwnerId
) -> None:
    """Whoever has things in a cloud."""
    owners[place] = owners.get(place, frozenset()) | {owner}


def _ironic(place: IronicPlace) -> tuple[str, ...]:
    """Beside what `server` says of hosts."""
    return ("ironic", *map(str, place.where))


def _each_once(hosts: Iterable[Host]) -> list[Host]:
    """Libvirt's are known by their URI, simulated ones by name."""
    by_place = {host.server: host for host in reversed(list(hosts))}
    return list(reversed(by_place.values()))


def _told_once(seen: Sequence[Seen]) -> list[Seen]:
    told: set[object] = set()
    result = []
    for each in seen:
        fresh = []
        for observed, driver in each.found:
            key = observed.key
            place = None if KINDS[key.kind].by_daemon else each.name
            name = (place, key, observed.tag.cluster)
            if name not in told:
                told.add(name)
                fresh.append((observed, driver))
        result.append(Seen(each.place, tuple(fresh), each.others, each.away))
    return result
