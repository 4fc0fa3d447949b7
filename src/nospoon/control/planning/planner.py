"""From a request to a plan: read the file, look at the hosts, decide, resolve, compare.

Nothing is changed here, so that a plan can be asked for as often as one likes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_interface
from uuid import UUID

from nospoon.clusterfile.places import placed
from nospoon.control.content.files import Files
from nospoon.control.content.named_files import NamedFiles
from nospoon.control.content.seeds import Seeds
from nospoon.control.fleet.enrolment import Enrolment
from nospoon.control.fleet.fleet import Fleet, called
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.planning.access import Access
from nospoon.control.planning.accounts import accounts_for
from nospoon.control.planning.allocating import Allocating, LabsThere, PortsInUse
from nospoon.control.planning.around import pool_root, surroundings
from nospoon.control.planning.clusters import Clusters
from nospoon.control.planning.comparing import (
    against_kinds,
    all_notes,
    asked_for,
    by_owners,
    lost_by,
    reasons,
    refuse_unknown,
    rules_of,
)
from nospoon.control.planning.logins import Logins
from nospoon.control.planning.observing import Observing
from nospoon.control.planning.pending import known_places
from nospoon.control.planning.places import DriversOf, drivers_on
from nospoon.control.planning.prepared import Prepared, Seen
from nospoon.control.planning.reach import Surveyed, require
from nospoon.control.request import Request
from nospoon.engine.looks import Looks
from nospoon.errors import PlanRefused, Stale, refuse
from nospoon.model.cluster import Cluster, Host
from nospoon.model.node_kind import NodeKind
from nospoon.model.principal import OwnerId
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.networks import Link
from nospoon.model.resources.resource import Resource
from nospoon.model.rest.plans import Remembered
from nospoon.plan.addresses.allocate import Allocations
from nospoon.plan.addresses.found import completed
from nospoon.plan.addresses.macs import against_macs, against_port_names
from nospoon.plan.addresses.numbers import in_order
from nospoon.plan.addresses.ports import (
    against_boot_servers,
    against_many,
    against_ports,
    against_sharing,
    redfish_places,
    sockets_of,
)
from nospoon.plan.diff.diff import diff
from nospoon.plan.diff.in_ironic import against_held, are_enrolled
from nospoon.plan.diff.losses import Losses
from nospoon.plan.order.remembered import Said, remembered
from nospoon.plan.order.steps import Plan
from nospoon.plan.resolution.resolve import resolve
from nospoon.plan.roots import against_lost_roots, among, with_kept_roots, with_roots
from nospoon.plan.seeds import digests_of, seeds_of
from nospoon.providers.base import Driver
from nospoon.runtime.http_limits import LIMITS
from nospoon.runtime.workers import Workers
from nospoon.store import bmc_sockets, snapshots
from nospoon.store import clusters as stored
from nospoon.store import operations as journal
from nospoon.store.crypt import Cipher
from nospoon.store.database import Database

THREADS = 4
"""Users whose files and plans are worked on at a time; others wait, and nothing else does."""

CheckSockets = Callable[[Sequence[Resource], Collection[str], Sequence[Host]], Sequence[str]]
"""Why resources on this machine that are to be served cannot be, nor what simulated hosts serve;
the second are addresses that it will have by then. Called in a thread.
"""


def sockets_of_a_member() -> int:
    """How many sockets the BMCs of one member may have: a quarter of the daemon's descriptors."""
    return LIMITS.highest_descriptor // 4


