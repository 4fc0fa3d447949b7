"""Looks at everything of a cluster, on all hosts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.engine.looks import Looks
from nospoon.errors import HostUnreachable
from nospoon.model.resources.keys import IRONIC, NOVA, Kind
from nospoon.model.resources.resource import Observed
from nospoon.plan.order.kinds import KINDS
from nospoon.providers.base import Driver
from nospoon.runtime.few import all_begun

Drivers = Mapping[tuple[str, Kind], Driver]
"""(host, kind) -> the driver that handles it there."""


async def observe(drivers: Drivers, cluster: UUID | None) -> list[Observed]:
    """Every resource of the cluster, or of all of ours, as it is now. Raises what drivers raise."""
    found = await asyncio.gather(*(driver.observe(cluster) for driver in _each_once(drivers)))
    return [each for batch in found for each in batch]


async def observe_reachable(
    drivers: Drivers, cluster: UUID | None, looks: Looks | None = None
) -> tuple[list[Observed], dict[str, str]]:
    """As `observe`, and place -> reason for those that cannot be looked at.
    `looks`: shared with others who look meanwhile.
    """
    once = _each_once(drivers)

    async def look(driver: Driver) -> Sequence[Observed]:
        if looks is None:
            return await driver.observe(cluster)
        return await looks.observe(driver, cluster)

    results = await all_begun(once, look)
    found: list[Observed] = []
    away: dict[str, str] = {}
    for (driver, place), result in zip(once.items(), results, strict=True):
        match result:
            case HostUnreachable() if KINDS[driver.kind].outside:
                away[place] = str(result)  # it names the service already
            case HostUnreachable():
                away[place] = f"{driver.kind}: {result}"
            case Exception():
                raise result
            case Sequence():
                found += result
    return found, away


def outside_away(away: Mapping[str, str]) -> str:
    """Why a service outside of hosts does not answer, "" where all do. `away`: as it was found."""
    return next((away[place] for place in (IRONIC, NOVA) if place in away), "")


def _each_once(drivers: Drivers) -> dict[Driver, str]:
    """Driver -> a place that it serves: a driver of the daemon's own serves several."""
    return {driver: place for (place, _), driver in drivers.items()}
