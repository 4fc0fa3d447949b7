"""Nova's API and Placement's by openstacksdk, whose calls block: they run in threads of their user.

https://docs.openstack.org/api-ref/compute/, https://docs.openstack.org/api-ref/placement/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any

from nospoon.errors import ProviderError
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import (
    Adapter,
    How,
    decoded,
    judged,
    received,
    undo,
    words_of,
)
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, failures_of
from nospoon.runtime.reach import Reach

PURPOSE = "make flavors"
LARGEST = 1 << 20
"""Bytes of an answer that is kept as it is."""
Read = Callable[..., object]


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
        self._calls = Calls(means, parallel=place.calls.at_once)
        self._adapter: Adapter | None = None
        self._reading = Lock()  # an answer takes many times its size until it is read

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        read: Read | None = None,
    ) -> Any:
        """What it answers, decoded, of at most `LARGEST` bytes; None for nothing. `read`: makes of
        it what is kept, in a thread, and keeps no lists or objects of it.
        """
        return await self._calls.run(partial(self._guarded, method, path, body, read))

    def _guarded(
        self, method: str, path: str, body: Mapping[str, object] | None, read: Read | None
    ) -> object:
        said = f"{self.service.name}'s {method} {path}"
        with failures_of(f"{self.service.name} of {self.place}", PURPOSE):
            if self._adapter is None:
                self._adapter = _adapter(self.place, self.service, self._reach)
            how: How = {"microversion": self.service.microversion}
            if body is not None:
                how["json"] = body
            raw = received(self._adapter, path, method, **how)
        if read is None:
            size = len(raw.content)
            if size > LARGEST:
                raise ProviderError(
                    f"{said} was answered with {size} bytes: expected {LARGEST} at most"
                )
            return judged(decoded(raw), said, said=words_of)
        with self._reading:
            answer = decoded(raw)
            try:
                return read(judged(answer, said, said=words_of))
            finally:
                undo(answer.value)


def _adapter(place: IronicPlace, service: Service, reach: Reach) -> Adapter:
    told = json.loads(place.cloud)
    found: Adapter = getattr(connection(told, purpose=PURPOSE, reach=reach), service.proxy)
    return found
