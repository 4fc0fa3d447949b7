"""Looks at what drivers have made that all who look at the same time share.

Several plans at once would each ask a host for everything that is there. Who asks while a look is
under way waits for the next one, for that one began before; all who wait share the next.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from nospoon.model.resources.resource import Observed
from nospoon.providers.base import Driver
from nospoon.runtime.paced import paced
from nospoon.runtime.tasks import Tasks


@dataclass(slots=True)
class _Next:
    """A look that has not begun. `clusters`: of those who wait for it."""

    clusters: list[UUID | None]
    found: asyncio.Future[dict[UUID | None, list[Observed]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Looks:
    """`tasks`: who runs the looks, so that one goes on when who began it leaves."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._next: dict[Driver, _Next] = {}
        self._busy: set[Driver] = set()

    async def observe(self, driver: Driver, cluster: UUID | None) -> Sequence[Observed]:
        """As the driver's `observe`, begun now or later, never before. Raises what that raises."""
        waiting = self._next.get(driver)
        if waiting is None:
            waiting = self._next[driver] = _Next([cluster])
        else:
            waiting.clusters.append(cluster)
        if driver not in self._busy:
            self._busy.add(driver)
            self._tasks.start(self._look(driver), name=f"look at {driver.kind}")
        found = await asyncio.shield(waiting.found)
        return found.get(cluster, [])

    async def _look(self, driver: Driver) -> None:
        """While anyone waits."""
        try:
            while (asked := self._next.pop(driver, None)) is not None:
                try:
                    asked.found.set_result(await _found(driver, set(asked.clusters)))
                except asyncio.CancelledError:
                    asked.found.cancel()
                    raise
                except Exception as error:  # noqa: BLE001  (it is theirs who wait)
                    asked.found.set_exception(error)
                    asked.found.exception()  # who waited may have left
        finally:
            self._busy.discard(driver)


async def _found(driver: Driver, clusters: set[UUID | None]) -> dict[UUID | None, list[Observed]]:
    """One call, whatever number of clusters it is for."""
    if len(clusters) == 1:
        (only,) = clusters
        return {only: list(await driver.observe(only))}
    every = await driver.observe(None)
    found = defaultdict[UUID | None, list[Observed]](list)
    async for each in paced(every):
        if each.tag.cluster in clusters:
            found[each.tag.cluster].append(each)
    if None in clusters:
        found[None] = list(every)
    return found
