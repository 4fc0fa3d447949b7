"""A client of the cloud's APIs, as its administrator: what it takes to fill an empty cloud."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nospoon.dev.cloud.wanted import Api, Wanted
from nospoon.errors import ProviderError

MICROVERSION = "compute 2.61"
_SECONDS = 120
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Client:
    """With the token of an administrator."""

    wanted: Wanted
    token: str

    async def call(self, method: str, api: Api, path: str, body: Any = None) -> Any:
        """The answer, decoded; None for an empty one. Refusals raise `ProviderError`."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Content-Type": "application/json", **self._headers}
        request = urllib.request.Request(
            f"{self.wanted.url(api)}{path}", data, headers, method=method
        )
        return (await asyncio.to_thread(_sent, request))[0]

    async def upload(self, path: str, file: Path) -> None:
        """A file to Glance."""
        headers = {"Content-Type": "application/octet-stream", **self._headers}
        url = f"{self.wanted.url(Api.GLANCE)}{path}"
        request = urllib.request.Request(url, file.read_bytes(), headers, method="PUT")
        await asyncio.to_thread(_sent, request)

    @property
    def _headers(self) -> dict[str, str]:
        return {"X-Auth-Token": self.token, "OpenStack-API-Version": MICROVERSION}


async def logged_in(wanted: Wanted, password: str) -> Client:
    """https://docs.openstack.org/api-ref/identity/v3/#password-authentication-with-scoped-authorization"""
    who = {"name": "admin", "domain": {"id": "default"}}
    user = {"user": {**who, "password": password}}
    auth = {"identity": {"methods": ["password"], "password": user}, "scope": {"project": who}}
    request = urllib.request.Request(
        f"{wanted.url(Api.KEYSTONE)}/v3/auth/tokens",
        json.dumps({"auth": auth}).encode(),
        {"Content-Type": "application/json"},
        method="POST",
    )
    headers = (await asyncio.to_thread(_sent, request))[1]
    return Client(wanted, str(headers["X-Subject-Token"]))


def _sent(request: urllib.request.Request) -> tuple[Any, Any]:
    try:
        with _OPENER.open(request, timeout=_SECONDS) as answer:
            text = answer.read()
            return (json.loads(text) if text else None), answer.headers
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")[:500]
        raise ProviderError(
            f"{request.method} {request.full_url} answers {error.code}: {said}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise ProviderError(f"{request.method} {request.full_url} fails: {error}") from error


def is_answering(wanted: Wanted, api: Api) -> bool:
    """Whether it serves its versions. The port itself always accepts connections."""
    connection = http.client.HTTPConnection("127.0.0.1", wanted.port(api), timeout=30)
    try:
        connection.request("GET", "/v3" if api is Api.KEYSTONE else "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return status < http.HTTPStatus.INTERNAL_SERVER_ERROR


