"""A client of the cloud's APIs, as its administrator: what it takes to fill an empty cloud."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import HostUnreachable, ProviderError
from nospoon.runtime.reasons import reason

_VERSIONS = {
    "OpenStack-API-Version": "compute 2.61, volume 3.70",
    "X-OpenStack-Ironic-API-Version": "1.90",
}
_JSON = {"Content-Type": "application/json"}
_SECONDS = 120
_SHOWN = 500
"""Characters of a refusal."""


@dataclass(frozen=True, slots=True)
class Client:
    """With the token of an administrator."""

    wanted: Wanted
    token: str

    async def call(self, method: str, api: Api, path: str, body: object = None) -> Any:
        """The answer, decoded; None for an empty one. Refusals raise `ProviderError`."""
        data = json.dumps(body).encode() if body is not None else None
        text, _ = await self._sent(method, api, path, data, _JSON)
        return json.loads(text) if text else None

    async def upload(self, path: str, file: Path) -> None:
        """A file to Glance."""
        kind = {"Content-Type": "application/octet-stream"}
        await self._sent("PUT", Api.GLANCE, path, file.read_bytes(), kind)

    async def _sent(
        self, method: str, api: Api, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[bytes, http.client.HTTPMessage]:
        known = {"X-Auth-Token": self.token, **_VERSIONS, **headers}
        return await asyncio.to_thread(_exchange, self.wanted, method, api, path, body, known)


async def logged_in(wanted: Wanted, password: str) -> Client:
    """https://docs.openstack.org/api-ref/identity/v3/#password-authentication-with-scoped-authorization"""
    who = {"name": "admin", "domain": {"id": "default"}}
    user = {"user": {**who, "password": password}}
    auth = {"identity": {"methods": ["password"], "password": user}, "scope": {"project": who}}
    body, path = json.dumps({"auth": auth}).encode(), "/v3/auth/tokens"
    _, headers = await asyncio.to_thread(_exchange, wanted, "POST", Api.KEYSTONE, path, body, _JSON)
    return Client(wanted, headers["X-Subject-Token"])


def is_answering(wanted: Wanted, api: Api) -> bool:
    """Whether it serves its versions. The port itself always accepts connections."""
    try:
        _exchange(wanted, "GET", api, "/v3" if api is Api.KEYSTONE else "/", None, {})
    except ProviderError:
        return False
    return True


def _exchange(
    wanted: Wanted, method: str, api: Api, path: str, body: bytes | None, headers: Mapping[str, str]
) -> tuple[bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", wanted.port(api), timeout=_SECONDS)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ProviderError(f"{method} {wanted.url(api)}{path} fails: {reason(error)}") from error
    finally:
        connection.close()
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        said = text.decode(errors="replace")[:_SHOWN]
        refused = f"{method} {wanted.url(api)}{path} answers {answer.status}: {said}"
        if answer.status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            raise HostUnreachable(refused)  # what the service itself asks may not answer yet
        raise ProviderError(refused)
    return text, answer.headers
