"""Nova's API and Placement's by openstacksdk, whose calls block: they run in threads of their user.

https://docs.openstack.org/api-ref/compute/, https://docs.openstack.org/api-ref/placement/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import Adapter, Answered, How, answered, judged, words_of
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, failures_of
from nospoon.runtime.reach import Reach

PARALLEL = 4
PURPOSE = "make flavors"


@dataclass(frozen=True, slots=True)
class Service:
    """`proxy`: what a connection of openstacksdk calls it."""

    name: str
    proxy: str
    microversion: str


NOVA = Service("Nova", "compute", "2.61")
"""From that version on a flavor shows its extra specs."""
PLACEMENT = Service("Placement", "placement", "1.22")
"""From that version on traits may be forbidden."""


class Api:
    """A service of one cloud. Raises `HostUnreachable`, `Gone`, `Conflict`, `ProviderError`."""

    def __init__(self, place: IronicPlace, means: Means, *, service: Service = NOVA) -> None:
        self.place, self.service, self._reach = place, service, means.reach
        self._calls = Calls(means.threads, parallel=PARALLEL)
        self._adapter: Adapter | None = None

    async def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
        """What it answers, decoded; None for nothing."""
        answer = await self._calls.run(partial(self._guarded, method, path, body))
        return judged(answer, f"{self.service.name}'s {method} {path}", said=words_of)

    def _guarded(self, method: str, path: str, body: Mapping[str, object] | None) -> Answered:
        with failures_of(f"{self.service.name} of {self.place}", PURPOSE):
            if self._adapter is None:
                self._adapter = _adapter(self.place, self.service, self._reach)
            how: How = {"microversion": self.service.microversion}
            if body is not None:
                how["json"] = body
            return answered(self._adapter, path, method, **how)


def _adapter(place: IronicPlace, service: Service, reach: Reach) -> Adapter:
    told = json.loads(place.cloud)
    found: Adapter = getattr(connection(told, purpose=PURPOSE, reach=reach), service.proxy)
    return found
