"""Where a cluster has things: on the hosts of its file, and on those that it has not left yet.

A host is remembered before anything is made there, and forgotten when a look at it found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from nospoon.engine.observe import observe_reachable
from nospoon.errors import ProviderError
from nospoon.model.cluster import Cluster, Host
from nospoon.model.resources.keys import Key, Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.order.kinds import KINDS
from nospoon.providers.base import Driver

DriversOf = Callable[[Host], Mapping[Kind, Driver]]


@dataclass(frozen=True, slots=True)
class Places:
    """`known`: hosts on which there may be things of the cluster; `wanted`: those of its file."""

    known: Sequence[Host]
    wanted: Sequence[Host]

    @property
    def all(self) -> list[Host]:
        """One host a name; the file's settings hold."""
        named = {host.name: host for host in self.known} | {host.name: host for host in self.wanted}
        return list(named.values())

    @property
    def left(self) -> bool:
        """Whether the file names some of them no more."""
        return len(self.all) > len(self.wanted)

    @property
    def moved(self) -> list[Host]:
        """As they were: hosts that lead elsewhere now, under the same name."""
        now = {host.name: host.place for host in self.wanted}
        return [host for host in self.known if now.get(host.name, host.place) != host.place]


def drivers_on(hosts: Iterable[Host], drivers_of: DriversOf) -> dict[tuple[str, Kind], Driver]:
    """Every driver of these hosts."""
    return {
        (host.name, kind): driver for host in hosts for kind, driver in drivers_of(host).items()
    }


def makes_nothing(before: Cluster) -> bool:
    """Whether a cluster had nothing made, as one has that is there for its labs."""
    return (
        not before.nodes
        and all(network.existing for network in before.networks)
        and not any(host.connection.relay for host in before.hosts)
    )


async def against_moves(
    places: Places,
    cluster: UUID,
    observed: Iterable[Observed],
    drivers_of: DriversOf,
    *,
    empty: bool = False,
) -> list[str]:
    """Reasons why hosts may not lead elsewhere: something is left where they led before.

    A host is the same one by another address, or with a login by another name, if what is found
    there is found here too (`observed`). `empty`: nothing was made, so nothing has to be looked for
    where that is not possible any more.
    """
    if not places.moved:
        return []
    here = {each.key for each in observed}
    reasons = []
    for host in places.moved:
        drivers = {
            (host.name, kind): driver
            for kind, driver in drivers_of(host).items()
            if not KINDS[kind].by_daemon
        }
        try:
            found, away = await observe_reachable(drivers, cluster)
        except ProviderError as error:  # such as a login that is refused by now
            found, away = [], {host.name: str(error)}
        if away and not empty and not _any_on(host.name, here):
            reasons.append(
                f"host {host.name}: it is not known what is left at {_called(host)}, "
                f"where it led before: {away[host.name]}"
            )
        left = {each.key for each in found} - here
        if left:
            reasons.append(_left_behind(host, left))
    return reasons


def _any_on(name: str, keys: Iterable[Key]) -> bool:
    return any(key.place == name and not KINDS[key.kind].by_daemon for key in keys)


def _left_behind(host: Host, left: Iterable[Key]) -> str:
    some = ", ".join(f"{key.kind} {key.name}" for key in sorted(left)[:3])
    return (
        f"host {host.name} was {_called(host)}, and there is still what is the cluster's ({some}). "
        "Take the cluster down first, or give the new host another name."
    )


def _called(host: Host) -> str:
    return f"{host.where} by ssh {host.ssh}" if host.ssh else host.where
