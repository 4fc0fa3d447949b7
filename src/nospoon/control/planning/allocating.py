"""Addresses, ports and places for a plan: what others have, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network, IPv6Network
from uuid import UUID

from nospoon.control.fleet import usage
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.planning.access import Access
from nospoon.control.planning.prepared import Seen
from nospoon.control.request import Request
from nospoon.errors import PlanRefused, Stale
from nospoon.model.host_facts import Route
from nospoon.model.lab import Lab
from nospoon.model.principal import OwnerId
from nospoon.plan import identity
from nospoon.plan.access import over_bmcs, overlapping_routes
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate, redfish_of
from nospoon.plan.addresses.occupants import occupants
from nospoon.plan.addresses.tunnels import against_identifiers
from nospoon.plan.placement.room import Claim, claims
from nospoon.plan.refuse import against_pool, reasons_against
from nospoon.plan.seeds import against_addresses, against_boot_urls
from nospoon.providers import linux
from nospoon.runtime.workers import Workers
from nospoon.store import clusters as stored
from nospoon.store.clusters import Holding
from nospoon.store.database import Database

PortsInUse = Callable[[], frozenset[tuple[str, int]]]
"""Called in a thread: Linux writes a line for each socket of the machine."""
LabsThere = Callable[[], Sequence[tuple[OwnerId, Lab]]]
"""All that are known, with their owners."""


class Allocating:
    """Allocates what a plan needs beside all other clusters. `in_use`: UDP ports, `listening`: TCP
    ports of this machine.
    """

    def __init__(
        self,
        *,
        database: Database,
        hosts: Hosts,
        access: Access,
        workers: Workers,
        in_use: PortsInUse,
        listening: PortsInUse,
        holder_of_port: Callable[[int], str],
        labs: LabsThere,
    ) -> None:
        self._labs = labs
        self._database, self._hosts, self._access = database, hosts, access
        self._workers, self._holder_of_port = workers, holder_of_port
        self._ports_in_use, self._listening = in_use, listening

    async def allocate(self, request: Request, seen: Seen, before: Allocations) -> Allocations:
        """What each node gets, of what no other cluster has. Raises `PlanRefused`."""
        cluster, facts = seen.cluster, seen.surveyed.all_facts
        occupied = await self._occupied(request, seen)
        allocations, reasons = await self._workers.run(
            seen.owner,
            lambda: allocate(
                cluster, before, occupied, facts=facts, unmade=seen.unmade(before.hosts),
                first_choice=seen.id.int, rebalance=request.rebalance,
            ),
        )  # fmt: skip
        answering = {name: each for name, each in facts.items() if not each.away}
        reasons += await self._workers.run(
            seen.owner,
            lambda: list(reasons_against(cluster, seen.id, allocations, answering, before=before)),
        )
        reasons += await self._workers.run(
            seen.owner,
            lambda: [
                *against_addresses(cluster, allocations),
                *against_boot_urls(cluster, allocations),
            ],
        )
        reasons += await self._workers.run(
            seen.owner, lambda: list(against_identifiers(cluster, seen.id, occupied.names))
        )
        reasons += await self._workers.run(
            seen.owner,
            lambda labs: list(
                over_bmcs(_made_here(seen, allocations, before), _called(labs, seen))
            ),
            self._labs(),
        )
        pool = cluster.addressing.pool
        if pool is not None and not pool.is_loopback:
            routes = await linux.routes_here()
            reasons += await self._workers.run(
                seen.owner, _against_pool, pool, allocations, routes, request.caller.admin
            )
        if reasons:
            raise PlanRefused(reasons)
        return allocations

    async def claims(self, seen: Seen, allocations: Allocations) -> tuple[Claim, ...]:
        """What the nodes that come to a host take there."""
        before = {row.name: row.host.name for row in seen.rows}
        made = partial(claims, hosts=allocations.hosts, before=before)
        return await self._workers.run(seen.owner, made, seen.cluster, seen.surveyed.all_facts)

    async def require_capacity(self, cluster: UUID, wanted: Iterable[Claim]) -> None:
        """Raises `Stale` where nodes of other clusters, as they are remembered by now, left too
        little for these.
        """
        used = await usage.of_others(self._database, self._hosts, cluster)
        what = next(filter(None, (each.lacks(used) for each in wanted)), "")
        if what:
            raise Stale(
                f"the plan is stale: another cluster took {what}",
                hint="Look at a new one with `nospoon plan`.",
            )

    async def _occupied(self, request: Request, seen: Seen) -> Occupied:
        others = await self._database.read(stored.holdings, but=seen.id)
        own = {identity.bridge_name(seen.id, network.name) for network in seen.cluster.networks}
        in_use = await self._workers.run(seen.owner, self._ports_in_use)
        listening = await self._workers.run(seen.owner, self._listening)
        facts = seen.surveyed.facts.values()
        routes = [route for fact in facts for route in fact.routes if route.device not in own]
        held = await self._workers.run(seen.owner, _held_by, others, routes, seen.owner)
        return Occupied(
            held.networks,
            held.endpoints | in_use,
            holder=self._holder_of_port,
            redfish=listening - held.redfish,
            foreign=held.foreign_redfish,
            names={row.id: row.allocations.cidrs.keys() for row in others},
            usage=await usage.of_others(self._database, self._hosts, seen.id),
            standing=await self._workers.run(seen.owner, usage.standing, seen.rows, seen.observed),
            nics=await self._workers.run(
                seen.owner,
                tuple,
                occupants(seen.observed, cluster=seen.cluster, targets=request.targets),
            ),
            unseen=seen.unseen,
        )


def _made_here(
    seen: Seen, allocations: Allocations, before: Allocations
) -> dict[str, IPv4Network | IPv6Network]:
    """Networks that this machine gets. Those that it has stay, whatever labs came later."""
    facts = seen.surveyed.facts
    makes = any(
        each.declares.is_real and not each.machine and facts[each.name].managed_networks
        for each in seen.cluster.hosts
        if each.name in facts
    )
    result = dict[str, IPv4Network | IPv6Network]()
    for network in seen.cluster.networks if makes else ():
        cidr = allocations.cidrs.get(network.name)
        if cidr is not None and before.cidrs.get(network.name) != cidr:
            result[network.name] = IPv4Network(cidr)
        elif cidr is None and network.cidr6 is not None and seen.earlier is None:
            result[network.name] = network.cidr6
    return result


def _called(labs: Sequence[tuple[OwnerId, Lab]], seen: Seen) -> Iterator[str]:
    for owner, lab in labs:
        if owner != seen.owner:
            yield from (machine.address for machine in lab.machines)


@dataclass(frozen=True, slots=True)
class _Held:
    """What other clusters have, and so no other may choose. `redfish`: of the same user."""

    networks: tuple[IPv4Network, ...]
    endpoints: AbstractSet[tuple[str, int]]
    redfish: AbstractSet[tuple[str, int]]
    foreign_redfish: AbstractSet[tuple[str, int]]


def _against_pool(
    pool: IPv4Network,
    allocations: Allocations,
    routes: tuple[Route, ...],
    admin: bool,  # noqa: FBT001  (handed to a thread)
) -> list[str]:
    """For a thread: this machine has a route for each of its networks, and members thousands."""
    reasons = [*against_pool(pool, allocations, routes)]
    if not admin:
        reasons += overlapping_routes(pool, allocations.cidrs.values(), routes)
    return reasons


def _held_by(others: Sequence[Holding], routes: Sequence[Route], owner: OwnerId) -> _Held:
    """`routes`: those of hosts. For a thread: members have thousands of each."""
    routed = {each.network for each in routes if isinstance(each.network, IPv4Network)}
    cidrs = {IPv4Network(cidr) for row in others for cidr in row.allocations.cidrs.values()}
    endpoints = {
        (each.address, each.ipmi_port)
        for row in others
        for each in row.allocations.endpoints.values()
    }
    endpoints |= {each.place for row in others for each in row.allocations.outlets.values()}
    redfish, foreign = set[tuple[str, int]](), set[tuple[str, int]]()
    for row in others:
        (redfish if row.owner == owner else foreign).update(redfish_of(row.allocations))
    networks = {each for each in routed if each.prefixlen} | cidrs
    return _Held(tuple(sorted(networks)), endpoints, redfish, foreign)
