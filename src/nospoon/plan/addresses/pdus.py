"""Which outlet of which PDU feeds each node: kept where it still fits, else the next free one.

PDUs have a port each of one address, or port 161 of the first addresses of the BMCs' pool.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice

from nospoon.model.cluster import BmcProtocol, Cluster
from nospoon.plan.addresses.ports import TakenPorts

SNMP_PORT = 161


@dataclass(frozen=True, slots=True)
class Socket:
    """An outlet: PDU and outlet numbered from 1, and where the PDU answers."""

    pdu: int
    number: int
    address: str
    port: int

    @property
    def place(self) -> tuple[str, int]:
        return self.address, self.port


def plug(
    cluster: Cluster,
    earlier: Mapping[str, Socket],
    occupied: Collection[tuple[str, int]],
    reasons: list[str],
    *,
    claimed: Collection[tuple[str, int]] = frozenset(),
) -> Iterator[tuple[str, Socket]]:
    """Node name -> its outlet, for the nodes that have one; `reasons`: why not, for the rest.
    `claimed`: of what is occupied, that which other clusters have.
    """
    nodes = [node.name for node in cluster.nodes if BmcProtocol.PDU in node.bmc]
    if not nodes:
        return
    # a PDU each, and those that others have, are passed over: no more of a large pool is looked at
    most = len(nodes) + len(occupied) + max((each.pdu for each in earlier.values()), default=0)
    places = dict(enumerate(islice(_places(cluster), most + 1), start=1))
    kept = {
        name: earlier[name]
        for name in nodes
        if name in earlier
        and earlier[name].number <= cluster.addressing.pdu.outlets
        and earlier[name].place == places.get(earlier[name].pdu)
        and earlier[name].place not in claimed
    }
    free = _free(cluster, places, {each.pdu for each in kept.values()}, occupied)
    used = {(each.pdu, each.number) for each in kept.values()}
    for name in nodes:
        found = kept.get(name) or next((s for s in free if (s.pdu, s.number) not in used), None)
        if found is None:
            reasons.append(f"node {name}: no free port for its PDU. Widen `bmc.pdu.ports`.")
            return
        yield name, found


def _places(cluster: Cluster) -> Iterator[tuple[str, int]]:
    addressing = cluster.addressing
    if addressing.pool is not None:
        yield from ((str(address), SNMP_PORT) for address in addressing.pool.hosts())
        return
    first, last = addressing.pdu.ports
    yield from ((str(addressing.address), port) for port in range(first, last + 1))


def _free(
    cluster: Cluster,
    places: Mapping[int, tuple[str, int]],
    own: Container[int],
    occupied: Collection[tuple[str, int]],
) -> Iterator[Socket]:
    pooled = cluster.addressing.pool is not None  # then the socket of all addresses is shared
    taken = occupied.__contains__ if pooled else TakenPorts(occupied).hinder
    for pdu in count(1):
        if pdu not in places:
            return
        if pdu not in own and taken(places[pdu]):
            continue
        for number in range(1, cluster.addressing.pdu.outlets + 1):
            yield Socket(pdu, number, *places[pdu])