class Planner:
    """Makes plans. All it knows it is handed."""

    def __init__(
        self,
        *,
        database: Database,
        cipher: Cipher,
        files: Files,
        seeds: Seeds,
        hosts: Hosts,
        looks: Looks,
        drivers_of: DriversOf,
        ports_in_use: PortsInUse,
        listening: PortsInUse,
        holder_of_port: Callable[[int], str],
        labs: LabsThere,
        check_sockets: CheckSockets,
        fleet: Fleet,
        boot_port: Callable[[], int],
        enrolment: Enrolment,
        logins: Logins,
        access: Access,
        pool_root: str,
        default_uri: str,
        member_nodes: int,
    ) -> None:
        self.enrolment, self.access = enrolment, access
        self.workers = Workers("planning", THREADS)
        self._database, self._cipher, self._seeds = database, cipher, seeds
        self.clusters = Clusters(
            database=database,
            cipher=cipher,
            workers=self.workers,
            logins=logins,
            access=access,
            default_uri=default_uri,
        )
        self._named = NamedFiles(files, self.workers, database)
        self._drivers_of, self._fleet = drivers_of, fleet
        self._boot_port, self._check_sockets = boot_port, check_sockets
        self.allocating = Allocating(
            database=database,
            hosts=hosts,
            access=access,
            workers=self.workers,
            in_use=ports_in_use,
            listening=listening,
            holder_of_port=holder_of_port,
            labs=labs,
        )
        self._pool_root = pool_root
        self._observing = Observing(
            database=database, workers=self.workers, access=access, ironics=enrolment,
            clusters=self.clusters, named=self._named, hosts=hosts, looks=looks,
            drivers_of=drivers_of, fleet=fleet, pool_root=pool_root, member_nodes=member_nodes,
        )  # fmt: skip
        self.member_nodes = member_nodes

    async def prepare(
        self, request: Request, cluster: Cluster, *, surveyed: Surveyed | None = None
    ) -> Prepared:
        """The plan for a request, whose file says `cluster`. `surveyed`: its hosts, where they were
        just asked. Raises `PlanRefused` with every reason, each where its cause is in the file, and
        `HostUnreachable`.
        """
        try:
            return await self._prepared(request, cluster, surveyed)
        except PlanRefused as refused:
            if request.cluster is not None:
                raise
            reasons = await self.workers.run(
                request.caller.uid, placed, refused.reasons, request.text, request.file
            )
            raise PlanRefused(reasons) from refused

    async def _prepared(
        self, request: Request, cluster: Cluster, surveyed: Surveyed | None
    ) -> Prepared:
        known = await self._observing.known(request, cluster, surveyed)
        seen = await self._observing.look(known)
        wanted = await self._wanted(request, seen)
        require(request, seen.away, wanted.stranded)
        plan = await self._compared(request, wanted)
        if request.fetches:
            await self._refuse_held(seen, plan)
            refuse(await self.workers.run(request.caller.uid, self._unservable, seen, plan))
        await self.workers.run(request.caller.uid, _refuse_stale, request.fingerprint, plan)
        return replace(wanted, plan=plan)

    async def _wanted(self, request: Request, seen: Seen) -> Prepared:
        """What is to be, and where; how it comes about is not told yet."""
        cluster = seen.cluster
        decided = await self._decided(seen)
        allocations = await self.allocating.allocate(request, seen, decided)
        accounts = await self.workers.run(
            seen.owner, accounts_for, cluster, seen.id, seen.rows, self._cipher
        )
        around = await self.workers.run(
            seen.owner,
            surroundings,
            seen,
            accounts,
            self.pool_root_of,
            self._cipher,
            self._boot_port(),
        )
        seeds = await self.workers.run(
            seen.owner,
            lambda: seeds_of(cluster, seen.id, allocations, boot_port=around.boot_port),
        )
        digests = await self.workers.run(seen.owner, digests_of, seeds)
        offered = await self._seeds.offer({digests[name]: each for name, each in seeds.items()})
        around = replace(around, seeds=digests)
        resolved = await self.workers.run(
            seen.owner, resolve, cluster, seen.id, allocations, around
        )
        roots = await self.workers.run(
            seen.owner,
            partial(with_roots, hosts=cluster.hosts, targets=request.targets),
            resolved,
            seen.observed,
            cluster.nodes,
        )
        desired = await self.workers.run(seen.owner, with_kept_roots, roots.desired, seen.observed)
        await self._refuse_taken(request, seen, desired)
        nothing = Plan(cluster=cluster.name, cluster_id=seen.id, steps=())
        return Prepared(
            seen, accounts, allocations, desired, nothing, offered, roots.notes, roots.returns
        )

    async def _refuse_taken(
        self, request: Request, seen: Seen, desired: Mapping[Key, Resource]
    ) -> None:
        """What hosts do not make, and what cannot be beside other clusters."""
        made = desired.values()
        wanted, redfish = await self.workers.run(
            seen.owner, lambda: (sockets_of(made), redfish_places(made))
        )
        beside = await self._database.read(
            bmc_sockets.beside, seen.id, seen.owner, wanted=wanted, redfish=redfish
        )
        most = sys.maxsize if request.caller.admin else sockets_of_a_member()
        refuse(
            await self.workers.run(
                seen.owner,
                lambda: [
                    *against_kinds(made, seen.surveyed.capabilities),
                    *against_ports(wanted, beside.neighbours),
                    *against_sharing(redfish, beside.foreign),
                    *against_many(wanted, beside.neighbours, beside.elsewhere, most),
                    *against_macs(made, partial(self._holder, seen.id, seen.owner)),
                    *against_port_names(made, partial(self._port_holder, seen.id, seen.owner)),
                ],
            )
        )

    async def _refuse_held(self, seen: Seen, plan: Plan) -> None:
        """Names and MACs that others have in Ironic: `up` would meet them half-way."""
        place = seen.cluster.ironic
        if place is not None and are_enrolled(plan.steps):
            held = await self.enrolment.held(place, seen.owner)
            refuse(
                await self.workers.run(seen.owner, against_held, plan.steps, seen.observed, held)
            )

    def _unservable(self, seen: Seen, plan: Plan) -> Sequence[str]:
        """Why this machine, or a host over ssh, cannot open the sockets that a plan needs: `up`
        would meet it last.
        """
        cluster = seen.cluster
        here = {host.name for host in cluster.hosts if not host.ssh}
        made = [each for step in plan.steps if (each := step.desired) is not None]
        links = [
            each.shape for each in made if isinstance(each.shape, Link) and each.key.place in here
        ]
        machines = {each.key.place for each in made if each.key.kind is Kind.MACHINE}
        coming = {
            str(ip_interface(address).ip)
            for link in links
            for address in (link.address, link.address6)
            if address
        }
        found = self._check_sockets(
            [each for each in made if each.key.kind is Kind.BMC or each.key.place in here],
            coming,
            [host for host in cluster.hosts if host.name in machines],
        )
        facts = seen.surveyed.facts
        return [
            *found,
            *against_boot_servers(plan.steps, facts),
            *against_lost_roots(plan.steps, facts),
        ]

    async def _decided(self, seen: Seen) -> Allocations:
        """What was decided, with the nodes that are there and not remembered: a store that was lost
        may be recovered in part, or not yet.
        """
        decided = await self._remembered(seen)
        names = {row.name for row in seen.rows}
        return await self.workers.run(seen.owner, completed, decided, seen.observed, names)

    async def _remembered(self, seen: Seen) -> Allocations:
        """Earlier versions numbered hosts in the order of their file."""
        if seen.earlier is None:
            return Allocations()
        decided = await self.workers.run(
            seen.owner, known_places, seen.earlier.allocations, seen.rows
        )
        before = None if decided.ends.low else await self.clusters.said_before(seen.earlier)
        if before is None:
            return decided
        return replace(decided, ends=in_order([host.name for host in before.hosts]))

    async def _compared(self, request: Request, wanted: Prepared) -> Plan:
        """How what is becomes what is to be."""
        seen, desired, facts = wanted.seen, wanted.desired, wanted.seen.surveyed
        cluster = seen.cluster
        notes, why = await self.workers.run(
            seen.owner, lambda: (tuple(all_notes(wanted)), reasons(wanted))
        )
        plan = await self.workers.run(
            seen.owner,
            diff,
            cluster=cluster.name,
            cluster_id=seen.id,
            desired=desired,
            observed=seen.observed,
            rules=rules_of(facts.capabilities),
            why=why,
            notes=notes,
        )
        leavers = {row.name for row in seen.rows} - (names := {node.name for node in cluster.nodes})
        refuse_unknown(request.targets, names | leavers)
        begun = await self._database.read(journal.begun_machines, seen.id)
        plan, losses = await self.workers.run(seen.owner, asked_for, request, wanted, plan)
        lost = await self._lost_snapshots(seen, losses)
        leaves = not request.targets and (seen.places.left or bool(leavers))
        again = await self._says_something_new(request, seen)
        owners = await self.workers.run(seen.owner, lambda: tuple(by_owners(seen, desired)))
        return replace(
            plan,
            notes=(*plan.notes, *lost),
            remembers=leaves or again or bool(owners),
            remembered=(*owners, *(await self._said_again(seen) if again else ())),
            generation=seen.earlier.generation if seen.earlier else 0,
            returns=among(wanted.returns, request.targets),
            starts=tuple(
                node.name
                for node in (cluster.nodes if begun else ())
                if node.name in begun and node.kind is not NodeKind.BAREMETAL
            ),
        )

    async def _lost_snapshots(self, seen: Seen, losses: Losses) -> list[str]:
        """A note for each that is lost. One is read at a time: others are in the store meanwhile,
        and each may have 20,000 nodes.
        """
        if losses.are_none:
            return []
        notes = list[str]()
        for each in await self._database.read(snapshots.headings, seen.id):
            found = await self._database.read(snapshots.find, seen.id, each.name)
            if found is not None:
                notes.append(await self.workers.run(seen.owner, lost_by, losses, found))
        return list(filter(None, notes))

    async def _says_something_new(self, request: Request, seen: Seen) -> bool:
        if seen.earlier is None:
            return True
        if request.cluster is not None and seen.said != await self.clusters.said_before(
            seen.earlier
        ):
            return True
        text = await self.clusters.text_of(seen.earlier)
        return text != request.text or dict(seen.uploads) != dict(seen.earlier.uploads)

    async def _said_again(self, seen: Seen) -> tuple[Remembered, ...]:
        before = await self.clusters.said_before(seen.earlier) if seen.earlier is not None else None
        if seen.earlier is None or before is None:
            return ()
        then, now = Said(before, seen.earlier.uploads), Said(seen.cluster, seen.uploads)
        return await self.workers.run(seen.owner, remembered, then, now)

    def drivers(self, hosts: Iterable[Host]) -> dict[tuple[str, Kind], Driver]:
        """Every driver of these hosts."""
        return drivers_on(hosts, self._drivers_of)

    async def to_fetch(self, request: Request, cluster: Cluster) -> list[str]:
        """The URLs that a file names and of whose content there is no copy."""
        earlier = await self._database.read(
            stored.find, owner=request.caller.uid, name=cluster.name
        )
        known = earlier.uploads if earlier is not None else {}
        return await self._named.to_fetch(cluster, known, request.caller.uid)

    def _holder(self, cluster_id: UUID, owner: OwnerId, mac: str) -> str:
        """Which other cluster has this MAC; that of another user is not named."""
        return called(self._fleet.has_mac(mac, but=cluster_id), owner)

    def _port_holder(self, cluster_id: UUID, owner: OwnerId, ports: str) -> str:
        """The same of how names of ports begin."""
        return called(self._fleet.has_ports(ports, but=cluster_id), owner)

    def pool_root_of(self, host: Host) -> str:
        """The directory on a host in which pools are made."""
        return pool_root(host, self._pool_root)


def _refuse_stale(fingerprint: str, plan: Plan) -> None:
    """`fingerprint`: of the plan that was agreed on, "" for none."""
    if fingerprint and fingerprint != plan.fingerprint:
        raise Stale(
            "the plan is stale: something has changed since it was made",
            hint="Look at a new one with `nospoon plan`.",
        )
