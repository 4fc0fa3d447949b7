"""Looks at everything of a cluster, on all hosts at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from nospoon.errors import HostUnreachable
from nospoon.model.resources import Kind, Observed
from nospoon.providers.base import Driver

Drivers = Mapping[tuple[str, Kind], Driver]
"""(host, kind) -> the driver that handles it there."""


async def observe(drivers: Drivers, cluster: UUID) -> list[Observed]:
    """Every resource of the cluster, as it is now. Raises what any driver raises."""
    found = await asyncio.gather(*(driver.observe(cluster) for driver in drivers.values()))
    return [each for batch in found for each in batch]


async def observe_reachable(
    drivers: Drivers, cluster: UUID
) -> tuple[list[Observed], dict[str, str]]:
    """As `observe`, and host -> reason for those that nobody could look at."""
    results = await asyncio.gather(
        *(driver.observe(cluster) for driver in drivers.values()), return_exceptions=True
    )
    found: list[Observed] = []
    away: dict[str, str] = {}
    for (host, _), result in zip(drivers, results, strict=True):
        match result:
            case HostUnreachable():
                away[host] = str(result)
            case BaseException():
                raise result
            case Sequence():
                found += result
    return found, away
