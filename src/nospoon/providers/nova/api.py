"""Nova's API and Placement's by openstacksdk, whose calls block: they run in threads of their user.

https://docs.openstack.org/api-ref/compute/, https://docs.openstack.org/api-ref/placement/
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nospoon.errors import HostUnreachable, ProviderError
from nospoon.model.ironic import IronicPlace
from nospoon.providers.answers import MAX_TOLD, answered, judged, refusal, said_json
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, login_errors
from nospoon.runtime.reach import Reach
from nospoon.runtime.reasons import reason

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
        self._adapter: Any = None

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What it answers, decoded; None for nothing."""
        answer = await self._calls.run(partial(self._guarded, method, path, body))
        return judged(answer, f"{self.service.name}'s {method} {path}", said=words_of)

    def _guarded(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        exceptions = login_errors(PURPOSE)
        name = self.service.name
        try:
            if self._adapter is None:
                self._adapter = _adapter(self.place, self.service, self._reach)
            more = {} if body is None else {"json": body}
            version = self.service.microversion
            return answered(
                self._adapter, path, method, microversion=version, raise_exc=False, **more
            )
        except (exceptions.ConnectionError, exceptions.DiscoveryFailure) as error:
            raise HostUnreachable(
                f"{name} of {self.place} does not answer: {reason(error)}"
            ) from error
        except exceptions.ClientException as error:
            raise ProviderError(f"{name} of {self.place}: {refusal(error)}") from error
        except RecursionError as error:  # of keystoneauth's own look at a service
            raise HostUnreachable(f"{name} of {self.place} answers with no JSON") from error


def words_of(text: str) -> str:
    """The fault's words: Nova wraps them in one key, Placement in a list of errors as well."""
    told = said_json(text)
    if told is None:
        return text[:MAX_TOLD]
    inner = next(iter(told.values()), "") if isinstance(told, dict) else told
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or inner
    return str(inner)[:MAX_TOLD]


def _adapter(place: IronicPlace, service: Service, reach: Reach) -> Any:
    told = json.loads(place.cloud)
    return getattr(connection(told, purpose=PURPOSE, reach=reach), service.proxy)
