"""The APIs of one project by openstacksdk, whose calls block: they run in threads of their own.

https://docs.openstack.org/api-ref/compute/, …/network/v2/, …/image/v2/
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any
from urllib.parse import urlencode

from nospoon.errors import Gone, HostUnreachable, ProviderError
from nospoon.providers.answers import MAX_TOLD, Answered, answered, judged, refusal, said_json
from nospoon.providers.cloud_calls import Calls, Means
from nospoon.providers.clouds import connection, login_errors
from nospoon.runtime.reasons import reason

PARALLEL = 8
PURPOSE = "use a cloud"
TOO_MANY, UNAVAILABLE = 429, 503
TRIES = 4
"""Of a call that the cloud puts off (Retry-After)."""
LONGEST_REST = 30.0
"""Seconds that a cloud may put a call off."""
PAGE = 1000
MOST_PAGES = 100
"""Of one collection that are asked for."""


class Service(StrEnum):
    """A service, by what a connection of openstacksdk calls it."""

    NOVA = "compute"
    NEUTRON = "network"
    GLANCE = "image"


MICROVERSION = "2.61"
"""Of Nova (Queens): flavors are shown with servers, with their extra specs."""
CALLED = {Service.NOVA: "Nova", Service.NEUTRON: "Neutron", Service.GLANCE: "Glance"}


class Api:
    """Calls with one login. Raises `HostUnreachable`, `Gone`, `Conflict`, `ProviderError`."""

    def __init__(self, name: str, settings: Mapping[str, Any], means: Means) -> None:
        self.name = name
        self._settings, self._reach = settings, means.reach
        self._calls = Calls(means.threads, parallel=PARALLEL)
        self._connection: Any = None

    async def call(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Any:
        """What it answers, decoded; None for nothing. What the cloud puts off is asked again, as
        late as it says. `how`: more for requests.
        """
        said = f"{CALLED[service]}'s {method} {path.partition('?')[0]}"
        for _ in range(TRIES - 1):
            answer, rest = await self._calls.run(
                partial(self._asked, service, method, path, body, how)
            )
            if rest is None:
                return judged(answer, said, said=words_of)
            await asyncio.sleep(rest)
        answer, _ = await self._calls.run(partial(self._asked, service, method, path, body, how))
        return judged(answer, said, said=words_of)

    async def listed(self, service: Service, path: str, **query: Any) -> AsyncIterator[Any]:
        """Everything that a collection has, page by page."""
        name = path.strip("/").partition("/")[0]
        marker = ""
        for _ in range(MOST_PAGES):
            parameters: dict[str, Any] = {"limit": PAGE, **query}
            parameters |= {"marker": marker} if marker else {}
            answer = await self.call(service, "GET", f"{path}?{urlencode(parameters)}")
            for each in answer[name]:
                yield each
            links = answer.get(f"{name}_links") or ()
            goes_on = "next" in answer or any(each["rel"] == "next" for each in links)
            if not goes_on or not answer[name]:
                return
            marker = answer[name][-1]["id"]
        raise ProviderError(f"{CALLED[service]} of cloud {self.name} lists {path} without an end")

    async def get(self, service: Service, path: str) -> Any:
        """None for what is not there."""
        try:
            return await self.call(service, "GET", path)
        except Gone:
            return None

    async def project(self) -> str:
        """The id of the project that the login has."""
        return await self._calls.run(self._project)

    def _project(self) -> str:
        try:
            self._adapter(Service.NOVA)
            return str(self._connection.session.get_project_id() or "")
        except login_errors(PURPOSE).ClientException as error:
            raise ProviderError(f"cloud {self.name}: {refusal(error)}") from error

    def _asked(
        self,
        service: Service,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        how: Mapping[str, Any],
    ) -> tuple[Answered, float | None]:
        """An answer, and after how many seconds to ask again; None: it is the answer."""
        exceptions = login_errors(PURPOSE)
        more: dict[str, Any] = {} if body is None else {"json": body}
        if service is Service.NOVA:
            more["microversion"] = MICROVERSION
        try:
            adapter = self._adapter(service)
            rests: list[float] = []
            answer = answered(
                _Watched(adapter, rests),
                path,
                method,
                raise_exc=False,
                **more,
                **how,
            )
        except (exceptions.ConnectionError, exceptions.DiscoveryFailure) as error:
            raise HostUnreachable(
                f"{CALLED[service]} of cloud {self.name} does not answer: {reason(error)}"
            ) from error
        except exceptions.ClientException as error:
            raise ProviderError(
                f"{CALLED[service]} of cloud {self.name}: {refusal(error)}"
            ) from error
        except RecursionError as error:  # of keystoneauth's own look at a service
            raise HostUnreachable(
                f"{CALLED[service]} of cloud {self.name} answers with no JSON"
            ) from error
        put_off = answer.status_code == TOO_MANY or (
            answer.status_code == UNAVAILABLE and method in {"GET", "DELETE", "PUT"}
        )
        return answer, min(LONGEST_REST, rests[-1]) if put_off and rests else None

    def _adapter(self, service: Service) -> Any:
        if self._connection is None:
            self._connection = connection(self._settings, purpose=PURPOSE, reach=self._reach)
        return getattr(self._connection, service)


class _Watched:
    """An adapter whose answers' Retry-After is noted (RFC 9110 §10.2.3), in seconds."""

    def __init__(self, adapter: Any, rests: list[float]) -> None:
        self._adapter, self._rests = adapter, rests

    def request(self, path: str, method: str, **how: Any) -> Any:
        answer = self._adapter.request(path, method, **how)
        rest = answer.headers.get("Retry-After", "")
        self._rests.append(float(rest) if rest.isdecimal() else 1.0)
        return answer


def words_of(text: str) -> str:
    """A fault's words: Nova wraps them in one key, Neutron in `NeutronError`; Glance has HTML."""
    fault = said_json(text)
    if not isinstance(fault, dict):
        return " ".join(text.split())[:MAX_TOLD]
    inner = next(iter(fault.values()), "")
    if isinstance(inner, dict):
        inner = inner.get("message") or inner.get("detail") or inner
    return str(inner)[:MAX_TOLD]
