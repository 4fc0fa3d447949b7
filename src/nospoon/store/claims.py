"""What clusters were given, as rows of which no two clusters may have the same.

Where equality says so, a constraint of the database refuses the second one: of UDP ports, MACs and
names. What it cannot say is looked up by index, in the transaction that writes the rows: a socket
of all addresses takes the port of each, networks of one host may not overlap, and clusters of one
user alone share Redfish. Only what is new of a cluster is compared; what it has, it keeps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from socket import AF_INET, inet_pton
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    delete,
    insert,
    select,
    tuple_,
)
from sqlalchemy.exc import IntegrityError

from nospoon.errors import Stale
from nospoon.model.addresses import ANY, ANY_IPV4
from nospoon.model.cluster import Host
from nospoon.model.principal import OwnerId
from nospoon.plan.addresses.claims import Claims, NamedNetwork, Place, Scope
from nospoon.plan.addresses.ports import TakenPorts
from nospoon.plan.addresses.scopes import LAST, Ports
from nospoon.store import tables
from nospoon.store.capacity import on_networks_of
from nospoon.store.chunks import chunks

names, endpoints = tables.claims, tables.claimed_endpoints
networks, capacity = tables.claimed_networks, tables.claimed_capacity
UDP, TCP = "udp", "tcp"
MAPPED = bytes(10) + b"\xff\xff"
"""Before an IPv4 address, in IPv6."""
CALLED = {
    Scope.BRIDGE: "bridge",
    Scope.MAC: "MAC",
    Scope.POOL: "pool",
    Scope.VNI: "VXLAN identifier",
}


def of(connection: Connection, cluster: UUID) -> Claims:
    """What a cluster has."""
    by_transport: dict[str, set[Place]] = {UDP: set(), TCP: set()}
    columns = (endpoints.c.transport, endpoints.c.address, endpoints.c.port)
    for transport, address, port in connection.execute(
        select(*columns).where(endpoints.c.cluster_id == str(cluster))
    ):
        by_transport[transport].add((address, port))
    ranges = select(networks.c.name, networks.c.cidr).where(networks.c.cluster_id == str(cluster))
    named = select(names.c.scope, names.c.value).where(names.c.cluster_id == str(cluster))
    return Claims(
        udp=frozenset(by_transport[UDP]),
        redfish=frozenset(by_transport[TCP]),
        networks=frozenset((row.name, row.cidr) for row in connection.execute(ranges)),
        names=frozenset((_SCOPES[scope], value) for scope, value in connection.execute(named)),
    )


def put(
    connection: Connection,
    cluster: UUID,
    owner: OwnerId,
    wanted: Claims,
    *,
    hosts: Collection[Host],
) -> None:
    """A stored cluster has this from now on, and nothing else. `hosts`: that its nodes are on.

    Raises `Stale` for the first of it that another cluster has.
    """
    known = of(connection, cluster)
    fresh = _without(wanted, known)
    what = next(_in_the_way(connection, cluster, owner, fresh), "")
    beside = overlapping(connection, cluster, wanted.networks, hosts=hosts)
    what = what or next((f"the same network, {cidr}" for _, cidr in beside), "")
    if what:
        raise stale(what)
    write(connection, cluster, owner, wanted, known=known)


def write(
    connection: Connection, cluster: UUID, owner: OwnerId, wanted: Claims, *, known: Claims
) -> None:
    """The same where nothing but equality is compared. `known`: what it has."""
    fresh = _without(wanted, known)
    _drop(connection, cluster, _without(known, wanted))
    try:
        with connection.begin_nested():
            _insert(connection, cluster, owner, fresh)
    except IntegrityError as error:
        what = next(_equal(connection, cluster, fresh), "")
        if not what:
            raise
        raise stale(what) from error


def stale(what: str) -> Stale:
    """`what` another cluster took; whose that is, its reader may not know."""
    return Stale(
        f"the plan is stale: another cluster took {what}",
        hint="Look at a new one with `nospoon plan`.",
    )


def free_of(connection: Connection, cluster: UUID, wanted: Claims) -> Claims:
    """What of it no other cluster has: of a cluster that is made again after the store was lost."""
    udp = _same_places(connection, cluster, wanted.udp)
    named = _same_names(connection, cluster, wanted.names)
    return replace(wanted, udp=wanted.udp.difference(udp), names=wanted.names.difference(named))


def forget(
    connection: Connection,
    cluster: UUID,
    owner: OwnerId,
    decided: Claims,
    gone: Collection[tuple[Scope, str]],
) -> None:
    """Of nodes that are gone: `decided` is what was decided for the others."""
    known = of(connection, cluster)
    left = replace(
        known,
        udp=known.udp & decided.udp,
        redfish=known.redfish & decided.redfish,
        names=known.names.difference(gone),
    )
    write(connection, cluster, owner, left, known=known)


def places_in(
    connection: Connection, where: Iterable[Ports], *, transport: str, but: UUID
) -> list[tuple[Place, OwnerId]]:
    """Sockets that other clusters than one have there, with their owners."""
    found = dict[tuple[Place, OwnerId], None]()
    for box in where:
        for each in _box(box):
            columns = (endpoints.c.address, endpoints.c.port, endpoints.c.owner)
            query = select(*columns).where(endpoints.c.transport == transport, each)
            others = query.where(endpoints.c.cluster_id != str(but))
            for address, port, owner in connection.execute(others):
                found[(address, port), owner] = None
    return list(found)


def cidrs_in(
    connection: Connection,
    where: Iterable[IPv4Network],
    *,
    but: UUID,
    hosts: Collection[Host] | None = None,
) -> set[str]:
    """Networks of other clusters than one that overlap these: of those with nodes where these hosts
    are, None: of all.
    """
    there = None if hosts is None else sorted(on_networks_of(connection, hosts, but=but))
    found = set[str]()
    for each in where:
        query = select(networks.c.cidr).where(*_overlapping(each))
        if there is None:
            found.update(connection.scalars(query.where(networks.c.cluster_id != str(but))))
            continue
        for some in chunks(there):
            found.update(connection.scalars(query.where(networks.c.cluster_id.in_(some))))
    return found


def overlapping(
    connection: Connection,
    cluster: UUID,
    wanted: Collection[NamedNetwork],
    *,
    hosts: Collection[Host],
) -> Iterator[NamedNetwork]:
    """Which networks of a cluster overlap one of another cluster that has nodes where these hosts
    are: of networks that it has not yet, and, on hosts that it comes to, of all.
    """
    ranges = select(networks.c.name, networks.c.cidr).where(networks.c.cluster_id == str(cluster))
    there = select(capacity.c.host).where(capacity.c.cluster_id == str(cluster)).distinct()
    known = {(name, cidr) for name, cidr in connection.execute(ranges)} if wanted else set()
    old = set(connection.scalars(there)) if wanted else set()
    come = [host for host in hosts if host.name not in old]
    new = [each for each in wanted if each not in known]
    others = [each for each in wanted if each in known]
    for some, on in ((new, hosts), (others, come)):
        yield from beside(connection, some, hosts=on, but=cluster)


def beside(
    connection: Connection,
    wanted: Collection[NamedNetwork],
    *,
    hosts: Collection[Host],
    but: UUID,
) -> list[NamedNetwork]:
    """Which networks overlap one of another cluster that has nodes where these hosts are.

    All are compared at once: members have a hundred thousand, and a look for each of a thousand
    that are new went through all of them.
    """
    there = on_networks_of(connection, hosts, but=but) if wanted and hosts else ()
    ranges = sorted((*_ends(ip_network(each[1])), each) for each in wanted)
    firsts, lasts = [each[0] for each in ranges], [each[1] for each in ranges]
    found = set[NamedNetwork]()
    for some in chunks(sorted(there)):
        query = select(networks.c.first, networks.c.last).where(
            networks.c.cluster_id.in_(some),
            networks.c.first <= max(lasts),
            networks.c.last >= firsts[0],
        )
        for first, last in connection.execute(query):
            at = bisect_left(lasts, first)  # those of one file do not overlap
            while at < len(ranges) and firsts[at] <= last:
                found.add(ranges[at][2])
                at += 1
    return [each for each in wanted if each in found]


def names_among(
    connection: Connection, wanted: Collection[tuple[Scope, str]], *, but: UUID
) -> set[tuple[Scope, str]]:
    """Those that other clusters than one have."""
    return set(_same_names(connection, but, wanted))


_SCOPES = {each.value: each for each in Scope}


def _without(these: Claims, those: Claims) -> Claims:
    """What of these is not among those."""
    return replace(
        these,
        udp=these.udp - those.udp,
        redfish=these.redfish - those.redfish,
        networks=these.networks - those.networks,
        names=these.names - those.names,
    )


def _in_the_way(
    connection: Connection, cluster: UUID, owner: OwnerId, fresh: Claims
) -> Iterator[str]:
    """Sockets of others beside which those that are new cannot be opened, or may not be."""
    tcp = places_in(connection, _around(fresh.redfish), transport=TCP, but=cluster)
    strange = TakenPorts(place for place, whose in tcp if whose != owner)
    yield from (_called(each, "TCP") for each in sorted(fresh.redfish) if strange.hinder(each))
    if fresh.pooled:
        return
    wide = {each for each in fresh.udp if each[0] in {ANY, ANY_IPV4}}
    ports = sorted({port for _, port in wide})
    found = places_in(connection, [Ports(each, each) for each in ports], transport=UDP, but=cluster)
    if narrow := fresh.udp - wide:
        ports = [port for _, port in narrow]
        found += places_in(
            connection, [Ports(min(ports), max(ports), 0, 0)], transport=UDP, but=cluster
        )
    there = TakenPorts(place for place, _ in found)
    yield from (_called(each, "UDP") for each in sorted(fresh.udp) if there.hinder(each))


def _around(places: Iterable[Place]) -> Iterator[Ports]:
    """Where sockets may be in the way of these, one look for each port."""
    by_port = dict[int, list[str]]()
    for address, port in places:
        by_port.setdefault(port, []).append(address)
    for port, addresses in by_port.items():
        numbers = [number for each in addresses if (number := _number(each)) is not None]
        if 0 in numbers or len(numbers) < len(addresses):
            yield Ports(port, port)
        else:
            yield Ports(port, port, min(numbers), max(numbers))


def _overlapping(network: IPv4Network) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    first, last = _ends(network)
    return networks.c.first <= last, networks.c.last >= first


def _equal(connection: Connection, cluster: UUID, fresh: Claims) -> Iterator[str]:
    """What others have of what is new."""
    for each in _same_places(connection, cluster, fresh.udp):
        yield _called(each, "UDP")
    for scope, value in _same_names(connection, cluster, fresh.names):
        yield f"the same {CALLED[scope]}, {value}"


def _called(place: Place, transport: str) -> str:
    address, port = place
    where = f"[{address}]" if ":" in address else address
    return f"the same address and port, {transport} {where}:{port}"


def _same_places(connection: Connection, cluster: UUID, udp: Iterable[Place]) -> Iterator[Place]:
    """Those of them that other clusters have."""
    for some in chunks(sorted((port, address) for address, port in udp)):
        there = tuple_(endpoints.c.port, endpoints.c.address).in_(some)
        query = select(endpoints.c.address, endpoints.c.port).where(
            endpoints.c.transport == UDP, there, endpoints.c.cluster_id != str(cluster)
        )
        yield from ((address, port) for address, port in connection.execute(query))


def _same_names(
    connection: Connection, cluster: UUID, wanted: Iterable[tuple[Scope, str]]
) -> Iterator[tuple[Scope, str]]:
    """Those of them that other clusters have."""
    by_scope = dict[Scope, list[str]]()
    for scope, value in sorted(wanted):
        by_scope.setdefault(scope, []).append(value)
    for scope, values in by_scope.items():
        for some in chunks(values):
            query = select(names.c.value).where(
                names.c.scope == scope.value,
                names.c.value.in_(some),
                names.c.cluster_id != str(cluster),
            )
            yield from ((scope, value) for value in connection.scalars(query))


def _insert(connection: Connection, cluster: UUID, owner: OwnerId, fresh: Claims) -> None:
    of_it: dict[str, object] = {"cluster_id": str(cluster)}
    sockets = (*((UDP, each) for each in fresh.udp), *((TCP, each) for each in fresh.redfish))
    of_owner = of_it | {"owner": owner}
    rows: dict[Table, list[dict[str, object]]] = {
        endpoints: [
            {"transport": t, "address": a, "port": p, "number": _number(a)} | of_owner
            for t, (a, p) in sockets
        ],
        networks: [{"name": n} | _range(cidr) | of_it for n, cidr in fresh.networks],
        names: [{"scope": scope.value, "value": value} | of_it for scope, value in fresh.names],
    }
    for table, of_table in rows.items():
        for some in chunks(of_table):
            connection.execute(insert(table), some)


def _drop(connection: Connection, cluster: UUID, gone: Claims) -> None:
    sockets = (*((UDP, each) for each in gone.udp), *((TCP, each) for each in gone.redfish))
    for table, rows in (
        (endpoints, [{"transport": t, "address": a, "port": p} for t, (a, p) in sockets]),
        (networks, [{"name": name, "cidr": cidr} for name, cidr in gone.networks]),
        (names, [{"scope": scope.value, "value": value} for scope, value in gone.names]),
    ):
        if rows:
            same = [table.c[column] == bindparam(f"its_{column}") for column in rows[0]]
            statement = delete(table).where(table.c.cluster_id == str(cluster), *same)
            wanted = [{f"its_{column}": row[column] for column in row} for row in rows]
            for some in chunks(wanted):
                connection.execute(statement, some)


def _number(address: str) -> int | None:
    """Of an IPv4 address. In C: `IPv4Address` took half of the time in which others wait."""
    try:
        return int.from_bytes(inet_pton(AF_INET, address))
    except OSError:
        return None


def _range(cidr: str) -> dict[str, object]:
    first, last = _ends(ip_network(cidr))
    return {"cidr": cidr, "first": first, "last": last}


def _ends(network: IPv4Network | IPv6Network) -> tuple[bytes, bytes]:
    """The first and last address, as IPv6 has them (of IPv4, RFC 4291 section 2.5.5.2)."""
    before = b"" if network.version == 6 else MAPPED
    first, last = network.network_address, network.broadcast_address
    return before + first.packed, before + last.packed


def _box(ports: Ports) -> Iterator[ColumnElement[bool]]:
    """One condition for each look by index."""
    between = endpoints.c.port.between(ports.first, ports.last)
    if (ports.low, ports.high) == (0, LAST):
        yield between
        return
    yield and_(endpoints.c.number.between(ports.low, ports.high), between)
    if ports.low > 0:
        yield and_(endpoints.c.number == 0, between)  # sockets of all addresses
    yield and_(endpoints.c.number.is_(None), between)  # and those of IPv6, which may be so
