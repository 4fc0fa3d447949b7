"""Addresses, ports and places for a plan: what others have, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from uuid import UUID

from sqlalchemy import Connection

from nospoon.control.fleet import usage
from nospoon.control.fleet.hosts import Hosts
from nospoon.control.fleet.usage import Machines, Wanted
from nospoon.control.planning.access import Access
from nospoon.control.planning.prepared import Seen
from nospoon.control.request import Request
from nospoon.errors import PlanRefused
from nospoon.model.cluster import Cluster, Host
from nospoon.model.host_facts import Route
from nospoon.model.lab import Lab
from nospoon.model.principal import OwnerId
from nospoon.plan import identity
from nospoon.plan.access import over_bmcs, overlapping_routes
from nospoon.plan.addresses.allocate import Allocations, Occupied, allocate
from nospoon.plan.addresses.claims import (
    NamedNetwork,
    Scope,
    hosts_of_nodes,
    identifiers,
    network_claims,
)
from nospoon.plan.addresses.claims import Place as ClaimedPlace
from nospoon.plan.addresses.networks import chosen_among
from nospoon.plan.addresses.occupants import occupants
from nospoon.plan.addresses.scopes import Scopes, scopes_of
from nospoon.plan.addresses.tunnels import against_identifiers
from nospoon.plan.placement.room import claims
from nospoon.plan.refuse import against_pool, reasons_against
from nospoon.plan.seeds import against_addresses, against_boot_urls
from nospoon.plan.user_data import against_user_data
from nospoon.providers import linux
from nospoon.runtime.workers import Workers
from nospoon.store import claims as claim_rows
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
        occupied = await self._occupied(request, seen, before)

        async def decide(occupied: Occupied) -> tuple[Allocations, list[str]]:
            return await self._workers.run(
                seen.owner,
                lambda: allocate(
                    cluster, before, occupied, facts=facts, unmade=seen.unmade(before.hosts),
                    first_choice=seen.id.int, rebalance=request.rebalance,
                ),
            )  # fmt: skip

        allocations, reasons = await decide(occupied)
        disputed = await self._database.read(_disputed, seen.id, cluster, allocations)
        choosing = {each.name for each in cluster.networks if each.chosen}
        chosen = choosing.intersection(name for name, _ in disputed)
        if chosen:  # nodes come to a host where another cluster has the same
            allocations, reasons = await decide(replace(occupied, disputed=chosen))
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
                *against_user_data(cluster, allocations),
            ],
        )
        reasons += await self._workers.run(
            seen.owner, lambda: list(against_identifiers(cluster, seen.id, occupied.identifiers))
        )
        reasons += _against_networks(each for each in disputed if each[0] not in chosen)
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

    async def _avoided(self, seen: Seen) -> tuple[IPv4Address, ...]:
        if not _makes_here(seen):
            return ()
        return await self._workers.run(seen.owner, _avoided, self._labs(), seen)

    async def wanted(self, seen: Seen, allocations: Allocations) -> Wanted | None:
        """What the nodes that come to a host take there; None where none comes."""
        before = {row.name: row.host.name for row in seen.rows}
        made = partial(claims, hosts=allocations.hosts, before=before)
        found = await self._workers.run(seen.owner, made, seen.cluster, seen.surveyed.all_facts)
        if not found:
            return None
        return Wanted(found, Machines.of({each.identity for each in found}, self._hosts))

    async def _occupied(self, request: Request, seen: Seen, before: Allocations) -> Occupied:
        own = {identity.bridge_name(seen.id, network.name) for network in seen.cluster.networks}
        in_use = await self._workers.run(seen.owner, self._ports_in_use)
        listening = await self._workers.run(seen.owner, self._listening)
        facts = seen.surveyed.facts.values()
        routes = [route for fact in facts for route in fact.routes if route.device not in own]
        scopes = await self._workers.run(seen.owner, scopes_of, seen.cluster, before)
        numbers = await self._workers.run(seen.owner, identifiers, seen.cluster, seen.id)
        taken = await self._database.read(_taken, seen.id, scopes, numbers, seen.cluster.hosts)
        held = await self._workers.run(seen.owner, _held_by, taken, routes, seen.owner)
        # clusters of a user share a socket, and no two sockets of one port
        here = str(seen.cluster.addressing.address)
        shared = {place for place in held.redfish if place[0] == here}
        known = seen.surveyed.all_facts
        machines = Machines.of(
            {(known[host.name].identity if host.name in known else "") or host.name
             for host in seen.cluster.hosts},
            self._hosts,
        )  # fmt: skip
        return Occupied(
            held.networks,
            held.others,
            held.elsewhere,
            await self._avoided(seen),
            endpoints=held.endpoints | in_use,
            claimed=held.endpoints,
            holder=self._holder_of_port,
            redfish=(listening | held.redfish) - shared,
            foreign=held.foreign_redfish,
            identifiers=taken.identifiers,
            usage=await self._database.read(machines.used, but=seen.id),
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
    result = dict[str, IPv4Network | IPv6Network]()
    for network in seen.cluster.networks if _makes_here(seen) else ():
        cidr = allocations.cidrs.get(network.name)
        if cidr is not None and before.cidrs.get(network.name) != cidr:
            result[network.name] = IPv4Network(cidr)
        elif cidr is None and network.cidr6 is not None and seen.earlier is None:
            result[network.name] = network.cidr6
    return result


def _makes_here(seen: Seen) -> bool:
    """Whether this machine may get networks."""
    facts = seen.surveyed.facts
    return any(
        each.declares.is_real and each.declares.makes_networks and not each.machine
        for each in seen.cluster.hosts
        if each.name in facts and not facts[each.name].away
    )


def _avoided(labs: Sequence[tuple[OwnerId, Lab]], seen: Seen) -> tuple[IPv4Address, ...]:
    """Addresses that no network of this machine may be chosen with: see `over_bmcs`."""
    found = {each for each in _called(labs, seen) if chosen_among(each)}
    addresses = list[IPv4Address]()
    for each in found:
        with suppress(ValueError):
            addresses.append(IPv4Address(each))
    return tuple(addresses)


def _called(labs: Sequence[tuple[OwnerId, Lab]], seen: Seen) -> Iterator[str]:
    for owner, lab in labs:
        if owner != seen.owner:
            yield from (machine.address for machine in lab.machines)


@dataclass(frozen=True, slots=True)
class _Taken:
    """What other clusters have where a plan looks for something free. `cidrs`: on its hosts;
    `elsewhere`: on all hosts.
    """

    udp: list[tuple[ClaimedPlace, OwnerId]]
    redfish: list[tuple[ClaimedPlace, OwnerId]]
    cidrs: set[str]
    elsewhere: set[str]
    identifiers: frozenset[str]


def _taken(
    connection: Connection,
    cluster_id: UUID,
    scopes: Scopes,
    numbers: Collection[str],
    hosts: Collection[Host],
) -> _Taken:
    vnis = [(Scope.VNI, each) for each in numbers]
    named = claim_rows.names_among(connection, vnis, but=cluster_id)
    return _Taken(
        claim_rows.places_in(connection, scopes.udp, transport=claim_rows.UDP, but=cluster_id),
        claim_rows.places_in(connection, scopes.redfish, transport=claim_rows.TCP, but=cluster_id),
        claim_rows.cidrs_in(connection, scopes.networks, but=cluster_id, hosts=hosts),
        claim_rows.cidrs_in(connection, scopes.networks, but=cluster_id),
        frozenset(value for _, value in named),
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """What other clusters have, and so no other may choose. `networks`: of hosts' routes, `others`:
    of other clusters there, `elsewhere`: anywhere. `redfish`: of the same user.
    """

    networks: tuple[IPv4Network, ...]
    others: tuple[IPv4Network, ...]
    elsewhere: tuple[IPv4Network, ...]
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


def _disputed(
    connection: Connection, cluster_id: UUID, cluster: Cluster, allocations: Allocations
) -> set[NamedNetwork]:
    """Networks that cannot be beside those of other clusters."""
    on, wanted = hosts_of_nodes(cluster.hosts, allocations), network_claims(cluster, allocations)
    return {*claim_rows.overlapping(connection, cluster_id, wanted, hosts=on)}


def _against_networks(disputed: Iterable[NamedNetwork]) -> list[str]:
    """`disputed`: of those that the file gives."""
    return [
        f"network {name}: {cidr} overlaps a network of another cluster on the same host. "
        "Choose another `cidr`, or leave it out for one that is free."
        for name, cidr in sorted(disputed)
    ]


def _held_by(taken: _Taken, routes: Sequence[Route], owner: OwnerId) -> _Held:
    """`routes`: those of hosts. For a thread: members have thousands of each."""
    routed = {each.network for each in routes if isinstance(each.network, IPv4Network)}
    return _Held(
        tuple(sorted(each for each in routed if each.prefixlen)),
        tuple(map(IPv4Network, taken.cidrs)),
        tuple(map(IPv4Network, taken.elsewhere)),
        {place for place, _ in taken.udp},
        {place for place, whose in taken.redfish if whose == owner},
        {place for place, whose in taken.redfish if whose != owner},
    )
