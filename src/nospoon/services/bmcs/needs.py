"""Where BMCs are reached: sockets and routes, which of them hinder each other, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv4Network

from nospoon.errors import Conflict
from nospoon.model.addresses import same_place
from nospoon.model.resources.bmcs import Bmc
from nospoon.runtime.udp import ANY
from nospoon.services.bmcs.served import bind_address

LOOPBACK = IPv4Network("127.0.0.0/8")


class Reach(StrEnum):
    """What a BMC is reached by, in the order in which it is opened."""

    ROUTE = "a route"
    IPMI = "IPMI"
    SNMP = "SNMP"
    REDFISH = "Redfish"


FIELDS = {
    Reach.IPMI: "other `bmc.ports`",
    Reach.SNMP: "other `bmc.pdu.ports`",
    Reach.REDFISH: "another `bmc.redfish_port`",
}


@dataclass(frozen=True, slots=True)
class Need:
    """Of one kind, at one place; BMCs that need the same share it. A route's `address` is CIDR."""

    kind: Reach
    address: str
    port: int = 0
    tls: bool = False
    certificate: str = ""

    def hinders(self, other: Need) -> bool:
        """Whether only one of both can be open."""
        return (
            self != other
            and self.port == other.port != 0
            and (self.kind is Reach.REDFISH) is (other.kind is Reach.REDFISH)
            and same_place(self.address, other.address)
        )

    def __str__(self) -> str:
        return f"{self.kind.value} on {self.address}:{self.port}"


class ByPort:
    """What is needed at each port: to look through all of ten thousand BMCs for each one of them
    would take minutes.
    """

    def __init__(self, needs: Iterable[Need] = ()) -> None:
        self._needs: dict[int, dict[Need, None]] = {}
        for need in needs:
            self.add(need)

    def add(self, need: Need) -> None:
        self._needs.setdefault(need.port, {})[need] = None

    def remove(self, need: Need) -> None:
        at_port = self._needs.get(need.port, {})
        at_port.pop(need, None)
        if not at_port:
            self._needs.pop(need.port, None)

    def hindering(self, need: Need) -> Iterator[Need]:
        if need.port:
            yield from (each for each in self._needs.get(need.port, ()) if each.hinders(need))


@lru_cache
def _is_loopback(pool: str) -> bool:
    """All BMCs of a cluster have one pool."""
    return IPv4Network(pool).subnet_of(LOOPBACK)


def needs_of(bmc: Bmc) -> tuple[Need, ...]:
    address, outlet = bind_address(bmc), bmc.outlet
    # PDUs with addresses of a pool share one socket, as BMCs do
    snmp = (address if bmc.pool else outlet.address, outlet.port) if outlet is not None else None
    redfish = (bmc.redfish_port, bmc.tls, bmc.certificate if bmc.tls else "")
    return _needs(address, bmc.pool, bmc.ipmi_port, snmp, redfish)


@lru_cache
def _needs(
    address: str, pool: str, ipmi: int, snmp: tuple[str, int] | None, redfish: tuple[int, bool, str]
) -> tuple[Need, ...]:
    """All BMCs with addresses of one pool need the same."""
    needs = []
    if pool and not _is_loopback(pool):
        needs.append(Need(Reach.ROUTE, pool))
    if ipmi:
        needs.append(Need(Reach.IPMI, address, ipmi))
    if snmp is not None:
        needs.append(Need(Reach.SNMP, *snmp))
    if redfish[0]:
        needs.append(Need(Reach.REDFISH, address, *redfish))
    return tuple(needs)


def fields_of(need: Need) -> str:
    """What to write otherwise: BMCs with addresses of a pool all have the standard's port."""
    if need.address == ANY and need.kind is not Reach.REDFISH:
        return "one `bmc.address` and `bmc.ports` in place of `bmc.pool`"
    return FIELDS[need.kind]


def refuse_conflict(need: Need, by_port: ByPort) -> None:
    """By sockets of our own: to stop who has them would be bad advice."""
    for held in by_port.hindering(need):
        if held.address == need.address and held.kind is need.kind:
            how = "with another certificate" if held.tls and need.tls else _how(held)
            raise Conflict(
                f"{held} is served {how} for other nodes",
                hint="Give this cluster another `bmc.redfish_port`, or the same `bmc.tls`.",
            )
        raise Conflict(
            f"cannot serve {need}: nospoon serves {held} for other nodes",
            hint=f"Choose {fields_of(need)} in the cluster file.",
        )


def _how(need: Need) -> str:
    return f"{'with' if need.tls else 'without'} TLS"
