"""What a cluster is before it is planned: what is remembered, what its hosts say, what is there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from uuid import UUID

from nospoon.control.content.named_files import NamedFiles
from nospoon.control.fleet.enrolment import Enrolment, Sought
from nospoon.control.fleet.fleet import Fleet, called
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.lost import refuse_lost
from nospoon.control.planning.access import Access
from nospoon.control.planning.around import pool_root
from nospoon.control.planning.borrowed import cloud_images, existing_volumes, refuse_borrowers
from nospoon.control.planning.clusters import Clusters
from nospoon.control.planning.identities import Identities
from nospoon.control.planning.logins import with_new_logins
from nospoon.control.planning.places import (
    DriversOf,
    Places,
    against_moves,
    drivers_on,
    makes_nothing,
)
from nospoon.control.planning.prepared import Seen, claimed
from nospoon.control.planning.reach import Surveyed, require, survey
from nospoon.control.planning.saved import (
    made_bridges,
    refuse_anothers_bridges,
    refuse_anothers_pool,
    refuse_more_nodes,
    refuse_one_more,
    refuse_other_simulation,
)
from nospoon.control.request import Request
from nospoon.engine.looks import Looks
from nospoon.engine.observe import observe_reachable, outside_away
from nospoon.errors import HostUnreachable, refuse
from nospoon.model.capabilities import Capabilities
from nospoon.model.cluster import Cluster, Host
from nospoon.model.host_facts import HostFacts
from nospoon.model.ironic import Way
from nospoon.model.principal import OwnerId, Principal
from nospoon.plan import identity
from nospoon.plan.addresses.claims import Scope
from nospoon.plan.diff.adoption import adopt
from nospoon.plan.enrollment.nova import inventories
from nospoon.plan.image_types import with_cloud_images, with_image_types
from nospoon.plan.refuse import against_twins
from nospoon.runtime.workers import Workers
from nospoon.store import claims
from nospoon.store import clusters as stored
from nospoon.store import nodes as node_rows
from nospoon.store.database import Database


class Observing:
    """From a request and its cluster to what there is. All it knows it is handed."""

    def __init__(
        self,
        *,
        database: Database,
        workers: Workers,
        access: Access,
        ironics: Enrolment,
        clusters: Clusters,
        named: NamedFiles,
        hosts: Hosts,
        looks: Looks,
        drivers_of: DriversOf,
        fleet: Fleet,
        pool_root: str,
        member_nodes: int,
    ) -> None:
        self._database, self._workers, self._access = database, workers, access
        self._ironics, self._clusters, self._named = ironics, clusters, named
        self._hosts, self._looks, self._fleet = hosts, looks, fleet
        self._drivers_of, self._pool_root = drivers_of, pool_root
        self._member_nodes = member_nodes
        self.identities = Identities(database)

    async def known(self, request: Request, cluster: Cluster, surveyed: Surveyed | None) -> Seen:
        """What is remembered, and what the hosts say of themselves."""
        await self._access.check_file(request, cluster, self._workers)
        refuse(list(against_twins(cluster.hosts)))  # before anything is opened for each of them
        volumes = await self._workers.run(request.caller.uid, existing_volumes, cluster)
        refuse_borrowers(volumes, request.caller)
        refuse_other_simulation(cluster, partial(self._fleet.hosts_of_others, request.caller.uid))
        earlier = await self._database.read(
            stored.find, owner=request.caller.uid, name=cluster.name
        )
        cluster_id = self.identities.of(cluster, earlier, request)
        if earlier is None:
            await self.identities.refuse_anothers(cluster_id, request.caller.uid)
            await self._refuse_one_more(cluster_id, request.caller)
        await self._refuse_anothers_names(cluster, cluster_id)
        known = await self._clusters.hosts_of(earlier) if earlier is not None else ()
        known = with_new_logins(known, cluster.hosts)
        self._access.check_hosts(request.caller, known)
        uploads, images = await self._named.of(cluster, request, earlier.uploads if earlier else {})
        said = cluster
        cluster = await self._workers.run(request.caller.uid, with_image_types, cluster, images)
        adopts = bool(cluster.adoptions)
        named = volumes | await self._workers.run(request.caller.uid, cloud_images, cluster)
        ask = partial(self._ask, request.caller, named=named, adopts=adopts)
        surveyed = surveyed or await survey(cluster.hosts, ask)
        require(request, surveyed.away, stranded=())
        rows = await self._database.read(node_rows.nodes_of, cluster_id)
        unseen = self._access.unseen(request.caller)
        looks = not request.fetches  # who only looks sees nodes that were lost, and why
        facts = surveyed.all_facts
        cluster = await self._workers.run(request.caller.uid, with_cloud_images, cluster, facts)
        found = await self._workers.run(
            request.caller.uid,
            lambda: adopt(
                cluster,
                cluster_id,
                facts,
                claimed(rows),
                unseen=unseen,
                lost=looks,
                elsewhere=partial(self._has_uuid, cluster_id, request.caller.uid),
            ),
        )
        refuse(() if looks and rows else found.reasons)
        cluster = found.cluster
        await self._refuse_more_nodes(cluster, cluster_id, request.caller)
        return Seen(
            id=cluster_id,
            owner=request.caller.uid,
            said=said,
            cluster=cluster,
            earlier=earlier,
            rows=rows,
            adopted=found.machines,
            skipped=(*found.skipped, *found.reasons),
            uploads=uploads,
            images=images,
            surveyed=surveyed,
            places=Places(known, cluster.hosts),
        )

    async def look(self, known: Seen) -> Seen:
        """What is there now, and who handles it; refuses to leave anything behind unseen."""
        cluster, places = known.cluster, known.places
        before, now = self._ironics.place_of(known.earlier), cluster.ironic
        answering = (host for host in places.all if host.name not in known.surveyed.away)
        sought = await self._workers.run(known.owner, _sought, cluster, known.id)
        drivers = drivers_on(answering, self._drivers_of) | self._ironics.drivers(
            self._ironics.joined(before, now), known.owner, sought=sought
        )
        observed, away = await observe_reachable(drivers, known.id, self._looks)
        if silent := outside_away(away):
            raise HostUnreachable(silent)
        if known.earlier is None:
            away |= await refuse_lost(
                self._database, drivers, name=cluster.name, cluster=known.id, owner=known.owner
            )
        await self._ironics.refuse_left_behind(
            before, now, known.id, user=known.owner, here=[each.key for each in observed]
        )
        empty = bool(places.moved) and await self._was_empty(known)
        moves = against_moves(places, known.id, observed, self._drivers_of, empty=empty)
        refuse(await moves)
        away = {**away, **known.surveyed.away}
        return replace(known, drivers=drivers, observed=tuple(observed), away=away)

    async def _was_empty(self, known: Seen) -> bool:
        if known.earlier is None or known.rows:
            return False
        before = await self._clusters.said_before(known.earlier)
        return before is not None and makes_nothing(before)

    async def _refuse_anothers_names(self, cluster: Cluster, cluster_id: UUID) -> None:
        """Of bridges and pools that are there, and of those that have a row."""
        made = {(Scope.BRIDGE, each) for each in made_bridges(cluster, cluster_id)}
        made.add((Scope.POOL, identity.pool_name(cluster_id, cluster.name)))
        taken = await self._database.read(claims.names_among, made, but=cluster_id)
        names = {value for _, value in taken}
        refuse_anothers_bridges(cluster, cluster_id, self._fleet.bridges(but=cluster_id) | names)
        refuse_anothers_pool(cluster, cluster_id, self._fleet.pools(but=cluster_id) | names)

    async def _refuse_one_more(self, cluster_id: UUID, caller: Principal) -> None:
        """As `up` does when it remembers the cluster."""
        if not caller.admin:
            own = await self._database.read(stored.listed, owner=caller.uid)
            refuse_one_more({id_ for id_, _, _ in own}, cluster_id)

    async def _refuse_more_nodes(
        self, cluster: Cluster, cluster_id: UUID, caller: Principal
    ) -> None:
        if not caller.admin:
            known = await self._database.read(node_rows.node_names, owner=caller.uid)
            names = {node.name for node in cluster.nodes}
            refuse_more_nodes(known, cluster_id, names, self._member_nodes)

    async def _ask(
        self, caller: Principal, host: Host, *, named: Collection[str], adopts: bool
    ) -> tuple[Capabilities, HostFacts]:
        can = await self._hosts.capabilities(host)
        pools = pool_root(host, self._pool_root)
        facts = await self._hosts.facts(host, pools=pools, named=named)
        if adopts:
            machines = await self._hosts.adoptable(host)
            facts = replace(facts, machines=await self._access.adoptable(caller, host, machines))
        return can, facts

    def _has_uuid(self, cluster_id: UUID, owner: OwnerId, uuid: UUID) -> str:
        """Which other cluster has this UUID: machines of two hosts may have one, and a cloud may
        say any.
        """
        member = self._fleet.get(uuid)
        return called(member, owner) if member and member.cluster_id != cluster_id else ""


def _sought(cluster: Cluster, cluster_id: UUID) -> Sought:
    """Of 20,000 nodes, for a thread."""
    discovered = (node for node in cluster.baremetal if node.enrolment.way is Way.DISCOVER)
    return Sought(
        frozenset(identity.uuid_of(cluster_id, node) for node in discovered),
        tuple(inventories(cluster, cluster_id)),
        {each.name: each.wait for each in cluster.nova},
    )
