"""Ports of BMCs, of which those with addresses of a pool share one socket, of all addresses; and
ports of network boot on hosts over ssh.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nospoon.model.addresses import ANY_IPV4, same_place
from nospoon.model.host_facts import HostFacts
from nospoon.model.principal import OwnerId
from nospoon.model.resources.bmcs import Bmc
from nospoon.model.resources.keys import Kind
from nospoon.model.resources.resource import Resource
from nospoon.plan.order.steps import Step


@dataclass(frozen=True, slots=True)
class Bound:
    """A socket. Clusters may share it where all of it is the same."""

    field: str
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
    """A BMC of another cluster. `whose`: as a message names that. `owner`: None for unknown."""

    whose: str
    bmc: Bmc
    owner: OwnerId | None = None


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


def against_ports(desired: Iterable[Resource], others: Collection[Neighbour]) -> list[str]:
    """Why sockets of these BMCs cannot be open beside those of other clusters."""
    if not others:
        return []
    held: dict[tuple[str, int], dict[Bound, str]] = {}
    for other in others:
        for bound in _sockets(other.bmc):
            held.setdefault((bound.protocol, bound.port), {})[bound] = other.whose
    wanted = dict.fromkeys(
        bound for each in desired if isinstance(each.shape, Bmc) for bound in _sockets(each.shape)
    )
    return [
        f"{bound.field}: {_told(bound)} cannot be served while {whose} is served at "
        f"{_told(there)}{_otherwise(bound, there)}. Choose another port{_mend(bound, there)}."
        for bound in wanted
        for there, whose in held.get((bound.protocol, bound.port), {}).items()
        if bound.clashes(there)
    ]


def against_sharing(
    desired: Iterable[Resource], others: Iterable[Neighbour], owner: OwnerId
) -> list[str]:
    """Why these BMCs of `owner` cannot answer Redfish where they should: an endpoint is one
    service with one table of accounts, so another user's BMCs must not be there, too.
    """
    taken = [
        (other.bmc.address, other.bmc.redfish_port) for other in others if other.owner != owner
    ]
    if not taken:
        return []
    held = TakenPorts(taken)
    wanted = {
        (each.shape.address, each.shape.redfish_port): each.shape
        for each in desired
        if isinstance(each.shape, Bmc) and each.shape.redfish_port
    }
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


def against_many(desired: Iterable[Resource], others: Iterable[Bmc], most: int | None) -> list[str]:
    """Why these BMCs are too many, with the `others` of the same user: each socket costs the
    daemon a descriptor, and members may have `most`; None: as many as one likes.
    """
    if most is None:
        return []
    bmcs = [each.shape for each in desired if isinstance(each.shape, Bmc)]
    needed = len({bound for bmc in (*bmcs, *others) for bound in _sockets(bmc)})
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
        step.key.host
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


def _sockets(bmc: Bmc) -> Iterator[Bound]:
    address = ANY_IPV4 if bmc.pool else bmc.address
    if bmc.ipmi_port:
        yield Bound("bmc.pool" if bmc.pool else "bmc.ports", "UDP", address, bmc.ipmi_port)
    if bmc.outlet is not None:
        place = address if bmc.pool else bmc.outlet.address
        yield Bound("bmc.pool" if bmc.pool else "bmc.pdu.ports", "UDP", place, bmc.outlet.port)
    if bmc.redfish_port:
        yield Bound("bmc.redfish_port", "TCP", address, bmc.redfish_port, bmc.tls, bmc.certificate)


def _told(bound: Bound) -> str:
    where = f"[{bound.address}]" if ":" in bound.address else bound.address
    how = {True: " with TLS", False: " without TLS"}[bound.tls] if bound.protocol == "TCP" else ""
    return f"{bound.protocol} {where}:{bound.port}{how}"


def _otherwise(bound: Bound, there: Bound) -> str:
    """What is not seen of the place."""
    return " and another certificate" if bound.tls and _certificates_differ(bound, there) else ""


def _certificates_differ(bound: Bound, there: Bound) -> bool:
    return there.tls and bound.certificate != there.certificate


def _mend(bound: Bound, there: Bound) -> str:
    return ", or the same `bmc.tls`" if bound.address == there.address else ""
