"""Ports of BMCs, of which those with addresses of a pool share one socket, of all addresses; and
ports of network boot on hosts over ssh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nospoon.model.addresses import ANY_IPV4, same_place
from nospoon.model.host_facts import HostFacts
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.order.steps import Step

UDP, TCP = "UDP", "TCP"


@dataclass(frozen=True, slots=True)
class Bound:
    """A socket. Clusters may share it where all of it is the same."""

    protocol: str
    address: str
    port: int
    tls: bool = False
    certificate: str = ""

    def clashes(self, other: Bound) -> bool:
        """Whether only one of both can be open."""
        apart = (self.address, self.tls, self.certificate) != (
            other.address, other.tls, other.certificate,
        )  # fmt: skip
        return apart and same_place(self.address, other.address)


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A socket that BMCs of another cluster have. `cluster`: its name, "" where that is not known,
    or is another user's. `is_own`: of the same user.
    """

    bound: Bound
    cluster: str
    is_own: bool

    @property
    def whose(self) -> str:
        """As a message names it."""
        return f"your cluster {self.cluster}" if self.cluster else "another cluster"


class TakenPorts:
    """Addresses and ports that others have, found by port."""

    def __init__(self, taken: Iterable[tuple[str, int]]) -> None:
        self._addresses: dict[int, set[str]] = {}
        for address, port in taken:
            self._addresses.setdefault(port, set()).add(address)

    def hinder(self, place: tuple[str, int]) -> bool:
        """Whether a socket there cannot be opened: the port of all addresses hinders that of each
        one, and the port of any address that of all.
        """
        address, port = place
        return any(same_place(each, address) for each in self._addresses.get(port, ()))


def sockets_of(desired: Iterable[Resource]) -> dict[Bound, str]:
    """Those of BMCs that are to be, each with the field of the file that says where it is."""
    return {
        bound: field
        for each in desired
        if isinstance(each.shape, Bmc)
        for field, bound in sockets(each.shape)
    }


def redfish_places(desired: Iterable[Resource]) -> dict[tuple[str, int], Bmc]:
    """Where BMCs that are to be answer Redfish."""
    return {
        (each.shape.address, each.shape.redfish_port): each.shape
        for each in desired
        if isinstance(each.shape, Bmc) and each.shape.redfish_port
    }


def against_ports(wanted: Mapping[Bound, str], others: Iterable[Neighbour]) -> list[str]:
    """Why sockets of BMCs cannot be open beside those of other clusters."""
    held: dict[tuple[str, int], dict[Bound, str]] = {}
    for other in others:
        there = other.bound
        held.setdefault((there.protocol, there.port), {})[there] = other.whose
    return [
        f"{field}: {_told(bound)} cannot be served while {whose} is served at "
        f"{_told(there)}{_otherwise(bound, there)}. Choose another port{_advice(bound, there)}."
        for bound, field in wanted.items()
        for there, whose in held.get((bound.protocol, bound.port), {}).items()
        if bound.clashes(there)
    ]


def against_sharing(
    wanted: Mapping[tuple[str, int], Bmc], foreign: Iterable[tuple[str, int]]
) -> list[str]:
    """Why BMCs cannot answer Redfish where they should: an endpoint is one service with one table
    of accounts, so another user's BMCs must not be there, too. `foreign`: where those answer.
    """
    held = TakenPorts(foreign)
    return [
        f"{'bmc.pool' if bmc.pool else 'bmc.redfish_port'}: another user's BMCs answer Redfish at "
        f"{bmc.redfish}, and users do not share an address and port. {_elsewhere(bmc)}."
        for place, bmc in wanted.items()
        if held.hinder(place)
    ]


def _elsewhere(bmc: Bmc) -> str:
    if bmc.pool:
        return "Choose another `bmc.pool`, or another `bmc.redfish_port`"
    return "Choose another `bmc.redfish_port`, or leave it out for one that is free"


def against_many(
    wanted: Collection[Bound], others: Iterable[Neighbour], elsewhere: int, most: int
) -> list[str]:
    """Why these sockets are too many beside `elsewhere` of the same user's other clusters: each
    costs the daemon a descriptor, and members may have `most`. `others`: that may be among them.
    """
    shared = {each.bound for each in others if each.is_own}
    needed = elsewhere + sum(1 for each in wanted if each not in shared)
    if needed <= most:
        return []
    why = f"bmc.ports: your BMCs would need {needed} sockets, and members may have {most}."
    return [f"{why} Use `bmc.pool`, in which all BMCs share a socket."]


BOOT_SERVERS = {67: "DHCP", 69: "TFTP"}
"""UDP ports of network boot -> what answers there."""


def against_boot_servers(steps: Iterable[Step], facts: Mapping[str, HostFacts]) -> list[str]:
    """Why network boot cannot be served on hosts: another server has its ports there. What is
    served there already has them, and keeps them.
    """
    starting = dict.fromkeys(
        step.key.place
        for step in steps
        if step.key.kind is Kind.NETBOOT
        and step.desired is not None
        and (step.observed is None or step.observed.fault)
    )
    return [
        f"host {host}: cannot serve {BOOT_SERVERS[port]} on UDP port {port}, which "
        f"{holder or 'another server'} has there. Stop {holder or 'it'}, or write `netboot: none`."
        for host in starting
        if host in facts
        for port, holder in sorted(facts[host].boot_ports.items())
    ]


def sockets(bmc: Bmc) -> Iterator[tuple[str, Bound]]:
    """Those of a BMC, each behind the field of the file that says where it is."""
    address = ANY_IPV4 if bmc.pool else bmc.address
    if bmc.ipmi_port:
        yield "bmc.pool" if bmc.pool else "bmc.ports", Bound(UDP, address, bmc.ipmi_port)
    if bmc.outlet is not None:
        field = "bmc.pool" if bmc.pool else "bmc.pdu.ports"
        place = address if bmc.pool else bmc.outlet.address
        yield field, Bound(UDP, place, bmc.outlet.port)
    if bmc.redfish_port:
        bound = Bound(TCP, address, bmc.redfish_port, bmc.tls, bmc.certificate)
        yield "bmc.redfish_port", bound


def _told(bound: Bound) -> str:
    where = f"[{bound.address}]" if ":" in bound.address else bound.address
    how = {True: " with TLS", False: " without TLS"}[bound.tls] if bound.protocol == TCP else ""
    return f"{bound.protocol} {where}:{bound.port}{how}"


def _otherwise(bound: Bound, there: Bound) -> str:
    """What is not seen of the place."""
    return " and another certificate" if bound.tls and _certificates_differ(bound, there) else ""


def _certificates_differ(bound: Bound, there: Bound) -> bool:
    return there.tls and bound.certificate != there.certificate


def _advice(bound: Bound, there: Bound) -> str:
    return ", or the same `bmc.tls`" if bound.address == there.address else ""
